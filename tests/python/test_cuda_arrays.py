# SPDX-License-Identifier: Apache-2.0
"""GPU arrays of others than torch, by the fake driver: those with __dlpack__, such as JAX's and CuPy's, those with
__cuda_array_interface__ alone, such as Numba's, and the order with their streams, with a torch in the process and without."""

import ctypes
import sys

import fake_torch
import pytest
from fake_gpus import GPU, HOST, MIB, OTHER, pattern

import ferry
from ferry import _dlpack

UINT8, BFLOAT16 = (1, 8), (4, 16)


class Interfaced:
    """As Numba's arrays: of bytes, `stream` is where they are written."""

    def __init__(self, memory, stream=None, **more):
        self.memory = memory
        self.__cuda_array_interface__ = {
            "version": 3, "shape": memory.shape, "typestr": "|u1", "data": (memory.address, False),
            "strides": None if memory.is_contiguous() else memory.strides, "stream": stream, **more,
        }  # fmt: skip


class Producer:
    """As JAX's and CuPy's: whoever takes it names a stream, which it has wait for its own."""

    def __init__(self, memory, own=None, dlpack=UINT8, device=_dlpack.CUDA, shape=None):
        self.memory, self.own, self.dlpack, self.device = memory, own, dlpack, device
        self.shape, self.asked = memory.shape if shape is None else shape, []

    def __dlpack_device__(self):
        return self.device, self.memory.device.index if self.device == _dlpack.CUDA else 0

    def __dlpack__(self, *, stream=None):
        self.asked.append(stream)
        if self.own is not None:
            driver, event = self.own.driver, ctypes.c_void_p()
            with driver.current(self.own.ordinal):
                driver("cuEventCreate", ctypes.byref(event), 2)
                driver("cuEventRecord", event, ctypes.c_void_p(self.own.cuda_stream))
                driver("cuStreamWaitEvent", ctypes.c_void_p(stream), event, 0)
        return _dlpack.capsule(
            self.memory.address, (self.device, self.memory.device.index), self.shape, self.dlpack, self, versioned=False
        )


class Pointed:
    """A stream of neither torch's nor a number."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.cuda_stream


@pytest.fixture(params=["with torch", "without"])
def here(request, gpus, torch, monkeypatch):
    """A session of a process that has torch, or has it not; the number of its current stream of GPU 0 for DLPack."""
    stream = torch.cuda.current_stream(0).cuda_stream
    if request.param == "without":
        monkeypatch.delitem(sys.modules, "torch")
        stream = 1
    with ferry.Session(name="arrays") as made:
        made.current = stream
        yield made


@pytest.fixture
def memory(gpus):
    """Bytes of a segment of cudaMalloc; made with a shape."""
    segment = gpus.malloc(4 * MIB)
    yield lambda shape, offset=0, **more: fake_torch.Tensor(segment + offset, shape, **more)
    gpus.free(segment)


@pytest.mark.parametrize("kind", [Interfaced, Producer])
def test_an_array_goes_and_comes_from_where_it_is(here, memory, kind, key):
    bytes_ = memory((3, 1000), 512).fill(pattern(4096)[:3000])
    array = kind(bytes_)
    assert "zero-copy: bytes 512 to 3512" in here.explain(array) and "a segment of cudaMalloc" in here.explain(array)
    got = here.recv(like=array, frm=GPU, key=key)
    here.send(array, to=GPU, key=key).result(20)
    came = got.result(20)
    assert (came.shape, came.dtype, came.device) == ((3, 1000), "uint8", GPU)
    assert ctypes.string_at(came.address, 3000) == bytes_.bytes()
    sent = here.send(b"x" * 3000, to=GPU, key=key, device=HOST)
    assert here.recv(into=ferry.Ranges([array]), frm=HOST, key=key).result(20).tensors == (array,)
    sent.result(20)
    assert bytes_.bytes() == b"x" * 3000
    here.imports.clear()


class Strict(Producer):
    """As PyTorch's tensors: exported only while their GPU is the thread's current one."""

    def __dlpack__(self, *, stream=None):
        current = ctypes.c_int()
        self.memory.driver("cuCtxGetDevice", ctypes.byref(current))
        if current.value != self.memory.device.index:
            raise BufferError(f"Expected: {self.memory.device.index}. Current device: {current.value}.")
        return super().__dlpack__(stream=stream)


def test_its_gpu_is_the_current_one_while_it_exports(here, gpus):
    segment = gpus.malloc(4 * MIB, 1)
    memory = fake_torch.Tensor(segment, (1000,), 1)
    memory.driver = gpus
    with gpus.current(0):
        assert "a segment of cudaMalloc" in here.explain(Strict(memory))
    here.imports.clear()
    gpus.free(segment, 1)


def test_of_one_stride_too(here, memory, key):
    rows = Interfaced(memory((4, 100), strides=(1000, 1)))
    assert here.explain(rows).startswith("zero-copy: 4 blocks, one every 1000 bytes")
    scattered = Interfaced(memory((4, 10, 10), strides=(1000, 20, 1)))
    with pytest.raises(ferry.InvalidArgumentError, match="neither follow each other nor are blocks of one stride"):
        here.send(scattered, to=HOST, key=key)
    here.imports.clear()


def test_what_cannot_be_shared_is_copied_on_the_gpu(here, gpus, key):
    place = gpus.reserve(fake_torch.GRANULE)
    gpus.map(place, fake_torch.GRANULE, shareable=False)
    for kind in (Interfaced, Producer):
        array = kind(fake_torch.Tensor(place, (3000,)).fill(pattern(4096)[:3000]))
        assert here.explain(array).startswith("copied once, on the GPU: INVALID_ARGUMENT")
        got = here.recv(shape=3000, dtype="uint8", frm=GPU, key=key, device=HOST)
        here.send(array, to=HOST, key=key).result(20)
        assert bytes(got.result(20).memory) == array.memory.bytes()
    gpus.unmap(place, fake_torch.GRANULE)


@pytest.mark.parametrize("kind", ["interface", "dlpack"])
def test_a_send_is_behind_the_arrays_own_stream(here, gpus, memory, kind, key):
    """And a receive into it is behind that too."""
    old, new = memory((MIB,)).fill(b"-" * MIB), memory((MIB,), MIB).fill(pattern(MIB))
    own = fake_torch.Stream(gpus, 0)
    array = Interfaced(old, own.cuda_stream) if kind == "interface" else Producer(old, own)
    got = here.recv(shape=MIB, dtype="uint8", frm=GPU, key=key, device=HOST)
    gpus.library.fake_cuda_hold_copies(1)
    try:
        own.copy(old.address, new.address, MIB)
        sent = here.send(array, to=HOST, key=key)
        with pytest.raises(ferry.WaitTimeoutError):
            sent.result(0.05)
    finally:
        gpus.library.fake_cuda_hold_copies(0)
    sent.result(20)
    assert bytes(got.result(20).memory) == new.bytes()
    assert kind == "interface" or array.asked == [here.current]
    here.imports.clear()


def test_without_torch_a_send_is_behind_the_default_stream(gpus, memory, monkeypatch, key):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    old, new = memory((MIB,)).fill(b"-" * MIB), memory((MIB,), MIB).fill(pattern(MIB))
    with ferry.Session(name="arrays") as session:
        got = session.recv(shape=MIB, dtype="uint8", frm=GPU, key=key, device=HOST)
        gpus.library.fake_cuda_hold_copies(1)
        try:
            with gpus.current(0):
                gpus("cuMemcpyDtoDAsync", *map(ctypes.c_uint64, (old.address, new.address)), ctypes.c_size_t(MIB), None)
            sent = session.send(Interfaced(old), to=HOST, key=key)
            with pytest.raises(ferry.WaitTimeoutError):
                sent.result(0.05)
        finally:
            gpus.library.fake_cuda_hold_copies(0)
        sent.result(20)
        assert bytes(got.result(20).memory) == new.bytes()


@pytest.mark.parametrize("named", ["number", "__cuda_stream__"])
def test_a_stream_waits_that_is_none_of_torchs(here, gpus, memory, named, key):
    into, seen = memory((MIB,)).fill(b"-" * MIB), memory((MIB,), MIB).fill(b"-" * MIB)
    future = here.recv(into=Producer(into), frm=HOST, key=key)
    stream = fake_torch.Stream(gpus, 0)
    future.wait_stream(stream.cuda_stream if named == "number" else Pointed(stream))
    stream.copy(seen.address, into.address, MIB)
    here.send(pattern(MIB), to=GPU, key=key, device=HOST).result(20)
    stream.synchronize()
    assert seen.bytes() == pattern(MIB)
    with pytest.raises(ferry.InvalidArgumentError, match="a stream is torch's, one that has __cuda_stream__, or its number"):
        future.wait_stream("0")
    here.imports.clear()


def test_without_torch_it_must_be_said_which_stream_waits(gpus, monkeypatch, key):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with ferry.Session(name="arrays") as session:
        future = session.recv(shape=8, frm=GPU, key=key, device=GPU)
        with pytest.raises(ferry.FailedPreconditionError, match="say which stream, or wait by result"):
            future.wait_stream()
        future.cancel()


def test_nothing_is_asked_of_an_array_while_the_stream_is_captured(session, torch, gpus, memory, key):
    own = fake_torch.Stream(gpus, 0)
    arrays = [Interfaced(memory((1000,)), own.cuda_stream), Producer(memory((1000,)), own)]
    torch.cuda.current_stream(0).capturing = True
    for array in arrays:
        with pytest.raises(ferry.FailedPreconditionError, match="captured into a CUDA graph"):
            session.send(array, to=HOST, key=key)
    torch.cuda.current_stream(0).capturing = False
    assert arrays[1].asked == []


def test_types_and_gpus_are_those_of_the_array(here, gpus, memory, key):
    half = Producer(memory((6,)), dlpack=BFLOAT16, shape=(3,))
    assert here.empty_like(half).dtype == "bfloat16"
    there = gpus.malloc(MIB, 1)
    for kind in (Interfaced, Producer):
        assert here.empty_like(kind(fake_torch.Tensor(there, (5,), 1))).device == OTHER
    pinned = Producer(fake_torch.Tensor(ctypes.addressof(ctypes.create_string_buffer(8)), (5,)), device=3)
    assert here.empty_like(pinned).device == HOST
    empty = Interfaced(fake_torch.Tensor(0, (0, 3)))
    assert here.empty_like(empty).shape == (0, 3)
    gpus.free(there, 1)


def test_what_is_refused_says_what_to_do(here, memory, key):
    for array, what in (
        (Interfaced(memory((5,)), mask=object()), r"masked array is two.*\.filled"),
        (Interfaced(memory((5,)), typestr=">f4"), "elements of >f4 have no type of Ferry"),
        (Interfaced(fake_torch.Tensor(64, (5,))), "address 0x40 of __cuda_array_interface__ is in no memory that CUDA knows"),
        (Producer(memory((5,)), dlpack=(2, 128)), r"elements of DLPack type \(2, 128\)"),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match=what):
            here.send(array, to=HOST, key=key)
    with pytest.raises(ferry.UnimplementedError, match="DLPack device 10:0; .* host memory and of CUDA GPUs: copy it"):
        here.send(Producer(memory((5,)), device=10), to=HOST, key=key)


def test_ours_are_seen_by_the_interface_without_a_copy(session):
    tensor = session.empty((3, 4), "int32", device=OTHER)
    seen = tensor.__cuda_array_interface__
    assert (seen["shape"], seen["typestr"], seen["data"]) == ((3, 4), "<i4", (tensor.address, False))
    assert session.explain(Interfaced(fake_torch.Tensor(tensor.address, (48,), 1))).startswith("zero-copy: bytes 0 to 48")
    assert not hasattr(tensor, "__array_interface__") and not hasattr(session.empty(3, device=HOST), "__cuda_array_interface__")
    with pytest.raises(AttributeError):
        _ = session.empty(3, "bfloat16", device=OTHER).__cuda_array_interface__  # which has no name for it: DLPack has
