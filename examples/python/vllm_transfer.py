# SPDX-License-Identifier: Apache-2.0
"""vLLM's weight transfer by Ferry: two trainer ranks that have rows of each weight, two workers that keep columns of it.

The engines are vLLM's own, made by its factories. The four calls to the workers, which vLLM makes by HTTP or Ray, go by pipes
here, and the model is one of four weights; of host memory, or on GPUs (--cuda).

    pip install 'ferry-transfer[node]' vllm
    python examples/python/vllm_transfer.py [--cuda]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import torch
from framework_workers import SHAPES, Workers, device_of, main, spawn, value
from vllm.distributed.weight_transfer.base import ParamMeta, Shard, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

import ferry.vllm

RANKS, WORKERS, VERSIONS = 2, 2, 3


class Rows(WeightSource):  # type: ignore[misc, unused-ignore]
    """What a trainer rank has of each weight."""

    def __init__(self, rank: int, device: Any) -> None:
        self.rank, self.device, self.version = rank, device, 0

    @functools.cached_property
    def metadata(self) -> list[Any]:
        owners = {"owners": tuple(range(RANKS)), "mesh_shape": (RANKS,), "placements": (Shard(0),)}
        return [ParamMeta(name, torch.float32, shape, **owners) for name, shape in SHAPES.items()]

    def iter_local(self) -> Iterator[tuple[str, Any]]:
        for name in SHAPES:
            yield name, value(name, self.version).chunk(RANKS, 0)[self.rank].to(self.device)


class Columns(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """What a worker keeps of each weight, which it cuts out of the whole, as vLLM's loaders do."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.kept: dict[str, Any] = {}

    def load_weights(self, weights: Iterator[tuple[str, Any]]) -> None:
        for name, whole in weights:
            self.kept[name] = whole.chunk(WORKERS, 1)[self.rank].clone()

    def has(self, version: int) -> bool:
        due = {name: value(name, version).chunk(WORKERS, 1)[self.rank] for name in SHAPES}
        return set(due) == set(self.kept) and all(torch.equal(self.kept[name].cpu(), due[name]) for name in due)


class Worker:
    """vLLM's four calls, as they come to a worker."""

    def __init__(self, place: int, device: Any) -> None:
        ferry.vllm.register()  # which vLLM does itself, by the entry point of the package
        self.rank = place - RANKS
        self.model = Columns(self.rank)
        parallel = SimpleNamespace(rank=self.rank, tensor_parallel_size=1, pipeline_parallel_size=1)
        config = SimpleNamespace(parallel_config=parallel, model_config=None)
        backend = SimpleNamespace(backend="ferry")
        self.engine = WeightTransferEngineFactory.create_engine(backend, config, device, self.model)

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self.engine.init_transfer_engine(self.engine.parse_init_info(info))

    def start_weight_update(self) -> None:
        self.engine.start_weight_update()

    def update_weights(self, info: dict[str, Any]) -> None:
        self.engine.update_weights(info)

    def finish_weight_update(self, weight_version: str | None) -> None:
        self.engine.finish_weight_update()
        assert self.model.has(self.engine.version), self.engine.version

    def close(self) -> None:
        # In one piece: other processes print too.
        print(
            f"worker {self.rank}: {self.engine.version} versions by route {'+'.join(self.engine.routes)}\n", end="", flush=True
        )
        self.engine.shutdown()


class Client:
    """The four calls, each to all workers."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self.workers.all("init_weight_transfer_engine", info)

    def start_weight_update(self) -> None:
        self.workers.all("start_weight_update")

    def update_weights(self, info: dict[str, Any]) -> None:
        self.workers.all("update_weights", info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.workers.all("finish_weight_update", weight_version)


def trainer(rank: int, cuda: bool, other: Connection, client: Client | None) -> None:
    """`other`: to the other rank. Where torch.distributed has a process group no `gather` is given."""
    ferry.vllm.register()

    def gather(mine: Any) -> list[Any]:
        other.send(mine)
        theirs = other.recv()
        return [mine, theirs] if rank == 0 else [theirs, mine]

    source = Rows(rank, device_of(cuda, rank))
    info = ferry.vllm.FerryTrainerInitInfo(rank=rank, gather=gather)
    engine = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    for _ in range(VERSIONS):
        source.version += 1
        engine.send_weights()
    engine.shutdown()


def run(cuda: bool) -> int:
    workers = Workers(Worker, RANKS, WORKERS, cuda)
    first, second = spawn.Pipe()
    rank = spawn.Process(target=trainer, args=(1, cuda, second, None), daemon=True)
    rank.start()
    trainer(0, cuda, first, Client(workers))
    status = workers.end()
    rank.join()
    return max(status, abs(rank.exitcode or 0))


if __name__ == "__main__":
    sys.exit(main("vLLM's weight transfer by Ferry", run))
