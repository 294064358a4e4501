# SPDX-License-Identifier: Apache-2.0
"""vLLM's weight transfer in a worker, which fetches what it needs from whichever trainer rank has it. ferry.vllm exports the
engine.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine

from ferry._dtypes import BY_NAME
from ferry._layout import Layout, Region, overlap, slices
from ferry._parts import end_of
from ferry._post import Item, Places
from ferry._presence import Presence
from ferry._pull import Part, Pull
from ferry._request import Address
from ferry._session import Session
from ferry._source import Leaf, host_device, open_session
from ferry._views import View, view_of
from ferry._vllm_infos import WORKERS, FerryWeightTransferInitInfo, FerryWeightTransferUpdateInfo
from ferry.errors import FailedPreconditionError

log = logging.getLogger("ferry.vllm")


class _Wanted(NamedTuple):
    """A part of a parameter that one trainer rank has: `region` of the whole parameter."""

    parameter: int
    rank: int
    region: Region
    part: Part
    leaf: Leaf


_Bucket = dict[int, list[_Wanted]]  # by the rank that has it


class _Parameter(NamedTuple):
    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: Optional[Layout]
    owners: Optional[tuple[int, ...]]
    home: Region  # what this worker needs
    target: Any  # a live parameter, or None: for load_weights


class FerryWeightTransferEngine(WeightTransferEngine):  # type: ignore[misc]
    """In the worker. Of what vLLM can load a shard directly, only that shard comes; of everything else the whole, for
    ``load_weights``."""

    init_info_cls = FerryWeightTransferInitInfo
    update_info_cls = FerryWeightTransferUpdateInfo

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        self._session: Optional[Session] = None
        self._presence: Optional[Presence] = None
        self._parameters: list[_Parameter] = []
        self._init: Optional[FerryWeightTransferInitInfo] = None
        self.version: Optional[int] = None
        self.routes: list[str] = []
        self._arrived: Optional[int] = None
        self._told: set[tuple[Any, ...]] = set()
        self._planned: tuple[list[Any], list[_Bucket]] = ([], [])  # of which sources, and what is fetched of them
        self._places: Optional[Places] = None  # of one update
        self._views: dict[int, View] = {}  # of live parameters, in one update

    def init_transfer_engine(self, init_info: FerryWeightTransferInitInfo) -> None:
        """Once more: anew. Tells the trainer that this worker lives.

        Raises: UnavailableError if no daemon listens, or rank 0 cannot be reached (its host=); PeerClientGoneError if it goes
        away; InvalidArgumentError for a layout that says not which bytes a rank has.
        """
        self.shutdown()
        rank = int(getattr(self.parallel_config, "rank", 0))
        self._session = open_session(f"vllm-worker-{rank}")
        self._who = f"{self._session.node}/worker-{rank}-{secrets.token_hex(4)}"
        if init_info.trainer is not None:
            self._presence = Presence(Address(*init_info.trainer), WORKERS, self._who, init_info.deadline)
        self._init = init_info
        self._parameters, self._planned = self._plan(init_info, rank), ([], [])

    def _plan(self, info: FerryWeightTransferInitInfo, rank: int) -> list[_Parameter]:
        shards, ranks = self._direct(info)
        made = []
        for i, (name, dtype, whole) in enumerate(zip(info.names, info.dtype_names, info.shapes, strict=True)):
            shape, owners, placements = tuple(whole), info.owners[i], info.placements[i]
            layout = None
            if owners is not None and placements is not None:
                layout = Layout(shape, _nested(owners, info.mesh_shapes[i] or [len(owners)]), placements)
            home, target, dimension = Region((0,) * len(shape), shape), None, None
            if name in shards:
                target, dimension = shards[name]
                if dimension is not None:
                    home = Layout(shape, list(range(ranks)), [dimension]).region(rank % ranks)
            made.append(_Parameter(name, dtype, shape, layout, None if owners is None else tuple(owners), home, target))
        return made

    def _direct(self, info: FerryWeightTransferInitInfo) -> tuple[dict[str, tuple[Any, Optional[int]]], int]:
        """(live parameter, dimension that is sharded) of what needs no ``load_weights``, as vLLM's own M2N backend finds it."""
        ranks = int(getattr(self.parallel_config, "tensor_parallel_size", 1) or 1)
        single = getattr(self.parallel_config, "pipeline_parallel_size", 1) == 1
        plain = getattr(self.model_config, "quantization", None) is None
        try:
            from vllm.distributed.weight_transfer.m2n_layout import resolve_parameter_destinations

            found = resolve_parameter_destinations(
                self.model,
                info.names,
                [getattr(torch, name) for name in info.dtype_names],
                info.shapes,
                num_workers=ranks,
                shard_axis_size=ranks,
                allow_direct=bool(single and plain),
            )
        except ImportError as error:
            log.warning("every worker fetches whole parameters: vLLM's m2n_layout is not there (%s)", error)
            return {}, 1
        direct = {}
        for one, shape in zip(found, info.shapes, strict=True):
            if one.direct:
                differs = [i for i, (a, b) in enumerate(zip(shape, one.tensor.shape, strict=True)) if a != b]
                direct[one.name] = (one.tensor, differs[0] if differs else None)
        return direct, ranks

    # ---- One update

    @property
    def _loads(self) -> bool:
        return any(parameter.target is None for parameter in self._parameters)

    def start_weight_update(self) -> None:
        """Raises nothing of its own: what vLLM's own reload does."""
        self._arrived = None
        if self._loads:
            from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

            initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        """The version counts only from here on. FailedPreconditionError if not all of it has arrived."""
        if self._arrived is None:
            raise FailedPreconditionError("a weight update was finished, of which not all has arrived", "FIELD_INVALID")
        if self._loads:
            from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

            finalize_layerwise_reload(self.model, self.model_config)
        self.version, self._arrived = self._arrived, None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base class, and on hosts without an accelerator too, where the base class ends with torch's RuntimeError "no
        NVIDIA driver". Raises ValueError for what is no `FerryWeightTransferUpdateInfo`, and what `receive_weights` does."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FerryWeightTransferUpdateInfo) -> None:
        """Fetches a version.

        Raises: UnavailableError or PeerClientGoneError if a trainer rank has gone away, or does meanwhile, which is an
        exception of `send_weights` too; FailedPreconditionError for a parameter that its owner has not offered; NotFoundError
        if the version was withdrawn; DeadlineExceededError after `deadline` seconds; ResourceExhaustedError where memory is
        full; RuntimeError before `init_transfer_engine`.
        """
        if self._session is None or self._init is None:
            raise RuntimeError("Ferry weight transfer not initialized. Call init_transfer_engine() first.")
        self._arrived = None
        sources = {rank: (Address(*address), node, leaves) for rank, (address, node, leaves) in enumerate(update_info.sources)}
        if self._planned[0] != update_info.sources:  # else it is asked for the same as in the version before
            self._planned = (update_info.sources, list(self._buckets(sources)))
        self._places, self._views = Places(self._session), {}  # anew: a parameter may have moved since the version before
        with Presence(sources[0][0], update_info.offer, self._who, self._init.deadline) as here:
            loaded = self._fetched(update_info.offer, sources)
            if self._loads:
                self.model.load_weights(loaded)
            for _ in loaded:  # what load_weights has left, and what needs none
                pass
            here.done()
        self._arrived = update_info.version

    def _fetched(self, offer: str, sources: dict[int, Any]) -> Iterator[tuple[str, Any]]:
        """(name, whole tensor) of what ``load_weights`` takes; the others are written where they belong. The next bucket is on
        its way while one is loaded."""
        pulls: list[list[tuple[Pull, list[_Wanted]]]] = []
        try:
            for bucket in self._planned[1]:
                pulls.append(self._pull(offer, sources, bucket))
                if len(pulls) > 1:
                    yield from self._landed(pulls.pop(0), sources)
            while pulls:
                yield from self._landed(pulls.pop(0), sources)
        finally:
            for some in pulls:
                for pull, _ in some:
                    pull.cancel()

    def _buckets(self, sources: dict[int, Any]) -> Iterator[_Bucket]:
        assert self._init is not None
        bucket: list[_Wanted] = []
        size = 0
        for index, parameter in enumerate(self._parameters):
            wanted = list(self._pieces(index, parameter, sources))
            nbytes = sum(math.prod(one.region.size) for one in wanted) * BY_NAME[parameter.dtype].bits // 8
            if bucket and size + nbytes > self._init.bucket_bytes:
                yield _by_rank(bucket)
                bucket, size = [], 0
            bucket += wanted
            size += nbytes
        if bucket:
            yield _by_rank(bucket)

    def _pieces(self, index: int, parameter: _Parameter, sources: dict[int, Any]) -> Iterator[_Wanted]:
        """Who is asked for what. Of ranks that have the same, which one depends on the parameter and the worker."""
        name, turn = parameter.name, index + hash_of(self._who)
        owners = parameter.owners or tuple(sources)
        holders: dict[Region, list[int]] = {}
        for rank in owners:
            region = parameter.layout.region(rank) if parameter.layout else Region((0,) * len(parameter.shape), parameter.shape)
            holders.setdefault(region, []).append(rank)
        for region, ranks in holders.items():
            common = overlap(region, parameter.home)
            if common is None and parameter.shape:
                continue
            rank = ranks[turn % len(ranks)]
            leaves = sources[rank][2] if rank in sources else {}
            if name not in leaves:
                raise FailedPreconditionError(f"trainer rank {rank} owns {name!r}, and has not offered it", "FIELD_INVALID")
            place, leaf = leaves[name]
            whole = common is None or common == region
            part = Part(place) if whole else Part(place, *common.within(region))  # type: ignore[union-attr]
            yield _Wanted(index, rank, common or region, part, Leaf(tuple(leaf[0]), *leaf[1:]))

    def _pull(self, offer: str, sources: dict[int, Any], bucket: _Bucket) -> list[tuple[Pull, list[_Wanted]]]:
        assert self._session is not None and self._init is not None
        made = []
        for rank, some in bucket.items():
            into = [self._into(one) for one in some]
            made.append(
                (
                    Pull(
                        self._session,
                        sources[rank][0],
                        offer,
                        [one.leaf for one in some],
                        [one.part for one in some],
                        into=[tensor for tensor, _ in into],
                        ends=[end for _, end in into],
                        who=f"{self._who}: from rank {rank}",
                        deadline=self._init.deadline,
                    ),
                    some,
                )
            )
        return made

    def _into(self, wanted: _Wanted) -> tuple[Any, Item]:
        """Where a part is to come to: the live parameter, or the part of it that this is, if the daemon sees that and it is of
        one stride, and None; else new memory, which is given too."""
        assert self._session is not None and self._places is not None
        parameter = self._parameters[wanted.parameter]
        if parameter.target is not None:
            view = self._views.get(wanted.parameter)
            if view is None:
                view = self._views[wanted.parameter] = view_of(parameter.target)
            end = end_of(self._places, view, *wanted.region.within(parameter.home))
            if end is not None:
                return None, end
        device = torch.device(self.device)
        home = self._session.gpu_of(device.index or 0) if device.type == "cuda" else host_device(self._session)
        made = self._session.empty(wanted.region.size, parameter.dtype, home)
        return made, Item(b"", [(made._arena, made._offset, made.nbytes)], made._dtype, made.shape)

    def _landed(self, pulls: list[tuple[Pull, list[_Wanted]]], sources: dict[int, Any]) -> Iterator[tuple[str, Any]]:
        arrived: dict[int, list[tuple[Region, Any]]] = {}
        for pull, some in pulls:
            tensors = pull.wait()
            self._tell(pull, sources[some[0].rank][1])
            for wanted, tensor in zip(some, tensors, strict=True):
                arrived.setdefault(wanted.parameter, []).append((wanted.region, tensor))
        for index in sorted(arrived):
            parameter, parts = self._parameters[index], arrived[index]
            seen = [(region, torch.from_dlpack(one)) for region, one in parts if one is not None]  # None: it is in place
            if not seen and parameter.target is not None:
                continue
            if len(seen) == 1 and seen[0][0] == parameter.home and parameter.target is None:
                yield parameter.name, seen[0][1]
                continue
            target = parameter.target
            if target is None:
                target = torch.empty(parameter.shape, dtype=getattr(torch, parameter.dtype), device=self.device)
            for region, tensor in seen:
                target[slices(region, parameter.home)].copy_(tensor)
            if parameter.target is None:
                yield parameter.name, target

    def _tell(self, pull: Pull, node: str) -> None:
        routes = pull.routes()
        self.routes = sorted({*self.routes, *routes})
        news = (node, tuple(routes), bool(pull.copied))
        if news not in self._told:
            self._told.add(news)
            how = "which copied them first: they were in no memory that its daemon sees" if pull.copied else "without a copy"
            log.info("weights from node %s come by route %s, %s", node, "+".join(routes), how)

    def shutdown(self) -> None:
        """In good order: a worker that goes without it has died. Twice is once. Raises nothing."""
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.done()
            presence.close()
        session, self._session = self._session, None
        if session is not None:
            session.close()


def _by_rank(bucket: Sequence[_Wanted]) -> _Bucket:
    made: _Bucket = {}
    for wanted in bucket:
        made.setdefault(wanted.rank, []).append(wanted)
    return made


def hash_of(text: str) -> int:
    return sum(text.encode())


def _nested(ranks: Sequence[int], shape: Sequence[int]) -> list[Any]:
    if len(shape) <= 1:
        return list(ranks)
    each = len(ranks) // shape[0]
    return [_nested(ranks[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0])]
