# SPDX-License-Identifier: Apache-2.0
"""For PyTorch: a pool of GPU memory that Ferry sends without a copy, and tensors of torch.distributed.tensor.

CUDA tensors themselves need nothing of this module: ``Session.send`` and ``recv`` take them. docs/python.md.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from ferry import _abi
from ferry._future import Future
from ferry._memory import blocks_of, shape_of, view_of
from ferry._post import Ranges, place_of
from ferry._session import DeviceLike, Session
from ferry._tree import Key, key_of, path_key
from ferry.errors import check, invalid, take

_MOST_RANGES = 20_000  # of one transfer: what a call holds
_lock = threading.Lock()
_allocator: Any = None


def mem_pool(device: Any = None) -> Any:
    """A torch.cuda.MemPool over ``ferry_cuda_malloc``, on `device` (None: the current one): what is allocated there under
    ``torch.cuda.use_mem_pool`` goes without a copy and without an import. The daemon is that of $FERRY_CLIENT_DIR, as of
    ``ferry.Session()``.

    UnavailableError if there is none. An allocation that fails is a torch.cuda.OutOfMemoryError, with what Ferry says: how
    much is free, and which sessions hold most.
    """
    global _allocator
    import torch

    if not hasattr(torch.cuda, "MemPool"):
        raise ImportError(f"PyTorch {torch.__version__} has no torch.cuda.MemPool: 2.5 or later has")
    session = ctypes.c_void_p()
    check(_abi.library().ferry_cuda_session(ctypes.byref(session)))
    with _lock:
        if _allocator is None:
            path = _abi.library_path()
            _allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "ferry_cuda_malloc", "ferry_cuda_free")
            attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                torch.cuda.init()
                attach(_out_of_memory)
    with torch.cuda.device(device):
        return torch.cuda.MemPool(_allocator.allocator())


def _out_of_memory(device: int, wanted: int, allocated: int, free: int) -> None:
    """Called by torch as it gives up an allocation, on the thread of that. What it raises takes the place of torch's text."""
    import torch

    lib = _abi.library()
    error = take(lib.ferry_cuda_malloc_status())
    if error is not None:
        lib.ferry_cuda_malloc(0, device, None)  # so that the next one, of another pool, is not told the same
        raise torch.cuda.OutOfMemoryError(f"ferry.torch.mem_pool: {error}")


class Region(NamedTuple):
    """A box of a tensor: where it begins, and its size, in each dimension."""

    offset: tuple[int, ...]
    size: tuple[int, ...]


class Layout:
    """Which part of a tensor each rank has, as torch.distributed.tensor places it. Arithmetic alone: no process group.

    shape: of the whole tensor. mesh: the ranks, nested lists of them for a mesh of several dimensions. placements: one for each
    dimension of the mesh: a ``Shard`` or ``Replicate`` of torch's, or the dimension that is sharded, or None.
    """

    def __init__(self, shape: Any, mesh: Any, placements: Sequence[Any]) -> None:
        self.shape = shape_of(shape)
        mesh = mesh.tolist() if hasattr(mesh, "tolist") else mesh
        self.mesh_shape, self.ranks = _flat(mesh)
        self.placements = tuple(_dimension(placement, len(self.shape)) for placement in placements)
        if len(self.placements) != len(self.mesh_shape):
            raise invalid(f"a mesh of {len(self.mesh_shape)} dimensions with {len(self.placements)} placements", "placements")
        if len(set(self.ranks)) != len(self.ranks):
            raise invalid("a rank is in the mesh twice", "mesh")

    @classmethod
    def of(cls, tensor: Any) -> Layout:
        """Of a DTensor."""
        return cls(tuple(tensor.shape), tensor.device_mesh.mesh, tensor.placements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def region(self, rank: int) -> Region:
        """What `rank` has. The last ranks of a dimension may have less than the others, or nothing."""
        if rank not in self.ranks:
            raise invalid(f"rank {rank} is not in the mesh of ranks {self.ranks}", "rank")
        place = self.ranks.index(rank)
        offset, size = [0] * len(self.shape), list(self.shape)
        for i, dimension in enumerate(self.placements):
            count = self.mesh_shape[i]
            coordinate = place // math.prod(self.mesh_shape[i + 1 :]) % count
            if dimension is None:
                continue
            each = -(-size[dimension] // count)
            begin = min(size[dimension], each * coordinate)
            offset[dimension] += begin
            size[dimension] = min(each, size[dimension] - begin)
        return Region(tuple(offset), tuple(size))

    def pieces(self, other: Layout) -> Iterator[tuple[int, int, Region]]:
        """(rank that has it, rank of `other` that needs it, what) of all that must move for `other`: the same at both ends. Of
        ranks that have the same, each is asked by some of the others."""
        if self.shape != other.shape:
            raise invalid(f"a tensor of shape {self.shape} cannot become one of shape {other.shape}", "shape")
        holders: dict[Region, list[int]] = {}
        for rank in self.ranks:
            holders.setdefault(self.region(rank), []).append(rank)
        for i, needs in enumerate(other.ranks):
            wanted = other.region(needs)
            for region, ranks in holders.items():
                common = _common(region, wanted)
                if common is not None:
                    yield ranks[i % len(ranks)], needs, common


def _flat(mesh: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(mesh, (list, tuple)):
        return (), (int(mesh),)
    parts = [_flat(part) for part in mesh]
    if not parts or len({shape for shape, _ in parts}) != 1:
        raise invalid("a mesh is nested lists of ranks, of the same length in each dimension", "mesh")
    return (len(parts), *parts[0][0]), tuple(itertools.chain.from_iterable(ranks for _, ranks in parts))


def _dimension(placement: Any, dimensions: int) -> Optional[int]:
    if placement is None or getattr(placement, "is_replicate", bool)():
        return None
    made = placement if isinstance(placement, int) else getattr(placement, "dim", None)
    if made is None or getattr(placement, "is_partial", bool)() or getattr(placement, "split_factor", 1) != 1:
        raise invalid(f"{placement} says not which bytes a rank has: redistribute to Shard and Replicate first", "placements")
    if not -dimensions <= made < dimensions:
        raise invalid(f"a tensor of {dimensions} dimensions has no dimension {made}", "placements")
    return int(made % dimensions)


def _common(a: Region, b: Region) -> Optional[Region]:
    begin = [max(pair) for pair in zip(a.offset, b.offset, strict=True)]
    ends = [
        min(first + some, second + others)
        for first, some, second, others in zip(a.offset, a.size, b.offset, b.size, strict=True)
    ]
    size = tuple(end - start for start, end in zip(begin, ends, strict=True))
    return Region(tuple(begin), size) if all(one > 0 for one in size) else None


Devices = Union[Mapping[int, DeviceLike], Sequence[DeviceLike]]


def send_shards(
    session: Session,
    tensor: Any,
    *,
    to: Layout,
    devices: Devices,
    key: Key,
    layout: Optional[Layout] = None,
    rank: Optional[int] = None,
    **options: Any,
) -> Future[None]:
    """Sends of a DTensor what its rank has and ranks of layout `to` need: one transfer for each of these. `devices` are theirs,
    by rank. Of a plain tensor, `layout` and `rank` say which part of which it is. `options` are those of ``Session.send``."""
    local, layout, rank = _local(tensor, layout, rank)
    home = layout.region(rank)
    shared = place_of(session, view_of(local)) is not None
    futures = []
    for source, needs, region in layout.pieces(to):
        if source == rank:
            piece = _piece(local, home, region, copies=not shared)
            futures.append(session.send(piece, to=devices[needs], key=_piece_key(key, source, needs), **options))
    return Future([post for future in futures for post in future._posts], None, sum(future.copied_bytes for future in futures))


def recv_shards(
    session: Session,
    tensor: Any,
    *,
    frm: Layout,
    devices: Devices,
    key: Key,
    layout: Optional[Layout] = None,
    rank: Optional[int] = None,
    **options: Any,
) -> Future[Any]:
    """The other end: into a DTensor, or a plain tensor that `layout` and `rank` describe, in memory that the daemon sees, from
    ranks of layout `frm`, whose devices `devices` are. The future's result is `tensor`."""
    local, layout, rank = _local(tensor, layout, rank)
    home = layout.region(rank)
    futures = []
    for source, needs, region in frm.pieces(layout):
        if needs == rank:
            piece = _piece(local, home, region, copies=False)
            futures.append(session.recv(into=piece, frm=devices[source], key=_piece_key(key, source, needs), **options))
    return Future([post for future in futures for post in future._posts], tensor)


def _local(tensor: Any, layout: Optional[Layout], rank: Optional[int]) -> tuple[Any, Layout, int]:
    if hasattr(tensor, "to_local"):
        mesh = tensor.device_mesh
        return tensor.to_local(), Layout.of(tensor), int(mesh.get_rank()) if rank is None else rank
    if layout is None or rank is None:
        raise invalid("of a plain tensor layout= and rank= say which part of which it is", "layout")
    if tuple(tensor.shape) != layout.region(rank).size:
        raise invalid(f"rank {rank} has a part of shape {layout.region(rank).size}, not {tuple(tensor.shape)}", "tensor")
    return tensor, layout, rank


def _piece_key(key: Key, source: int, needs: int) -> bytes:
    return path_key(key_of(key), (f"{source}-{needs}",))


def _piece(local: Any, home: Region, region: Region, copies: bool) -> Any:
    """Of a local tensor what `send` and `recv` take: a view, or its runs of bytes as ranges."""
    view: Any = local[
        tuple(
            slice(begin - base, begin - base + size)
            for begin, base, size in zip(region.offset, home.offset, region.size, strict=True)
        )
    ]
    if copies:
        return view.contiguous() if hasattr(view, "contiguous") else view.copy()
    try:
        blocks_of(view_of(view))
        return view
    except ValueError:  # not of one stride
        runs = list(_runs(view))
    if len(runs) > _MOST_RANGES:
        raise invalid(f"the part {region} of a tensor is {len(runs)} runs of bytes: send it in a contiguous copy", "tensor")
    return Ranges(runs)


def _runs(view: Any) -> Iterator[Any]:
    """The views of a view whose elements follow each other, in order."""
    try:
        if blocks_of(view_of(view))[2] == 1:
            yield view
            return
    except ValueError:
        pass
    for part in view:
        yield from _runs(part)
