# SPDX-License-Identifier: Apache-2.0
"""Of torch as much as `ferry` asks of it for CUDA tensors, over the fake driver of tests/fake_cuda: its memory is the host's,
so that tests look at bytes where they are, and its streams run later, in threads of its own."""

import contextlib
import ctypes
import itertools
import types

_U64, _SIZE, _P = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("win32", _P),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


GRANULE = 2 << 20


class Driver:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self("cuInit", 0)
        self.contexts = []
        for ordinal in range(2):
            context = _P()
            self("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
            self.contexts.append(context)

    def __call__(self, name, *arguments):
        function = getattr(self.library, name + "_v2", None) if name != "cuCtxSynchronize" else None
        result = (function or getattr(self.library, name))(*arguments)
        assert result == 0, f"{name}: {result}"

    def push(self, ordinal):
        self("cuCtxPushCurrent", self.contexts[ordinal])

    def pop(self):
        self("cuCtxPopCurrent", ctypes.byref(_P()))

    @contextlib.contextmanager
    def current(self, ordinal):
        self.push(ordinal)
        try:
            yield
        finally:
            self.pop()

    def malloc(self, nbytes, ordinal=0):
        """As cudaMalloc."""
        made = _U64()
        with self.current(ordinal):
            self("cuMemAlloc", ctypes.byref(made), _SIZE(nbytes))
        return made.value

    def free(self, address, ordinal=0):
        with self.current(ordinal):
            self("cuMemFree", _U64(address))

    def reserve(self, nbytes):
        made = _U64()
        self("cuMemAddressReserve", ctypes.byref(made), _SIZE(nbytes), _SIZE(0), _U64(0), _U64(0))
        return made.value

    def map(self, address, nbytes, ordinal=0, shareable=True):
        """One allocation, as a piece of an expandable segment."""
        wanted = _Properties(type=1, handles=1 if shareable else 0, location=_Location(1, ordinal))
        handle = _U64()
        self("cuMemCreate", ctypes.byref(handle), _SIZE(nbytes), ctypes.byref(wanted), _U64(0))
        self("cuMemMap", _U64(address), _SIZE(nbytes), _SIZE(0), handle, _U64(0))
        self("cuMemRelease", handle)
        access = _Access(_Location(1, ordinal), 3)
        self("cuMemSetAccess", _U64(address), _SIZE(nbytes), ctypes.byref(access), _SIZE(1))

    def unmap(self, address, nbytes):
        self("cuMemUnmap", _U64(address), _SIZE(nbytes))


class Stream:
    def __init__(self, driver, ordinal):
        made = _P()
        with driver.current(ordinal):
            driver("cuStreamCreate", ctypes.byref(made), 1)
        self.driver, self.cuda_stream, self.device = driver, made.value, types.SimpleNamespace(index=ordinal)
        self.ordinal, self.capturing = ordinal, False

    def copy(self, to, source, nbytes):
        """What a kernel would write."""
        with self.driver.current(self.ordinal):
            self.driver("cuMemcpyDtoDAsync", _U64(to), _U64(source), _SIZE(nbytes), _P(self.cuda_stream))

    def synchronize(self):
        with self.driver.current(self.ordinal):
            self.driver("cuStreamSynchronize", _P(self.cuda_stream))

    def wait_stream(self, other):
        other.synchronize()


class Tensor:
    """Elements of one byte, row-major unless `strides` says otherwise."""

    is_cuda, layout, dtype = True, "torch.strided", "torch.uint8"

    def __init__(self, address, shape, ordinal=0, strides=None):
        steps = [*itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1)]
        self.address, self.shape, self.strides = address, shape, tuple(reversed(steps)) if strides is None else strides
        self.rows = tuple(reversed(steps))
        self.device = types.SimpleNamespace(index=ordinal)

    def is_conj(self):
        return False

    is_neg = is_conj

    def element_size(self):
        return 1

    def get_device(self):
        return self.device.index

    def is_contiguous(self):
        return self.strides == self.rows

    def data_ptr(self):
        return self.address

    def stride(self):
        return self.strides

    def fill(self, data):
        ctypes.memmove(self.address, data, len(data))
        return self

    def bytes(self):
        size = 1
        for dim in self.shape:
            size *= dim
        return ctypes.string_at(self.address, size)


def module(driver):
    """To stand in for torch; `use` makes a stream the current one of its GPU."""
    torch = types.ModuleType("torch")
    streams = {ordinal: Stream(driver, ordinal) for ordinal in range(2)}

    @contextlib.contextmanager
    def use(stream):
        before, streams[stream.ordinal] = streams[stream.ordinal], stream
        try:
            yield
        finally:
            streams[stream.ordinal] = before

    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: streams[0].capturing,
        current_stream=lambda ordinal=None: streams[ordinal or 0],
        current_device=lambda: 0,
        device=driver.current,
        Stream=lambda device: Stream(driver, device),
    )
    torch.use = use
    return torch
