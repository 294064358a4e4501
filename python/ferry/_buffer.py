# SPDX-License-Identifier: Apache-2.0
"""Bytes, memoryviews and whatever else has the buffer protocol: where it is, read-only ones too."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_ssize_t, c_void_p
from typing import Any

_C_CONTIGUOUS_WITH_FORMAT = 0x08 | 0x10 | 0x20 | 0x04


class _PyBuffer(Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_python = ctypes.PyDLL(None)
_get = _python.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, POINTER(_PyBuffer), c_int]
_release = _python.PyBuffer_Release
_release.argtypes, _release.restype = [POINTER(_PyBuffer)], None


class Buffer:
    """A contiguous buffer, held until this is gone. TypeError or BufferError if `owner` has none."""

    def __init__(self, owner: Any) -> None:
        self._view: Any = None
        view = _PyBuffer()
        _get(owner, ctypes.byref(view), _C_CONTIGUOUS_WITH_FORMAT)
        self._view, self._release = view, _release
        self.address: int = view.buf or 0
        self.itemsize: int = view.itemsize
        self.format = (view.format or b"B").decode().lstrip("@=")
        self.shape = tuple(view.shape[i] for i in range(view.ndim))

    def __del__(self) -> None:
        if self._view is not None:
            self._release(ctypes.byref(self._view))
