#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of PyTorch on real GPUs, by the Python package. Needs neither pytest nor an installed package.

torch_tensors.py FERRYD LIBFERRY PACKAGE-FOLDER [--one NAME | --list]

Without --one each test runs in a process of its own, one after another, and says `ok`, `skipped` or `FAILED`. Exit status: 0
if nothing failed, 77 if PyTorch or a GPU is missing.
"""

import contextlib
import gc
import os
import re
import subprocess
import sys
import tempfile
import time

ROUNDS = 20
MIB = 1 << 20
SKIPPED = 77
TESTS = {}


class Skip(Exception):
    """What is missing."""


def test(function):
    TESTS[function.__name__] = function
    return function


@contextlib.contextmanager
def daemon(ferryd):
    """A daemon with all GPUs; its sessions are the default ones."""
    import ferry

    with tempfile.TemporaryDirectory(prefix="ferry-torch-") as folder:
        runtime = os.path.join(folder, "run")
        config = os.path.join(folder, "node.yaml")
        with open(config, "w") as file:
            file.write(f"node: {{ name: gpu, runtime_dir: {runtime} }}\ndevices: {{ host: 1, gpus: all }}\n")
            file.write("drain: { timeout: 1s }\nlimits: { session_bytes: 1024GiB }\n")
        os.environ["FERRY_CLIENT_DIR"] = os.path.join(runtime, "client")
        with open(os.path.join(folder, "log"), "wb") as log:
            process = subprocess.Popen([ferryd, "--config", config], stdout=log, stderr=log)
        try:
            end = time.monotonic() + 60
            while True:
                try:
                    ferry.Session().close()
                    break
                except ferry.UnavailableError:
                    if process.poll() is not None or time.monotonic() > end:
                        raise
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()
            process.wait(60)
            with open(os.path.join(folder, "log"), errors="replace") as log:
                sys.stderr.write("".join(log.readlines()[-20:]))


class Two:
    """Two GPUs, or one twice; `there` and `here` are sessions, so that each end is a client of its own."""

    def __init__(self):
        import torch

        import ferry

        self.torch, self.ferry = torch, ferry
        self.source, self.destination = "cuda:0", f"cuda:{min(1, torch.cuda.device_count() - 1)}"
        self.here, self.there = ferry.Session(name="here"), ferry.Session(name="there")
        self.from_device = self.here.gpu_of(0)
        self.to_device = self.here.gpu_of(torch.device(self.destination).index)
        assert self.from_device is not None and self.to_device is not None, self.here.devices

    def moves(self, tensor, into, key):
        """A tensor is sent by the one session, and received into another one by the other: the same elements."""
        got = self.there.recv(into=into, frm=self.from_device, key=key)
        sent = self.here.send(tensor, to=self.to_device, key=key)
        seen = got.wait_stream().cpu()
        assert self.torch.equal(seen, tensor.cpu()), key
        sent.result(30)
        got.result(30)

    def close(self):
        self.here.close()
        self.there.close()


def numbers(torch, seed, device, elements=1_000_003):
    return (torch.arange(elements, dtype=torch.float32, device=device) + seed).to(torch.bfloat16)


@test
def pool_is_zero_copy(two):
    import ferry.torch

    torch = two.torch
    pool = ferry.torch.mem_pool(two.source)
    with torch.cuda.use_mem_pool(pool, device=two.source):
        tensor = numbers(torch, 1, two.source)
    other = ferry.torch.mem_pool(two.destination)
    with torch.cuda.use_mem_pool(other, device=two.destination):
        into = torch.zeros_like(tensor, device=two.destination)
    for one in (tensor, into):
        said = two.here.explain(one)
        assert said.startswith("zero-copy") and "mem_pool" in said, said
    two.moves(tensor, into, "pool")
    assert not two.here.imports._segments


@test
def torchs_own_segments_are_imported_once(two):
    torch = two.torch
    tensors = [numbers(torch, seed, two.source, 300_000) for seed in range(4)]
    into = torch.zeros_like(tensors[0], device=two.destination)
    said = two.here.explain(tensors[0])
    if two.there.explain(into).startswith("copied"):
        raise Skip(f"memory of cudaMalloc cannot be shared here: {said}")
    assert "cudaMalloc" in said, said
    for i, tensor in enumerate(tensors):
        two.moves(tensor, into, f"own-{i}")
    segments = len(two.here.imports._segments)
    assert segments <= 2, segments
    # Views, rows and columns, as they are.
    matrix = torch.arange(6000, dtype=torch.int32, device=two.source).reshape(60, 100)
    assert "60 blocks" in two.here.explain(matrix[:, 10:20])
    got = two.there.recv(shape=(60, 10), dtype=torch.int32, frm=two.from_device, key="columns", device=two.to_device)
    two.here.send(matrix[:, 10:20], to=two.to_device, key="columns").result(30)
    assert torch.equal(torch.from_dlpack(got.result(30)).cpu(), matrix[:, 10:20].cpu())


@test
def a_segment_that_torch_gave_back_is_not_mistaken(two):
    torch = two.torch
    into = torch.zeros(20 * MIB, dtype=torch.uint8, device=two.destination)
    for seed in range(6):  # other memory, as often as not where the last was
        tensor = torch.full((20 * MIB,), seed + 1, dtype=torch.uint8, device=two.source)
        if two.here.explain(tensor).startswith("copied") or two.there.explain(into).startswith("copied"):
            raise Skip(two.here.explain(tensor))
        two.moves(tensor, into, f"again-{seed}")
        del tensor
        gc.collect()
        torch.cuda.empty_cache()


@test
def expandable_segments(two):
    torch = two.torch
    if "expandable_segments:True" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        raise Skip("this process has none")
    tensor = torch.zeros(50 * MIB, dtype=torch.uint8, device=two.source)
    into = torch.zeros(50 * MIB, dtype=torch.uint8, device=two.destination)
    said = two.here.explain(tensor)
    print(said)
    for seed in range(1, 4):
        tensor.fill_(seed)
        if two.there.explain(into).startswith("zero-copy"):
            two.moves(tensor, into, f"expandable-{seed}")
    longer = torch.arange(30 * MIB, dtype=torch.int32, device=two.source)
    got = two.there.recv(like=longer, frm=two.from_device, key="longer", device=two.to_device)
    two.here.send(longer, to=two.to_device, key="longer").result(30)
    assert torch.equal(torch.from_dlpack(got.result(30)).cpu(), longer.cpu())
    if said.startswith("copied"):
        raise Skip(f"PyTorch's expandable segments cannot be shared here, and were copied: {said}")


@test
def what_cannot_be_shared_is_copied_on_the_gpu(two):
    torch = two.torch
    for session in (two.here, two.there):  # as if the driver refused
        session.imports.place = lambda *_: (None, "the test says so")
    tensor = numbers(torch, 5, two.source)
    assert two.here.explain(tensor) == "copied once, on the GPU: the test says so"
    for i in range(3):
        before = tensor.clone()
        got = two.there.recv(like=tensor, frm=two.from_device, key=f"copied-{i}", device=two.to_device)
        sent = two.here.send(tensor, to=two.to_device, key=f"copied-{i}")
        tensor += 1  # behind the copy
        came = torch.from_dlpack(got.wait_stream()).cpu()
        assert torch.equal(came, before.cpu())
        sent.result(30)
        got.result(30)


@test
def streams_are_kept_in_order_without_the_host(two):
    torch = two.torch
    source = two.here.empty(1_000_003, "float32", device=two.from_device)
    destination = two.there.empty(1_000_003, "float32", device=two.to_device)
    tensor, into = torch.from_dlpack(source), torch.from_dlpack(destination)
    assert tensor.device == torch.device(two.source) and into.device == torch.device(two.destination)
    base = torch.arange(1_000_003, dtype=torch.float32)
    here, there = base.to(two.source), base.to(two.destination)
    producer, consumer = torch.cuda.Stream(two.source), torch.cuda.Stream(two.destination)
    torch.cuda.synchronize(two.source)
    torch.cuda.synchronize(two.destination)
    for number in range(1, ROUNDS + 1):
        with torch.cuda.stream(consumer):
            got = two.there.recv(into=into, frm=two.from_device, key=f"order-{number}")
        with torch.cuda.stream(producer):
            torch.cuda._sleep(2_000_000)  # a millisecond, or so
            torch.add(here, number, out=tensor)
            sent = two.here.send(tensor, to=two.to_device, key=f"order-{number}")
            sent.wait_stream()
            tensor.fill_(-1)  # behind what was sent
        with torch.cuda.stream(consumer):
            got.wait_stream()
            seen = into.clone()
            into.fill_(-2)
        consumer.synchronize()
        assert torch.equal(seen, there + number), number
        sent.result(30)
        got.result(30)


@test
def a_capture_is_refused_and_goes_on(two):
    torch = two.torch
    tensor = torch.zeros(1000, device=two.source)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = tensor + 1
        try:
            two.here.send(tensor, to=two.to_device, key="captured")
            raise AssertionError("a send was captured")
        except two.ferry.FailedPreconditionError as error:
            said = str(error)
    assert "captured into a CUDA graph" in said, said
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 1).all())


@test
def prepared_transfers_are_fired_by_streams(two):
    torch = two.torch
    source = two.here.empty(100_000, "float32", device=two.from_device)
    there = two.there.empty(100_000, "float32", device=two.to_device)
    tensor, into = torch.from_dlpack(source), torch.from_dlpack(there)
    with (
        two.here.prepare_send(source, to=two.to_device, key="fired") as send,
        two.there.prepare_recv(into=there, frm=two.from_device, key="fired") as receive,
    ):
        for step in range(1, ROUNDS + 1):
            tensor.fill_(step)
            receive.fire_stream()
            send.fire_stream()
            receive.wait_stream()
            seen = into.clone()
            send.wait_stream()
            assert bool((seen == step).all()), step


@test
def no_memory_says_who_holds_what(two):
    import ferry.torch

    torch = two.torch
    free, _ = torch.cuda.mem_get_info(0)
    held = two.here.empty(512 * MIB, "uint8", device=two.from_device)
    pool = ferry.torch.mem_pool()
    try:
        with torch.cuda.use_mem_pool(pool):
            torch.empty(2 * free, dtype=torch.uint8, device="cuda:0")
        raise AssertionError("it was given")
    except torch.cuda.OutOfMemoryError as error:
        said = str(error)
    print(said)
    assert "ferry.torch.mem_pool" in said and "here" in said, said
    # What torch itself has none for says what torch says.
    try:
        torch.empty(2 * free, dtype=torch.uint8, device="cuda:0")
        raise AssertionError("it was given")
    except torch.cuda.OutOfMemoryError as error:
        assert "ferry" not in str(error), error
    del held


@test
def a_state_dict_comes_back(two):
    torch = two.torch
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200)).to(two.source)
    state = model.state_dict()
    got = two.there.recv(like=state, frm=two.from_device, key="state", device=two.to_device)
    two.here.send(state, to=two.to_device, key="state").result(30)
    came = {name: torch.from_dlpack(tensor) for name, tensor in got.result(30).items()}
    assert all(torch.equal(came[name].cpu(), tensor.cpu()) for name, tensor in state.items())


@test
def placements_of_dtensors_are_torchs(two):
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import ferry.torch

    torch = two.torch
    for rank in range(6):
        torch.distributed.init_process_group("fake", rank=rank, world_size=6, store=FakeStore())
        mesh = torch.distributed.init_device_mesh("cpu", (2, 3))
        for shape in ((10, 7), (12, 9), (5, 5)):
            for placements in ([Shard(0), Shard(1)], [Replicate(), Shard(0)], [Shard(1), Replicate()], [Shard(0), Shard(0)]):
                size, offset = compute_local_shape_and_global_offset(shape, mesh, placements)
                region = ferry.torch.Layout(shape, mesh.mesh, placements).region(rank)
                assert region.size == tuple(size), (rank, shape, placements, region, size)
                assert 0 in region.size or region.offset == tuple(offset), (rank, shape, placements, region, offset)
        if rank < 5:
            torch.distributed.destroy_process_group()
    # Rank 5's part of a DTensor, to a rank that has it whole.
    mesh = torch.distributed.init_device_mesh("cuda", (2, 3))
    local = torch.arange(15, device=two.source).reshape(5, 3)
    tensor = DTensor.from_local(local, mesh, [Shard(0), Shard(1)], run_check=False, shape=torch.Size((10, 9)), stride=(9, 1))
    layout, whole = ferry.torch.Layout.of(tensor), ferry.torch.Layout((10, 9), [9], [None])
    assert layout.region(5) == ((5, 6), (5, 3))
    into = torch.from_dlpack(two.there.empty((10, 9), "int64", device=two.to_device))
    into.zero_()
    got = two.there.recv(into=into[5:, 6:], frm=two.from_device, key=ferry.torch._piece_key("dtensor", 5, 9))
    ferry.torch.send_shards(two.here, tensor, to=whole, devices={9: two.to_device}, key="dtensor").result(30)
    got.wait_stream()
    assert torch.equal(into[5:, 6:].cpu(), local.cpu()) and int(into[:5].abs().sum()) == 0
    try:
        two.here.send(tensor, to=two.to_device, key="whole")
        raise AssertionError("a DTensor was sent")
    except two.ferry.InvalidArgumentError as error:
        assert "send_shards" in str(error)


class Other:
    """A tensor as arrays of others show themselves: by `__dlpack__`, or by `__cuda_array_interface__` with their stream."""

    def __init__(self, tensor, stream=None):
        if stream is None:
            self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__
        else:
            self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "stream": stream.cuda_stream}


@test
def arrays_of_others(two):
    torch = two.torch
    own = torch.cuda.Stream(two.source)
    for seed in range(ROUNDS):
        for by_interface in (False, True):
            into = torch.zeros(1_000_003, dtype=torch.float32, device=two.destination)
            name = "interface" if by_interface else "dlpack"
            with torch.cuda.device(two.source), torch.cuda.stream(own):
                torch.cuda._sleep(1_000_000)
                tensor = torch.arange(1_000_003, dtype=torch.float32, device=two.source) + seed
            # Of the interface the stream is none that torch has for its current one; torch's own DLPack knows that alone.
            with torch.cuda.stream(torch.cuda.current_stream(two.source) if by_interface else own):
                array = Other(tensor, own if by_interface else None)
                sent = two.here.send(array, to=two.to_device, key=f"others-{seed}-{name}")
            got = two.there.recv(into=Other(into), frm=two.from_device, key=f"others-{seed}-{name}")
            got.wait_stream(torch.cuda.current_stream(two.destination).cuda_stream)
            assert torch.equal(into.cpu(), tensor.cpu()), (seed, name)
            sent.result(30)
            assert two.here.explain(array).startswith("zero-copy"), two.here.explain(array)


# Of a process without torch. JAX writes on streams of its own.
JAX_PROGRAM = """
import sys
import ferry, jax, jax.numpy as jnp
devices = jax.devices("gpu")
step = jax.jit(lambda x: (x * 2 + 1).astype(jnp.bfloat16))
with ferry.Session(name="here") as here, ferry.Session(name="there") as there:
    source, destination = here.gpu_of(0), here.gpu_of(len(devices) - 1)
    for i in range(20):
        with jax.default_device(devices[0]):
            array = step(jnp.arange(1_000_003, dtype=jnp.float32) % 100 + i)
        got = there.recv(array, frm=source, key=f"jax-{i}", device=destination)
        sent = here.send(array, to=destination, key=f"jax-{i}")
        back = jax.dlpack.from_dlpack(got.result(30))
        assert back.dtype == jnp.bfloat16 and back.devices() == {devices[-1]}, back
        assert (jax.device_get(back) == jax.device_get(array)).all(), i
        sent.result(30)
    print(here.explain(array))
assert "torch" not in sys.modules
sys.stdout.flush()
"""


@test
def jax_arrays(two):
    environment = {**os.environ, "PYTHONPATH": sys.path[0], "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    look = [sys.executable, "-c", "import jax; jax.devices('gpu')"]
    found = subprocess.run(look, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode:
        raise Skip(f"JAX has no GPU here: {found.stderr.strip().splitlines()[-1]}")
    done = subprocess.run(
        [sys.executable, "-c", JAX_PROGRAM], env=environment, capture_output=True, text=True, timeout=80, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


@test
def what_the_page_shows(two):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    pages = [os.path.join(folder, "docs", "python.md") for folder in (root, os.path.dirname(root))]  # the tree's, a bundle's
    page = next((page for page in pages if os.path.exists(page)), None)
    assert page is not None, pages
    with open(page, encoding="utf-8") as file:
        blocks = [block for block in re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S) if "torch" in block]
    assert len(blocks) == 2
    for block, said in zip(blocks, ("True\n", "zero-copy\n"), strict=True):
        done = subprocess.run(
            [sys.executable, "-c", block + "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)"],
            env={**os.environ, "PYTHONPATH": sys.path[0]}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, said), done.stdout + done.stderr


def run_one(name, ferryd):
    with daemon(ferryd):
        two = Two()
        try:
            TESTS[name](two)
        finally:
            two.close()
    return 0


def missing():
    try:
        import torch
    except ImportError as error:
        return str(error)
    return None if torch.cuda.is_available() else "PyTorch finds no GPU"


def main():
    ferryd, library, package = sys.argv[1:4]
    os.environ["FERRY_LIBRARY"] = os.path.realpath(library)
    sys.path.insert(0, package)
    if sys.argv[4:5] == ["--list"]:
        print("\n".join(TESTS))
        return 0
    why = missing()
    if why:
        print(f"SKIPPED: {why}")
        return SKIPPED
    if sys.argv[4:5] == ["--one"]:
        try:
            status = run_one(sys.argv[5], ferryd)
        except Skip as reason:
            print(f"SKIPPED: {reason}")
            status = SKIPPED
        except BaseException:
            import traceback

            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # PyTorch's own end would hand memory back to a daemon that is gone
    failed = 0
    for name in TESTS:
        environment = dict(os.environ)
        if name == "expandable_segments":
            environment["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:4], "--one", name],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        state = {0: "ok", SKIPPED: "skipped"}.get(done.returncode, "FAILED")
        failed += state == "FAILED"
        print(f"{state:8} {time.monotonic() - begin:5.1f} s  {name}", flush=True)
        if state != "ok":
            print((done.stdout + done.stderr)[-4000:], flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
