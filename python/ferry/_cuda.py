# SPDX-License-Identifier: Apache-2.0
"""CUDA's driver by ctypes: what memory of others is, copies on a stream. It is the library that libferry opens too
($FERRY_CUDA_LIBRARY, else libcuda.so.1), opened at the first tensor of a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any, Optional

from ferry.errors import InternalError, NotFoundError

_BUFFER_ID = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID: of each allocation another one, as long as the process lives
_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING

# Of these cuda.h means the second version by the plain name; of others, such as cuCtxSynchronize, the first.
_SECOND = {
    "cuDeviceGetUuid",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuMemGetAddressRange",
    "cuMemcpyDtoDAsync",
    "cuEventDestroy",
}
_PROTOTYPES: dict[str, list[Any]] = {
    "cuInit": [c_int],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetUuid": [c_void_p, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxPushCurrent": [c_void_p],
    "cuCtxPopCurrent": [POINTER(c_void_p)],
    "cuCtxSynchronize": [],
    "cuMemGetAddressRange": [POINTER(c_uint64), POINTER(c_size_t), c_uint64],
    "cuMemRetainAllocationHandle": [POINTER(c_uint64), c_void_p],
    "cuMemRelease": [c_uint64],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
    "cuMemcpyDtoDAsync": [c_uint64, c_uint64, c_size_t, c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventDestroy": [c_void_p],
}


class Driver:
    """Ordinals are of this process, as the driver, and so PyTorch, number its GPUs."""

    def __init__(self) -> None:
        path = os.environ.get("FERRY_CUDA_LIBRARY") or "libcuda.so.1"
        try:
            opened = ctypes.CDLL(path)
        except OSError as error:
            raise NotFoundError(f"cannot open CUDA's driver at {path}: {error}", "DEVICE_UNKNOWN") from None
        self._calls: dict[str, Any] = {}
        for name, arguments in _PROTOTYPES.items():
            function = (getattr(opened, name + "_v2", None) if name in _SECOND else None) or getattr(opened, name)
            function.argtypes, function.restype = arguments, c_int
            self._calls[name] = function
        self._contexts: dict[int, c_void_p] = {}
        self._check("cuInit", 0)
        count, device = c_int(), c_int()
        self._check("cuDeviceGetCount", ctypes.byref(count))
        self.uuids: list[bytes] = []
        for ordinal in range(count.value):
            uuid = (c_ubyte * 16)()
            self._check("cuDeviceGet", ctypes.byref(device), ordinal)
            self._check("cuDeviceGetUuid", ctypes.byref(uuid), device.value)
            self.uuids.append(bytes(uuid))

    def _check(self, name: str, *arguments: Any) -> None:
        result = self._calls[name](*arguments)
        if result:
            said = c_char_p()
            self._calls["cuGetErrorName"](result, ctypes.byref(said))
            raise InternalError(f"{name}: {(said.value or str(result).encode()).decode()}")

    @contextlib.contextmanager
    def current(self, ordinal: int) -> Iterator[None]:
        """With the primary context of a GPU, which the process then keeps, as the thread's current one."""
        context = self._contexts.get(ordinal)
        if context is None:
            context = c_void_p()
            self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
            self._contexts[ordinal] = context
        self._check("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self._calls["cuCtxPopCurrent"](ctypes.byref(c_void_p()))

    def ordinal_of(self, address: int) -> Optional[int]:
        """Of the GPU whose memory an address is in; None if the driver does not know it."""
        made = c_int()
        return None if self._calls["cuPointerGetAttribute"](ctypes.byref(made), _ORDINAL, address) else made.value

    # Of these the context is current.

    def synchronize(self) -> None:
        self._check("cuCtxSynchronize")

    def range_of(self, address: int) -> tuple[int, int]:
        """Begin and bytes of the allocation, or of the mapping, that an address is in."""
        base, size = c_uint64(), c_size_t()
        self._check("cuMemGetAddressRange", ctypes.byref(base), ctypes.byref(size), address)
        return base.value, size.value

    def mapped_handle(self, address: int) -> Optional[int]:
        """A reference, to be released, to the allocation that is mapped there; None if it is memory of cudaMalloc."""
        handle = c_uint64()
        if self._calls["cuMemRetainAllocationHandle"](ctypes.byref(handle), address):
            return None
        return handle.value

    def release(self, handle: int) -> None:
        self._calls["cuMemRelease"](handle)

    def buffer_id(self, address: int) -> int:
        """0 if the driver does not say."""
        made = c_uint64()
        return 0 if self._calls["cuPointerGetAttribute"](ctypes.byref(made), _BUFFER_ID, address) else made.value

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        self._check("cuMemcpyDtoDAsync", to, source, nbytes, stream)

    def event(self, stream: int, again: Sequence[int] = ()) -> list[int]:
        """One event, of what the stream was told so far: that of `again`, or a new one. `await_event` ends it."""
        made = c_void_p(again[0] if again else None)
        if not again:
            self._check("cuEventCreate", ctypes.byref(made), _NO_TIMING)
        self._check("cuEventRecord", made, stream)
        return [made.value or 0]

    def follow(self, stream: int, other: int) -> None:
        """What `stream` is told from now on is behind what `other` was told so far."""
        (event,) = self.event(other)
        try:
            self._check("cuStreamWaitEvent", stream, event, 0)
        finally:
            self._calls["cuEventDestroy"](event)

    def await_event(self, event: int) -> None:
        self._check("cuEventSynchronize", event)
        self._check("cuEventDestroy", event)


_lock = threading.RLock()  # a garbage collection in between may come here
_driver: Optional[Driver] = None


def driver() -> Driver:
    """NotFoundError, DEVICE_UNKNOWN, where there is none."""
    global _driver
    with _lock:
        if _driver is None:
            _driver = Driver()
        return _driver


def settle(ordinal: int, events: Optional[Sequence[int]]) -> None:
    """Before memory of a GPU goes: until these events are over; if None, until all is that was queued to the GPU, as with
    cudaFree. A GPU that is lost says so elsewhere."""
    with contextlib.suppress(InternalError), driver().current(ordinal):
        if events is None:
            driver().synchronize()
        for event in events or ():
            driver().await_event(event)
