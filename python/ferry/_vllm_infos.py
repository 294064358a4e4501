# SPDX-License-Identifier: Apache-2.0
"""What vLLM's trainer and workers tell each other in order to move weights by Ferry. ferry.vllm exports these classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Optional

from vllm.distributed.weight_transfer.base import TrainerInitInfo, WeightTransferInitInfo, WeightTransferUpdateInfo

from ferry._request import DEADLINE

BUCKET = 256 << 20
WORKERS = "vllm-workers"  # the offer of nothing, of rank 0, by which the workers say that they live
Gather = Callable[[Any], list[Any]]


@dataclass
class FerryTrainerInitInfo(TrainerInitInfo):  # type: ignore[misc]
    """host: the address of this rank by which the workers reach it. deadline: seconds that each call to the workers may take
    (to be told of the weights, to start, take and finish an update), and each transfer. gather: gives every rank's value to
    every rank, in order of ranks; None: torch.distributed's, if there is a process group, else there is one trainer rank alone.
    """

    backend: ClassVar[str] = "ferry"

    host: str = "127.0.0.1"
    client_dir: Optional[str] = None
    deadline: float = DEADLINE
    bucket_bytes: int = BUCKET
    gather: Optional[Gather] = None


@dataclass
class FerryWeightTransferInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """What the trainer tells the workers once: every parameter, who owns it, and how it is laid out. `trainer`: the address at
    which each worker says that it lives, until it is shut down."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]
    owners: list[Optional[list[int]]]
    mesh_shapes: list[Optional[list[int]]]
    placements: list[Optional[list[Optional[int]]]]
    deadline: float = DEADLINE
    bucket_bytes: int = BUCKET
    trainer: Optional[list[Any]] = None

    def __post_init__(self) -> None:
        for what in ("dtype_names", "shapes", "owners", "mesh_shapes", "placements"):
            if len(getattr(self, what)) != len(self.names):
                raise ValueError(
                    f"`{what}` should be of the same size as `names`: {len(getattr(self, what))}, {len(self.names)}"
                )


@dataclass
class FerryWeightTransferUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """A version: where each rank's parameters are. `sources`: by rank (address, node, {name: (place, leaf)})."""

    version: int
    offer: str
    sources: list[Any]

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("`sources` cannot be empty: no trainer rank offers anything")
