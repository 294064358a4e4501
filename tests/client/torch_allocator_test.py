#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors in memory that ferry_cuda_malloc gave, sent from its own streams to its own streams.

torch_allocator_test.py LIBFERRY FERRYD: starts the daemon, makes libferry PyTorch's allocator, and sends tensors
within the first GPU, and to the second if there is one. Exit status 77 (a skip) without PyTorch or a GPU.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
import time

from ferry_ctypes import Ferry, Range

ROUNDS = 20
ELEMENTS = 1000003


def open_session(ferry, daemon):
    """The allocator's session, as soon as the daemon serves."""
    session = ctypes.c_void_p()
    deadline = time.monotonic() + 30
    while True:
        try:
            ferry.call("ferry_cuda_session", ctypes.byref(session))
            return session
        except RuntimeError:
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def send_tensors(torch, ferry, session, source_gpu, destination_gpu):
    source = torch.zeros(ELEMENTS, dtype=torch.float32, device=f"cuda:{source_gpu}")
    destination = torch.zeros(ELEMENTS, dtype=torch.float32, device=f"cuda:{destination_gpu}")
    numbers = torch.arange(ELEMENTS, dtype=torch.float32)
    here = numbers.to(source.device)
    there = numbers.to(destination.device)
    producer = torch.cuda.Stream(device=source_gpu)
    consumer = torch.cuda.Stream(device=destination_gpu)
    torch.cuda.synchronize(source_gpu)
    torch.cuda.synchronize(destination_gpu)

    def end_of(tensor):
        offset = ctypes.c_uint64()
        arena = ferry.lib.ferry_cuda_arena(ctypes.c_void_p(tensor.data_ptr()), ctypes.byref(offset))
        assert arena, "the tensor is in no memory of ferry_cuda_malloc"
        device = ferry.lib.ferry_arena_device(ctypes.c_void_p(arena))
        return device, Range(arena, offset.value, tensor.numel() * tensor.element_size())

    # Counters are the session's, and an 'over' counter is of one device: each pair of GPUs has its own.
    counter = 2 * (source_gpu + destination_gpu)
    source_device, sent = end_of(source)
    destination_device, received = end_of(destination)
    for number in range(1, ROUNDS + 1):
        receive = ferry.post(False, session, destination_device, source_device, received, counter)
        send = ferry.post(True, session, source_device, destination_device, sent, counter + 1,
                          defined_at=(counter, number))
        with torch.cuda.stream(producer):
            torch.add(here, number, out=source)
        ferry.call("ferry_stream_define", session, ctypes.c_void_p(producer.cuda_stream),
                   ctypes.c_uint32(counter), ctypes.c_uint64(number))
        ferry.call("ferry_stream_wait_batch", receive, ctypes.c_void_p(consumer.cuda_stream))
        with torch.cuda.stream(consumer):
            seen = destination.clone()
            destination.fill_(-1)
        consumer.synchronize()
        for batch in (receive, send):
            ferry.call("ferry_batch_wait", batch, ctypes.c_uint64(30 * 10**9))
            ferry.lib.ferry_batch_free(batch)
        assert torch.equal(seen, there + number), f"round {number} brought other numbers"


def main():
    library, ferryd = sys.argv[1:3]
    try:
        import torch
    except ImportError as missing:
        print(f"SKIPPED: {missing}")
        return 77
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU")
        return 77
    with tempfile.TemporaryDirectory(prefix="ferry-torch-") as scratch:
        daemon = subprocess.Popen([ferryd, "--runtime-dir", os.path.join(scratch, "run")])
        try:
            os.environ["FERRY_CLIENT_DIR"] = os.path.join(scratch, "run", "client")
            ferry = Ferry(library)
            session = open_session(ferry, daemon)
            torch.cuda.memory.change_current_allocator(
                torch.cuda.memory.CUDAPluggableAllocator(library, "ferry_cuda_malloc", "ferry_cuda_free"))
            for gpu in range(min(torch.cuda.device_count(), 2)):
                send_tensors(torch, ferry, session, 0, gpu)
                print(f"{ROUNDS} tensors from GPU 0 to GPU {gpu}: fine (PyTorch {torch.__version__})")
        finally:
            daemon.terminate()
            ended = daemon.wait(timeout=60)
        assert ended == 0, f"the daemon ended with {ended}"
    sys.stdout.flush()
    os._exit(0)  # PyTorch's own end would hand memory back to a daemon that is gone


if __name__ == "__main__":
    sys.exit(main())
