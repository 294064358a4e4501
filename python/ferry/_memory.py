# SPDX-License-Identifier: Apache-2.0
"""Memory: arenas, tensors over them, and how arrays of others are described."""

from __future__ import annotations

import bisect
import ctypes
import math
import operator
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

from ferry import _abi, _buffer, _cuda, _dlpack, _dtypes
from ferry._dtypes import DType, dtype_of
from ferry.errors import UnimplementedError, check, invalid

Shape = Union[int, Sequence[int]]
ALIGNMENT = 256


def shape_of(shape: Shape) -> tuple[int, ...]:
    try:
        dims = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(operator.index(dim) for dim in shape)
    except TypeError:
        raise invalid(f"a shape is an integer or a sequence of them, not {shape!r}", "shape") from None
    if any(dim < 0 for dim in dims):
        raise invalid(f"shape {dims} has a negative dimension", "shape")
    return dims


class Arena:
    """One allocation that the daemon sees too, freed with its last tensor. `address` is of this process. `keeps`: whose handle
    it is, if it is not this one's to free. `ordinal`: the GPU's in this process, -1 of host memory. `lane`: the stream that
    copies into it, for which alone it may be used again; `events`: over when no stream uses it any more, None: unknown."""

    def __init__(self, session: Any, handle: int, device: int, nbytes: int, keeps: Any = None) -> None:
        lib = _abi.library()
        self.session, self.handle, self.device, self.nbytes, self.keeps = session, handle, device, nbytes, keeps
        self.address: int = lib.ferry_arena_data(handle) or 0
        self.ordinal: int = lib.ferry_arena_cuda_device(handle)
        self.lane: Optional[int] = None
        self.events: Optional[list[int]] = None
        self._free, self._settle, self._pid = lib.ferry_arena_free, _cuda.settle, os.getpid()
        self._ending = sys.is_finalizing

    def __del__(self) -> None:
        if self._pid != os.getpid() or self.keeps is not None:  # in a child of fork the mapping is left as it is
            return
        if self.ordinal >= 0:
            if self._ending():  # CUDA may be gone, and memory goes with the process
                return
            self._settle(self.ordinal, self.events)  # what streams still do with it must be over before it is unmapped
        self._free(self.handle)


class ArenaMap:
    """The arenas of a session by address, so that views which others made of them are found again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._arenas: list[weakref.ref[Arena]] = []

    def add(self, arena: Arena) -> None:
        if not arena.nbytes:
            return
        with self._lock:
            dead = [i for i, known in enumerate(self._arenas) if known() is None]
            for i in reversed(dead):
                del self._starts[i], self._arenas[i]
            place = bisect.bisect_left(self._starts, arena.address)
            self._starts.insert(place, arena.address)
            self._arenas.insert(place, weakref.ref(arena))

    def find(self, address: int, nbytes: int) -> Optional[Arena]:
        with self._lock:
            place = bisect.bisect_right(self._starts, address) - 1
            arena = self._arenas[place]() if place >= 0 else None
        if arena is None or address + nbytes > arena.address + arena.nbytes:
            return None
        return arena


class Tensor:
    """A row-major tensor in an arena: what `Session.empty` and `Session.recv` give.

    ``numpy.asarray``, ``torch.from_dlpack``, ``jax.dlpack.from_dlpack`` and everything else that takes ``__dlpack__`` or
    ``__array_interface__`` sees the same bytes, without a copy, and keeps the arena. `device` is Ferry's global id.
    """

    __slots__ = ("__weakref__", "_arena", "_dtype", "_offset", "nbytes", "shape")

    def __init__(self, arena: Arena, offset: int, shape: tuple[int, ...], dtype: DType) -> None:
        self._arena, self._offset, self._dtype, self.shape = arena, offset, dtype, shape
        self.nbytes = (math.prod(shape) * dtype.bits + 7) // 8

    @property
    def dtype(self) -> str:
        """The element type's name, such as ``"bfloat16"``."""
        return self._dtype.name

    @property
    def device(self) -> int:
        """Ferry's global id of the device that it is on."""
        return self._arena.device

    @property
    def address(self) -> int:
        """Where the first byte is in this process."""
        return self._arena.address + self._offset

    def __repr__(self) -> str:
        return f"ferry.Tensor(shape={self.shape}, dtype={self.dtype!r}, device={self.device})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return self.shape[0]

    def __getitem__(self, rows: Union[int, slice]) -> Tensor:
        """Rows along the first dimension, over the same bytes: an index, or a slice of step 1."""
        if not isinstance(rows, slice) and not hasattr(rows, "__index__"):
            raise invalid(f"a tensor is indexed along its first dimension alone, not by {rows!r}: see .numpy()", "index")
        row = self.nbytes // self.shape[0] if self.shape and self.shape[0] else 0
        if not self.shape or (self._dtype.bits < 8 and row * 8 != math.prod(self.shape[1:]) * self._dtype.bits):
            raise invalid(f"{self!r} has no rows of whole bytes", "index")
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[0])
            if step != 1:
                raise invalid("rows of a tensor are taken by a step of 1; for others see ferry.Blocks", "index")
            return Tensor(self._arena, self._offset + start * row, (max(0, stop - start), *self.shape[1:]), self._dtype)
        index = range(self.shape[0])[rows]  # IndexError, as of a list
        return Tensor(self._arena, self._offset + index * row, self.shape[1:], self._dtype)

    def view(self, shape: Shape, dtype: Any = None, offset: int = 0) -> Tensor:
        """`shape` of `dtype` (this one's if None) over the same bytes from byte `offset`. InvalidArgumentError if they are not
        inside."""
        kind = self._dtype if dtype is None else dtype_of(dtype)
        made = Tensor(self._arena, self._offset + offset, shape_of(shape), kind)
        if offset < 0 or offset + made.nbytes > self.nbytes:
            raise invalid(f"{made.nbytes} bytes from {offset} are not inside a tensor of {self.nbytes}", "offset")
        return made

    @property
    def memory(self) -> memoryview:
        """The bytes, writable; host devices only."""
        self._host("memory")
        if not self.nbytes:
            return memoryview(bytearray())
        raw = (ctypes.c_ubyte * self.nbytes).from_address(self.address)
        raw._owner = self  # type: ignore[attr-defined]
        return memoryview(raw).cast("B")

    def numpy(self) -> Any:
        """The same bytes as a NumPy array, bfloat16 and float8 by ml_dtypes. Of float4, which NumPy has one a byte and
        Ferry two, a copy. UnimplementedError of a GPU's."""
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        import numpy

        kind = _dtypes.numpy_dtype(self._dtype)
        other = dtype is not None and numpy.dtype(dtype) != kind
        if copy is False and (other or self._dtype.bits < 8):
            raise ValueError(f"{self!r} as an array of {dtype or kind} is a copy")
        if self._dtype.bits < 8:
            made = unpacked(self.memory, math.prod(self.shape)).view(kind).reshape(self.shape)
        elif not self.nbytes:
            made = numpy.empty(self.shape, kind)
        else:
            made = numpy.frombuffer(self.memory, dtype=kind).reshape(self.shape)
        if other:
            return made.astype(dtype)
        return made.copy() if copy else made

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if not self._dtype.typestr or self._arena.session.is_gpu(self.device):
            raise AttributeError("__array_interface__")
        return self._interface()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._dtype.typestr or not self._arena.session.is_gpu(self.device):
            raise AttributeError("__cuda_array_interface__")
        return self._interface()

    def _interface(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self._dtype.typestr,
            "data": (self.address, False),
            "strides": None,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        ordinal = self._arena.ordinal
        return (_dlpack.CPU, 0) if ordinal < 0 else (_dlpack.CUDA, ordinal)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[tuple[int, int]] = None,
        dl_device: Optional[tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        if self._dtype.dlpack is None:
            raise BufferError(f"DLPack has no name for {self.dtype}")
        if copy:
            raise BufferError("Ferry gives its memory as it is, without a copy")
        versioned = max_version is not None and max_version >= (1, 0)
        return _dlpack.capsule(self.address, self.__dlpack_device__(), self.shape, self._dtype.dlpack, self, versioned)

    def _host(self, what: str) -> None:
        if self._arena.session.is_gpu(self.device):
            raise UnimplementedError(f"a GPU's tensor has no {what}: see it by torch.from_dlpack, or copy it to the host")


class View(NamedTuple):
    """An array of somebody else: `strides` in bytes, None for row-major. `owner` keeps it. `unpacked`: one element of
    4 bits a byte, as ml_dtypes has them. `ordinal`: the GPU's in this process that it is on."""

    address: int
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    dtype: DType
    owner: Any
    unpacked: bool = False
    ordinal: int = -1

    @property
    def nbytes(self) -> int:
        """As it is sent."""
        return (math.prod(self.shape) * self.dtype.bits + 7) // 8


def packed(view: View) -> Any:
    """The bytes of an unpacked view, two elements each, the first in the lower half."""
    import numpy

    each = numpy.ascontiguousarray(view.owner).view("u1").reshape(-1) & 15
    if len(each) % 2:
        each = numpy.append(each, numpy.uint8(0))
    return each[0::2] | each[1::2] << 4


def unpacked(memory: memoryview, elements: int) -> Any:
    """The other way: `elements` bytes."""
    import numpy

    both = numpy.frombuffer(memory, "u1") if memory.nbytes else numpy.empty(0, "u1")
    made: Any = numpy.empty(2 * len(both), "u1")
    made[0::2], made[1::2] = both & 15, both >> 4
    return made[:elements]


def view_of(array: Any) -> View:
    """A Tensor, a torch tensor of the CPU or a CUDA GPU, a NumPy or JAX array in host memory, anything else with
    ``__array_interface__`` or ``__dlpack__``, and bytes, memoryview and other contiguous buffers."""
    if isinstance(array, Tensor):
        return View(array.address, array.shape, None, array._dtype, array, ordinal=array._arena.ordinal)
    if getattr(array, "device_mesh", None) is not None and hasattr(array, "placements"):
        raise invalid(
            "a DTensor has its bytes in several processes: ferry.torch.send_shards and recv_shards move them, whatever the "
            "placements of the other end; or give its to_local()",
            "tensor",
        )
    if getattr(array, "is_cuda", False) and hasattr(array, "data_ptr"):
        return _cuda_view(array)
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise invalid(
            "a masked array is two: its elements, and which of them count, and the mask would be lost: send .filled(value), or "
            "a dict of its .data and .mask",
            "tensor",
        )
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):
        array = numpy.asarray(array)  # the interface of a scalar is that of memory which is gone at once
    interface = getattr(array, "__array_interface__", None)
    if interface is not None and isinstance(interface.get("data"), tuple):
        kind = getattr(array, "dtype", None)
        named = _numpy_dtypes.get(kind) if numpy is not None and isinstance(kind, numpy.dtype) else None
        if named is None:
            named = _interface_dtype(kind, interface["typestr"])
            if numpy is not None and isinstance(kind, numpy.dtype):
                _numpy_dtypes[kind] = named
        shape, strides = tuple(interface["shape"]), interface.get("strides")
        return View(interface["data"][0], shape, strides, named, array, named.bits < 8)
    if not hasattr(array, "__dlpack__"):
        return _buffer_view(array)
    if getattr(array, "requires_grad", False):
        array = array.detach()
    kind, ordinal = array.__dlpack_device__()
    if kind != _dlpack.CPU:
        raise UnimplementedError(
            f"the tensor is on DLPack device {int(kind)}:{ordinal}; this package takes tensors of host memory, and "
            "PyTorch's of CUDA GPUs: torch.from_dlpack makes one of it, if it is on such a GPU; else copy it to the host"
        )
    said = _dlpack.describe(array)
    dtype = _dtypes.BY_DLPACK.get(said.dlpack)
    if dtype is None:
        raise invalid(f"elements of DLPack type {said.dlpack} have no type of Ferry: convert the tensor", "tensor")
    strides = None if said.strides is None else tuple(stride * dtype.bits // 8 for stride in said.strides)
    return View(said.address, said.shape, strides, dtype, (array, said.owner))


_torch_dtypes: dict[Any, DType] = {}
_numpy_dtypes: dict[Any, DType] = {}  # NumPy makes a type's name anew each time


def _interface_dtype(kind: Any, typestr: str) -> DType:
    named = _dtypes.BY_NAME.get(getattr(kind, "name", "")) or _dtypes.BY_TYPESTR.get(typestr)
    if named is None or typestr.startswith(">"):
        raise invalid(f"elements of {kind or typestr} have no type of Ferry: convert the array (.astype)", "tensor")
    return named


def _cuda_view(tensor: Any) -> View:
    """Of torch, as it is: nothing waits for a stream."""
    if tensor.is_conj() or tensor.is_neg():
        raise invalid("the tensor's bytes are not its values: .resolve_conj() or .resolve_neg() it first", "tensor")
    layout = tensor.layout
    if layout is not getattr(sys.modules.get("torch"), "strided", None) and "strided" not in str(layout):
        raise invalid(f"a tensor of layout {layout} is no bytes in a row: send what it is made of", "tensor")
    strides = None  # as of most
    if not tensor.is_contiguous():
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
    kind = tensor.dtype
    dtype = _torch_dtypes.get(kind) or _torch_dtypes.setdefault(kind, dtype_of(kind))
    return View(tensor.data_ptr(), tuple(tensor.shape), strides, dtype, tensor, ordinal=tensor.get_device())


def _buffer_view(array: Any) -> View:
    try:
        buffer = _buffer.Buffer(array)
    except (TypeError, BufferError):
        raise invalid(
            f"a {type(array).__name__} is no tensor: it has neither __array_interface__ nor __dlpack__, nor is it a "
            "contiguous buffer; give a NumPy, torch or JAX array, a tensor of Session.empty, or bytes",
            "tensor",
        ) from None
    dtype = _dtypes.BY_FORMAT.get((buffer.format, buffer.itemsize))
    if dtype is None:
        raise invalid(f"elements of the format {buffer.format!r} have no type of Ferry: cast the memoryview", "tensor")
    return View(buffer.address, buffer.shape, None, dtype, buffer)


def blocks_of(view: View) -> tuple[int, int, int]:
    """A view as (bytes of a block, bytes from the start of one to the next, blocks): one block if its elements follow
    each other. FIELD_INVALID if it is neither that nor blocks of one stride."""
    item = view.dtype.bits // 8
    if view.strides is None or not math.prod(view.shape):
        return view.nbytes, view.nbytes, 1
    block, count, stride = item, 1, 0
    for size, step in reversed(list(zip(view.shape, view.strides, strict=True))):
        if size == 1:
            continue
        if count == 1 and step == block:
            block *= size
        elif count == 1 and step > block:
            count, stride = size, step
        elif count > 1 and step == count * stride:
            count *= size
        else:
            raise invalid(
                f"the elements of shape {view.shape}, strides {view.strides} bytes neither follow each other nor are "
                "blocks of one stride: make it contiguous (numpy.ascontiguousarray, .contiguous())",
                "tensor",
            )
    return block, stride or block, count


def make_arena(session: Any, device: int, nbytes: int) -> Arena:
    handle = ctypes.c_void_p()
    check(_abi.library().ferry_arena_create(session.handle, device, max(1, nbytes), 0, ctypes.byref(handle)))
    assert handle.value is not None
    arena = Arena(session, handle.value, device, max(1, nbytes))
    session.arenas.add(arena)
    return arena


def make_tensors(session: Any, device: int, wanted: Sequence[tuple[tuple[int, ...], DType]]) -> list[Tensor]:
    """New tensors in one arena, each at a multiple of 256 bytes."""
    ends = 0
    offsets = []
    for shape, dtype in wanted:
        offsets.append(ends)
        nbytes = (math.prod(shape) * dtype.bits + 7) // 8
        ends += -(-nbytes // ALIGNMENT) * ALIGNMENT
    arena = make_arena(session, device, ends)
    return [Tensor(arena, offset, shape, dtype) for offset, (shape, dtype) in zip(offsets, wanted, strict=True)]
