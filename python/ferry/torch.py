# SPDX-License-Identifier: Apache-2.0
"""For PyTorch: a pool of GPU memory that Ferry sends without a copy, and tensors of torch.distributed.tensor.

CUDA tensors themselves need nothing of this module: ``Session.send`` and ``recv`` take them. docs/python.md.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional, Union

from ferry import _abi
from ferry._calls import Calls
from ferry._devices import DeviceLike
from ferry._future import Future, joined
from ferry._imports import cuda_session
from ferry._layout import Layout, Region, piece
from ferry._memory import Tensor
from ferry._post import place_of
from ferry._session import Session
from ferry._tree import Key, key_of, path_key
from ferry._views import view_of
from ferry.errors import FerryError, invalid, take

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
    calls = Calls()
    try:
        calls(cuda_session)
    finally:
        calls.close(0)
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
    by rank. Of a plain tensor, `layout` and `rank` say which part of which it is. `options` are those of ``Session.send``.

    Raises: what ``Session.send`` does; InvalidArgumentError too for a rank that has no device or is in no layout, for layouts
    of different shapes, and for a tensor that is not its rank's part. What was posted then is cancelled.
    """
    local, layout, rank = _local(tensor, layout, rank)
    home = layout.region(rank)
    parts = [(needs, region) for source, needs, region in layout.pieces(to) if source == rank]
    there = _devices(devices, [needs for needs, _ in parts])
    shared = place_of(session, view_of(local)) is not None
    futures: list[Future[Any]] = []
    with _all_or_nothing(futures):
        for needs, region in parts:
            part = piece(local, home, region, copies=not shared)
            futures.append(session.send(part, to=there[needs], key=_piece_key(key, rank, needs), **options))
    return joined(futures, None)


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
    ranks of layout `frm`, whose devices `devices` are. The future's result is `tensor`. Raises what `send_shards` does, and
    InvalidArgumentError for memory that the daemon does not see."""
    local, layout, rank = _local(tensor, layout, rank)
    home = layout.region(rank)
    parts = [(source, region) for source, needs, region in frm.pieces(layout) if needs == rank]
    there = _devices(devices, [source for source, _ in parts])
    futures: list[Future[Any]] = []
    with _all_or_nothing(futures):
        for source, region in parts:
            part = piece(local, home, region, copies=False)
            futures.append(session.recv(into=part, frm=there[source], key=_piece_key(key, source, rank), **options))
    return joined(futures, tensor)


def _devices(devices: Devices, ranks: Sequence[int]) -> dict[int, DeviceLike]:
    """Those of the ranks, each of which must have one."""
    given = devices if isinstance(devices, Mapping) else dict(enumerate(devices))
    missing = sorted(set(ranks) - set(given))
    if missing:
        raise invalid(
            f"devices has none for rank {', '.join(map(str, missing))}, which has its part at the other end", "devices"
        )
    return {rank: given[rank] for rank in ranks}


@contextlib.contextmanager
def _all_or_nothing(futures: Sequence[Future[Any]]) -> Iterator[None]:
    """What was posted is cancelled, at both ends, if the rest is refused."""
    try:
        yield
    except BaseException:
        for future in futures:
            with contextlib.suppress(FerryError):  # which is not what is told
                future.cancel()
        raise


def _local(tensor: Any, layout: Optional[Layout], rank: Optional[int]) -> tuple[Any, Layout, int]:
    if hasattr(tensor, "to_local"):
        mesh = tensor.device_mesh
        return tensor.to_local(), Layout.of(tensor), int(mesh.get_rank()) if rank is None else rank
    if layout is None or rank is None:
        raise invalid("of a plain tensor layout= and rank= say which part of which it is", "layout")
    if tuple(tensor.shape) != layout.region(rank).size:
        raise invalid(f"rank {rank} has a part of shape {layout.region(rank).size}, not {tuple(tensor.shape)}", "tensor")
    return _sliceable(tensor), layout, rank


def _sliceable(tensor: Any) -> Any:
    """A tensor of Session.empty, which has rows alone, as one of PyTorch's or NumPy's over the same bytes."""
    if not isinstance(tensor, Tensor):
        return tensor
    return sys.modules["torch"].from_dlpack(tensor) if tensor._arena.ordinal >= 0 else tensor.numpy()


def _piece_key(key: Key, source: int, needs: int) -> bytes:
    return path_key(key_of(key), (f"{source}-{needs}",))


__all__ = ["Layout", "Region", "mem_pool", "recv_shards", "send_shards"]
