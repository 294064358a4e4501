# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors by the fake driver ($FERRY_TEST_CUDA): where they are, how they are shared, and the order with streams.
Real GPUs and a real torch: tests/gpu/torch_tensors.py, by tools/gpu-test."""

import ctypes
import gc
import threading
import time

import fake_torch
import pytest
from fake_gpus import GPU, HOST, MIB, OTHER, arrives, pattern

import ferry
from ferry import _abi, _cuda, _imports


def test_a_segment_of_cudamalloc_is_imported_once(session, gpus, key):
    segment = gpus.malloc(4 * MIB)
    first = fake_torch.Tensor(segment + 512, (1000,)).fill(pattern(4096)[:1000])
    second = fake_torch.Tensor(segment + MIB, (3, 1000)).fill(pattern(4096, 2)[:3000])
    for tensor in (first, second):
        assert "zero-copy: bytes" in session.explain(tensor) and "a segment of cudaMalloc" in session.explain(tensor)
        arrives(session, tensor, tensor.bytes(), key)
    assert len(session.imports._segments) == 1
    # Into it, too.
    sent = session.send(memoryview(b"x" * 3000).cast("B", (3, 1000)), to=GPU, key=key, device=HOST)
    assert session.recv(into=second, frm=HOST, key=key).result(20) is second
    assert second.bytes() == b"x" * 3000
    sent.result(20)
    session.imports.clear()
    gpus.free(segment)


def test_another_segment_where_one_was_is_another_import(session, gpus, key):
    place = gpus.reserve(fake_torch.GRANULE)
    for seed in range(2):
        gpus.map(place, fake_torch.GRANULE)
        tensor = fake_torch.Tensor(place, (5000,)).fill(pattern(8192, seed)[:5000])
        arrives(session, tensor, tensor.bytes(), key)
        gpus.unmap(place, fake_torch.GRANULE)


def test_an_import_is_of_what_the_driver_says_is_there(session, gpus, key):
    """The driver gives a place out again, and the id of the buffer is another one then."""
    segment = gpus.malloc(4 * MIB)
    tensor = fake_torch.Tensor(segment, (1000,)).fill(pattern(4096)[:1000])
    arrives(session, tensor, tensor.bytes(), key)
    (known,) = session.imports._segments.values()
    session.imports._segments[known.base] = known._replace(buffer=known.buffer + 1)
    arrives(session, tensor, tensor.bytes(), key)
    (again,) = session.imports._segments.values()
    assert again.arena is not known.arena and again.buffer == known.buffer
    arrives(session, tensor, tensor.bytes(), key)
    assert session.imports._segments[known.base].arena is again.arena
    session.imports.clear()
    gpus.free(segment)


def test_a_tensor_over_an_expandable_segment(session, gpus, key):
    place = gpus.reserve(6 * fake_torch.GRANULE)
    for i in range(3):
        gpus.map(place + i * fake_torch.GRANULE, fake_torch.GRANULE)
    tensor = fake_torch.Tensor(place + 100, (2 * fake_torch.GRANULE,)).fill(pattern(2 * fake_torch.GRANULE))
    assert "an expandable segment" in session.explain(tensor)
    arrives(session, tensor, tensor.bytes(), key)
    # It grows: what was imported stays, the rest comes to it.
    for i in range(3, 6):
        gpus.map(place + i * fake_torch.GRANULE, fake_torch.GRANULE)
    longer = fake_torch.Tensor(place + 100, (5 * fake_torch.GRANULE,)).fill(pattern(5 * fake_torch.GRANULE, 3))
    assert session.explain(longer).startswith("zero-copy: 2 ranges, of 2 arenas")
    arrives(session, longer, longer.bytes(), key)
    rows = fake_torch.Tensor(place + fake_torch.GRANULE, (4, fake_torch.GRANULE))
    with pytest.raises(ferry.InvalidArgumentError, match="from one arena, and the tensor is in 2"):
        session.send(ferry.Blocks(rows, [0]), to=HOST, key=key)
    rows = fake_torch.Tensor(place, (2, fake_torch.GRANULE))
    got = session.recv(shape=fake_torch.GRANULE, dtype="uint8", frm=GPU, key=key, device=HOST)
    session.send(ferry.Blocks(rows, [1]), to=HOST, key=key).result(20)
    assert bytes(got.result(20).memory) == rows.bytes()[fake_torch.GRANULE :]
    session.imports.clear()
    for i in range(6):
        gpus.unmap(place + i * fake_torch.GRANULE, fake_torch.GRANULE)


def test_what_cannot_be_shared_is_copied_on_the_gpu(session, gpus, torch, key):
    place = gpus.reserve(fake_torch.GRANULE)
    gpus.map(place, fake_torch.GRANULE, shareable=False)
    tensor = fake_torch.Tensor(place, (3000,)).fill(pattern(4096)[:3000])
    assert session.explain(tensor).startswith("copied once, on the GPU: INVALID_ARGUMENT")
    arrives(session, tensor, tensor.bytes(), key)
    with pytest.raises(ferry.InvalidArgumentError, match="only a send copies"):
        session.recv(into=tensor, frm=HOST, key=key)
    gpus.unmap(place, fake_torch.GRANULE)


@pytest.mark.parametrize("error", [ferry.DaemonLostError, ferry.FailedPreconditionError, KeyboardInterrupt])
def test_what_passes_is_not_remembered_of_memory(session, gpus, torch, key, monkeypatch, error):
    place = gpus.reserve(fake_torch.GRANULE)
    gpus.map(place, fake_torch.GRANULE)
    tensor = fake_torch.Tensor(place, (3000,)).fill(pattern(4096)[:3000])
    held = []
    retain, release = _cuda.Driver.mapped_handle, _cuda.Driver.release
    monkeypatch.setattr(_cuda.Driver, "mapped_handle", lambda self, at: held.append(at) or retain(self, at))
    monkeypatch.setattr(_cuda.Driver, "release", lambda self, handle: held.pop() and release(self, handle))
    with monkeypatch.context() as patch:
        if error is KeyboardInterrupt:
            patch.setattr(_imports, "_imported", lambda *_: exec("raise KeyboardInterrupt"))
        else:
            patch.setattr(_imports, "_imported", lambda *_: (None, error("it is away", "")))
        for call in (lambda: session.recv(into=tensor, frm=HOST, key=key), lambda: session.send(tensor, to=HOST, key=key)):
            with pytest.raises(error):
                call()
            assert not held and not session.imports._segments
    assert session.explain(tensor).startswith("zero-copy")
    arrives(session, tensor, tensor.bytes(), key)
    session.imports.clear()
    gpus.unmap(place, fake_torch.GRANULE)


def test_memory_of_the_allocator_goes_as_it_is(session, gpus, key):
    lib = _abi.library()
    address = lib.ferry_cuda_malloc(4 * MIB, 0, None)
    tensor = fake_torch.Tensor(address + 256, (2 * MIB,)).fill(pattern(2 * MIB))
    said = session.explain(tensor)
    assert said.startswith("zero-copy: bytes 256 to") and "ferry.torch.mem_pool" in said
    arrives(session, tensor, tensor.bytes(), key)
    columns = fake_torch.Tensor(address, (4, 100), strides=(1000, 1))
    got = session.recv(shape=(4, 100), dtype="uint8", frm=GPU, key=key, device=HOST)
    session.send(columns, to=HOST, key=key).result(20)
    assert bytes(got.result(20).memory) == b"".join(ctypes.string_at(address + 1000 * i, 100) for i in range(4))
    assert not session.imports._segments
    # A tree, of this memory, of the session's and of the host's.
    mine = session.empty(1000, "uint8", device=GPU)
    tree = {"pool": tensor, "own": mine, "host": b"abc"}
    ctypes.memset(mine.address, 9, 1000)
    got = session.recv(tree, frm=GPU, key=key, device=HOST)
    session.send(tree, to=HOST, key=key, device=GPU).result(20)
    came = got.result(20)
    assert bytes(came["pool"].memory) == tensor.bytes() and bytes(came["own"].memory) == b"\t" * 1000
    assert bytes(came["host"].memory) == b"abc"
    with pytest.raises(ferry.InvalidArgumentError, match="memory of one session"):
        session.send(ferry.Ranges([tensor, mine]), to=HOST, key=key)
    lib.ferry_cuda_free(address, 4 * MIB, 0, None)


def test_a_send_is_behind_what_the_stream_was_told(session, gpus, torch, key, monkeypatch):
    control = gpus.library
    segment = gpus.malloc(4 * MIB)
    tensor = fake_torch.Tensor(segment, (MIB,)).fill(b"-" * MIB)
    new = fake_torch.Tensor(segment + MIB, (MIB,)).fill(pattern(MIB))
    got = session.recv(shape=MIB, dtype="uint8", frm=GPU, key=key, device=HOST)
    control.fake_cuda_hold_copies(1)
    try:
        torch.cuda.current_stream(0).copy(tensor.address, new.address, MIB)
        sent = session.send(tensor, to=HOST, key=key)
        with pytest.raises(ferry.WaitTimeoutError):
            sent.result(0.05)
    finally:
        control.fake_cuda_hold_copies(0)
    sent.result(20)
    assert bytes(got.result(20).memory) == new.bytes()
    session.imports.clear()
    gpus.free(segment)


def test_a_stream_waits_in_place_of_the_host(session, gpus, torch, key):
    segment = gpus.malloc(4 * MIB)
    into = fake_torch.Tensor(segment, (MIB,)).fill(b"-" * MIB)
    seen = fake_torch.Tensor(segment + MIB, (MIB,)).fill(b"-" * MIB)
    future = session.recv(into=into, frm=HOST, key=key)
    # Of the other end this process has the device, so that what waits here must not be all that it does.
    stream = fake_torch.Stream(gpus, 0)
    assert future.wait_stream(stream) is into
    stream.copy(seen.address, into.address, MIB)
    assert seen.bytes() == b"-" * MIB
    session.send(pattern(MIB), to=GPU, key=key, device=HOST).result(20)
    stream.synchronize()
    assert seen.bytes() == pattern(MIB)
    session.imports.clear()
    gpus.free(segment)


def test_more_streams_than_counters(session, gpus, torch, key):
    segment = gpus.malloc(MIB)
    tensor = fake_torch.Tensor(segment, (4096,)).fill(pattern(4096))
    streams = [fake_torch.Stream(gpus, 0) for _ in range(66)]
    for stream in streams:
        with torch.use(stream):
            arrives(session, tensor, tensor.bytes(), key)
    assert len(session.streams._values) == 64
    session.imports.clear()
    gpus.free(segment)


def test_nothing_is_posted_while_the_stream_is_captured(session, gpus, torch, key):
    segment = gpus.malloc(MIB)
    tensor = fake_torch.Tensor(segment, (1000,))
    own = session.empty(1000, "uint8", device=GPU)
    got = session.recv(shape=8, frm=GPU, key=key, device=GPU)
    torch.cuda.current_stream(0).capturing = True
    for call in (
        lambda: session.send(tensor, to=HOST, key=key),
        lambda: session.recv(into=tensor, frm=HOST, key=key),
        lambda: session.send(own, to=HOST, key=key),
        lambda: got.wait_stream(),
    ):
        with pytest.raises(ferry.FailedPreconditionError, match="captured into a CUDA graph"):
            call()
    torch.cuda.current_stream(0).capturing = False
    got.cancel()
    session.imports.clear()
    gpus.free(segment)


def test_prepared_transfers_are_fired_by_a_stream(session, gpus, torch, key):
    source = session.empty(1000, "uint8", device=GPU)
    there = session.empty(1000, "uint8", device=OTHER)
    with session.prepare_send(source, to=OTHER, key=key) as send, session.prepare_recv(into=there, frm=GPU, key=key) as receive:
        for step in range(1, 4):
            ctypes.memset(source.address, step, 1000)
            assert receive.fire_stream() == step and send.fire_stream() == step
            assert receive.wait_stream() is there
            torch.cuda.current_stream(1).synchronize()
            assert ctypes.string_at(there.address, 1000) == bytes([step]) * 1000
            send.wait(timeout=20)


def test_a_stream_fires_none_of_several_when_one_has_ended(session, gpus, torch, key):
    tree = {"x": session.empty(8, "uint8", device=HOST), "y": session.empty(8, "uint8", device=GPU)}
    with session.prepare_send(tree, to=OTHER, key=key) as send:
        with session.prepare_recv(shape=8, dtype="uint8", frm=GPU, key=f"{key}/y", device=OTHER):
            pass
        lib = _abi.library()
        end = time.monotonic() + 20
        while not lib.ferry_prepared_ended(send._handles[1]):
            assert time.monotonic() < end
        with pytest.raises(ferry.CancelledError):
            send.fire_stream()
        assert [lib.ferry_prepared_fired(handle) for handle in send._handles] == [0, 0]


def test_new_tensors_are_on_the_gpu_of_those_they_are_like(session, gpus, key):
    tensor = fake_torch.Tensor(gpus.malloc(MIB, 1), (10, 100), 1)
    got = session.recv({"gpu": tensor, "host": b"abc"}, frm=HOST, key=key)
    session.send({"gpu": pattern(1000)[:1000], "host": b"abc"}, to=OTHER, key=key, device=HOST, deadline=5)
    assert got._value["gpu"].device == OTHER and got._value["host"].device == HOST
    assert got._value["gpu"].__dlpack_device__() == (2, 1)
    got.cancel()


def test_memory_lives_until_its_transfers_are_over(session, gpus, torch, key):
    tensor = session.empty(1000, "uint8", device=GPU)
    ctypes.memset(tensor.address, 7, 1000)
    session.send(tensor, to=HOST, key=key)
    del tensor
    gc.collect()
    assert session.kept._kept
    got = session.recv(shape=1000, dtype="uint8", frm=GPU, key=key, device=HOST)
    assert bytes(got.result(20).memory) == b"\7" * 1000
    while session.kept._kept:  # the other end may be told first
        session.kept.sweep()
    # The future takes its own away, and as many as come take away those of others.
    tensor = session.empty(1000, "uint8", device=GPU)
    for _ in range(40):
        got = session.recv(shape=1000, dtype="uint8", frm=GPU, key=key, device=HOST)
        session.send(tensor, to=HOST, key=key)
        got.result(20)
    assert len(session.kept._kept) < 40
    future = session.send(tensor, to=HOST, key=key)
    before = len(session.kept._kept)
    session.recv(shape=1000, dtype="uint8", frm=GPU, key=key, device=HOST).result(20)
    future.result(20)
    assert len(session.kept._kept) == before - 1


def test_from_threads_that_have_used_no_gpu(session, gpus, key):
    segment = gpus.malloc(MIB)
    tensor = fake_torch.Tensor(segment, (1000,)).fill(pattern(1000)[:1000])
    failed = []

    def work(i):
        try:
            arrives(session, tensor, tensor.bytes(), f"{key}-{i}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    session.imports.clear()
    gpus.free(segment)
