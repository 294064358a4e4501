# SPDX-License-Identifier: Apache-2.0
"""For PyTorch: a pool of GPU memory that Ferry sends without a copy, and tensors of torch.distributed.tensor.

CUDA tensors themselves need nothing of this module: ``Session.send`` and ``recv`` take them. docs/python.md.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from ferry import _abi
from ferry._devices import DeviceLike
from ferry._future import Future
from ferry._layout import Layout, Region, piece
from ferry._post import place_of
from ferry._session import Session
from ferry._tree import Key, key_of, path_key
from ferry._views import view_of
from ferry.errors import check, invalid, take

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
            part = piece(local, home, region, copies=not shared)
            futures.append(session.send(part, to=devices[needs], key=_piece_key(key, source, needs), **options))
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
            part = piece(local, home, region, copies=False)
            futures.append(session.recv(into=part, frm=devices[source], key=_piece_key(key, source, needs), **options))
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


__all__ = ["Layout", "Region", "mem_pool", "recv_shards", "send_shards"]
