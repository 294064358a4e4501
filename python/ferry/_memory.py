# SPDX-License-Identifier: Apache-2.0
"""Memory: arenas, and tensors over them."""

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
from typing import Any, Optional, Union

from ferry import _abi, _cuda, _dlpack, _dtypes
from ferry._dtypes import DType, dtype_of
from ferry.errors import UnimplementedError, check, invalid

Shape = Union[int, Sequence[int]]
ALIGNMENT = 256
_AS_ARRAY = "a ferry.Tensor becomes an array by numpy.asarray, torch.from_dlpack or jax.numpy.asarray, without a copy"
_MOST = 2**63 - 1  # bytes, and elements of a dimension: beyond it ctypes would take another number without a word


def shape_of(shape: Shape) -> tuple[int, ...]:
    """InvalidArgumentError for what is no shape. An array of integers, NumPy's or torch's, is one too."""
    try:
        if isinstance(shape, (str, bytes, bytearray)):
            raise TypeError
        one = not hasattr(shape, "__iter__") or getattr(shape, "ndim", 1) == 0
        dims = (operator.index(shape),) if one else tuple(operator.index(dim) for dim in shape)  # type: ignore[arg-type,union-attr]
    except TypeError:
        raise invalid(f"a shape is an integer or a sequence of them, not {shape!r}", "shape") from None
    if any(dim < 0 for dim in dims):
        raise invalid(f"shape {dims} has a negative dimension", "shape")
    if any(dim > _MOST for dim in dims):
        raise invalid(f"shape {dims} has a dimension beyond 2^63 - 1", "shape")
    return dims


class Arena:
    """One allocation that the daemon sees too, freed with its last tensor.

    address: of this process.
    keeps: whose handle it is, if it is not this one's to free.
    place: address and ordinal; None: the library is asked.
    ordinal: the GPU's in this process, -1 of host memory.
    lane: the stream that copies into it, for which alone it may be used again.
    events: over when no stream uses it any more; None: unknown.
    """

    _getpid = staticmethod(os.getpid)  # of its own: at the interpreter's end it may go after its module's names
    _pid = 0  # of the class, for one that was never begun

    def __init__(
        self,
        session: Any,
        handle: int,
        device: int,
        nbytes: int,
        keeps: Any = None,
        place: Optional[tuple[int, int]] = None,
    ) -> None:
        lib = _abi.library()
        self.session, self.handle, self.device, self.nbytes, self.keeps = session, handle, device, nbytes, keeps
        if place is None:
            place = lib.ferry_arena_data(handle) or 0, lib.ferry_arena_cuda_device(handle)
        self.address, self.ordinal = place
        self.lane: Optional[int] = None
        self.events: Optional[list[int]] = None
        self._free, self._settle, self._pid = lib.ferry_arena_free, _cuda.settle, os.getpid()
        self._dispose = session.calls.dispose
        self._ending = sys.is_finalizing

    def __del__(self) -> None:
        if self._pid != self._getpid() or self.keeps is not None:  # in a child of fork the mapping is left as it is
            return
        # An ArenaMap finds this arena until __del__ returns: without a session it is not taken for memory of the session, since
        # its address may be somebody else's by then.
        self.session = None
        if self.ordinal >= 0:
            if self._ending():  # CUDA may be gone, and memory goes with the process
                return
            self._settle(self.ordinal, self.events)  # what streams still do with it must be over before it is unmapped
        self._dispose(self._free, self.handle)


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
        self.nbytes = dtype.nbytes(shape)

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

    def __reduce__(self) -> Any:
        raise TypeError("a ferry.Tensor is memory of this process and its daemon: send it, or pickle its .numpy()")

    def __copy__(self) -> Tensor:
        return Tensor(self._arena, self._offset, self.shape, self._dtype)

    def __deepcopy__(self, memo: Any) -> Tensor:
        """A tensor of its own, on the same host device. UnimplementedError of a GPU's."""
        self._host("deepcopy")
        (made,) = make_tensors(self._arena.session, self.device, [(self.shape, self._dtype)])
        made.memory[:] = self.memory
        return made

    def __repr__(self) -> str:
        return f"ferry.Tensor(shape={self.shape}, dtype={self.dtype!r}, device={self.device})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"a scalar has no length; {_AS_ARRAY}")
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

    def __setitem__(self, rows: Any, values: Any) -> None:
        """Writes where NumPy would: host devices only."""
        if self._dtype.bits < 8:
            raise invalid(f"{self!r} has no elements of whole bytes to be written one by one: see .memory", "index")
        self._host("assignment")
        self.numpy()[rows] = values

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

    def __jax_array__(self) -> Any:
        """For ``jax.numpy.asarray`` and other functions of JAX: the same bytes, which JAX takes to be immutable."""
        import jax

        return jax.dlpack.from_dlpack(self)

    def item(self) -> Any:
        """The one element, as a number of Python's. ValueError if there are several; UnimplementedError of a GPU's."""
        return self.numpy().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

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
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(
                f"the tensor is on DLPack device {self.__dlpack_device__()}, not {tuple(dl_device)}: copy it there"
            )
        if self._dtype.dlpack is None:
            raise BufferError(f"DLPack has no name for {self.dtype}")
        if copy:
            raise BufferError("Ferry gives its memory as it is, without a copy")
        versioned = max_version is not None and max_version >= (1, 0)
        return _dlpack.capsule(self.address, self.__dlpack_device__(), self.shape, self._dtype.dlpack, self, versioned)

    def _host(self, what: str) -> None:
        if self._arena.session.is_gpu(self.device):
            raise UnimplementedError(f"a GPU's tensor has no {what}: see it by torch.from_dlpack, or copy it to the host")


def unpacked(memory: memoryview, elements: int) -> Any:
    """Elements of 4 bits, two a byte, the first in the lower half, as `elements` bytes."""
    import numpy

    both = numpy.frombuffer(memory, "u1") if memory.nbytes else numpy.empty(0, "u1")
    made: Any = numpy.empty(2 * len(both), "u1")
    made[0::2], made[1::2] = both & 15, both >> 4
    return made[:elements]


def make_arena(session: Any, device: int, nbytes: int) -> Arena:
    made: Arena = session.calls(_make_arena, session, device, nbytes)
    return made


def _make_arena(session: Any, device: int, nbytes: int) -> Arena:
    handle = ctypes.c_void_p()
    check(_abi.library().ferry_arena_create(session.handle, device, max(1, nbytes), 0, ctypes.byref(handle)))
    assert handle.value is not None
    arena = Arena(session, handle.value, device, max(1, nbytes))
    session.arenas.add(arena)
    return arena


def make_tensors(session: Any, device: int, wanted: Sequence[tuple[tuple[int, ...], DType]]) -> list[Tensor]:
    """New tensors in one arena, each at a multiple of 256 bytes. InvalidArgumentError for 2^63 bytes or more."""
    ends = 0
    offsets = []
    for shape, dtype in wanted:
        offsets.append(ends)
        nbytes = dtype.nbytes(shape)
        ends += -(-nbytes // ALIGNMENT) * ALIGNMENT
        if ends > _MOST:
            others = f", {ends} with those before it" if len(offsets) > 1 else ""
            raise invalid(f"shape {shape} of {dtype.name} is {nbytes} bytes{others}: no memory has 2^63", "shape")
    arena = make_arena(session, device, ends)
    return [Tensor(arena, offset, shape, dtype) for offset, (shape, dtype) in zip(offsets, wanted, strict=True)]
