# SPDX-License-Identifier: Apache-2.0
"""DLPack without a compiled part: capsules of Ferry's memory for others, and what others' capsules say of theirs.

A consumer may give a tensor back from any thread, and after the interpreter's end. Structs that are out then belong to
the process (`_out` is never emptied by force), and at exit their deleter becomes a C function that does nothing.
"""

from __future__ import annotations

import atexit
import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any, NamedTuple, Optional

CPU, CUDA = 1, 2
OF_HOST = (CPU, 3)  # and pinned by CUDA
OF_CUDA = (CUDA, 13)  # and managed


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c_void_p), ("deleter", c_void_p)]


class _Versioned(Structure):
    """Of DLPack 1.0; `flags` 0: it may be written to, and is no copy."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_NAMES = (b"dltensor", b"dltensor_versioned")
_out: dict[int, tuple[Any, ...]] = {}
# Of our own: prototypes of ctypes.pythonapi are everybody's, and others set them too.
_python = ctypes.PyDLL(None)
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
_python.PyCapsule_GetPointer.restype = c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_python.PyCapsule_IsValid.argtypes = [c_void_p, ctypes.c_char_p]


def _give_back(managed: int) -> None:
    _out.pop(managed, None)


def _capsule_gone(capsule: int) -> None:
    for name in _NAMES:
        if _python.PyCapsule_IsValid(capsule, name):  # nobody took it
            _out.pop(_get_pointer(capsule, name), None)


# From any thread, without the GIL.
_give_back_c = ctypes.CFUNCTYPE(None, c_void_p)(_give_back)
_deleter = ctypes.cast(_give_back_c, c_void_p)
# With the GIL held, while an exception may be set: PyObject is passed by its address.
_capsule_gone_c = ctypes.PYFUNCTYPE(None, c_void_p)(_capsule_gone)
_destructor = ctypes.cast(_capsule_gone_c, c_void_p)
_get_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))


@atexit.register
def _leave() -> None:
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, c_void_p).value
    for entry in list(_out.values()):
        entry[0].deleter = nothing


def capsule(
    address: int, device: tuple[int, int], shape: tuple[int, ...], dlpack: tuple[int, int], owner: Any, versioned: bool
) -> Any:
    """A capsule of row-major memory at `address`, which `owner` keeps until it is given back. Consumers of DLPack 1.0 ask
    for a `versioned` one; what comes without a version NumPy takes to be read-only."""
    dims = (c_int64 * max(1, len(shape)))(*shape)
    strides = (c_int64 * max(1, len(shape)))()
    step = 1
    for i in reversed(range(len(shape))):
        strides[i] = step
        step *= shape[i]
    managed: Any = _Versioned(major=1) if versioned else _Managed()
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.device_id = address, device[0], device[1]
    tensor.ndim, tensor.code, tensor.bits, tensor.lanes = len(shape), dlpack[0], dlpack[1], 1
    tensor.shape = ctypes.cast(dims, POINTER(c_int64))
    tensor.strides = ctypes.cast(strides, POINTER(c_int64))
    managed.deleter = _deleter.value
    place = ctypes.addressof(managed)
    _out[place] = (managed, dims, strides, owner)
    return _python.PyCapsule_New(place, _NAMES[versioned], _destructor)


class Described(NamedTuple):
    """Memory of somebody else. `strides` in elements, None: row-major. `owner` keeps it."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    dlpack: tuple[int, int]
    owner: Any


def describe(tensor: Any, **asked: Any) -> Described:
    """What `tensor.__dlpack__(**asked)` says, without taking it."""
    made = tensor.__dlpack__(**asked)
    place = _python.PyCapsule_GetPointer(made, b"dltensor")
    said = _Managed.from_address(place).tensor
    shape = tuple(said.shape[i] for i in range(said.ndim))
    strides = tuple(said.strides[i] for i in range(said.ndim)) if said.strides else None
    return Described(
        (said.data or 0) + said.byte_offset,
        (said.device_type, said.device_id),
        shape,
        strides,
        (said.code, said.bits * said.lanes),
        made,
    )
