# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of PyTorch from one process to another, beside what else moves them. A tensor of 1 GiB beside the C++ bench. A
state dict of the shapes of a Llama of 8 billion parameters (16 GB) beside torch.distributed by tensor, batched and by
broadcasts, also while the receiving process multiplies matrices. 10,000 scattered blocks of 64 KiB by index table beside NIXL,
if it is installed, whose whole memory is one strided list and whose request is posted again and again.

Each end is a process with a GPU of its own, or both have the one there is; then there is nothing to compare the state dict
with, since NCCL takes no two ranks on one GPU. The time of a round is that of the slower end; medians. Each row is printed when
it is measured, and all of them again as a table. Some three minutes on two GPUs. Exit status: 0, 8 if a target is missed, 77 if
there is no GPU or no PyTorch, 1 if something failed.

    python gpu_tensors.py --ferryd bin/ferryd --library lib/libferry.so.0 --package share/ferry/python
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Optional

GIB = 1 << 30
BLOCKS, BLOCK, OF = 10_000, 1 << 16, 20_000  # so many are moved, of that size, of so many


def random_bytes(torch: Any, shape: Any, dtype: Any, device: str) -> Any:
    made = torch.empty(shape, dtype=dtype, device=device)
    made.view(torch.uint8).random_(256)
    return made


def llama(torch: Any, layers: int, device: str) -> dict[str, Any]:
    hidden, inner, heads, words = 4096, 14336, 1024, 128256
    shapes: dict[str, tuple[int, ...]] = {"embed": (words, hidden), "head": (words, hidden), "norm": (hidden,)}
    for i in range(layers):
        for name, shape in {
            "q": (hidden, hidden), "k": (heads, hidden), "v": (heads, hidden), "o": (hidden, hidden), "gate": (inner, hidden),
            "up": (inner, hidden), "down": (hidden, inner), "norm1": (hidden,), "norm2": (hidden,),
        }.items():  # fmt: skip
            shapes[f"layers.{i}.{name}"] = shape
    return {name: random_bytes(torch, shape, torch.bfloat16, device) for name, shape in shapes.items()}


class Row(NamedTuple):
    """GB/s, unless `unit` says otherwise. `beside`: of whom, and what they reach."""

    case: str
    rate: float
    beside: str = ""
    theirs: float = 0.0
    target: float = 0.0
    unit: str = "GB/s"

    @property
    def missed(self) -> bool:
        return bool(self.target and self.theirs) and self.rate < self.target * self.theirs

    def __str__(self) -> str:
        ratio = f"{self.rate / self.theirs:6.2f} of {self.beside} ({self.theirs:.1f})" if self.theirs else ""
        target = f", target {self.target}{', missed' if self.missed else ''}" if self.target and self.theirs else ""
        return f"{self.case:<58} {self.rate:8.1f} {self.unit}  {ratio}{target}"


class Products:
    """bf16 matrices are multiplied on a stream of their own, two in a row at a time, from a thread of this process."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._left, self._right = (torch.randn(8192, 8192, device="cuda").to(torch.bfloat16) for _ in range(2))
        self._into = torch.empty_like(self._left)
        self._stream, self._end, self.done = torch.cuda.Stream(), threading.Event(), 0
        torch.cuda.synchronize()

    def _run(self) -> None:
        torch = self._torch
        torch.cuda.set_device(self._left.device)
        events = [torch.cuda.Event() for _ in range(2)]
        turn = 0
        with torch.cuda.stream(self._stream):
            for event in events:
                event.record()
            while not self._end.is_set():
                events[turn].synchronize()
                torch.matmul(self._left, self._right, out=self._into)
                events[turn].record()
                turn, self.done = 1 - turn, self.done + 1
        self._stream.synchronize()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._end.clear()
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()


class Start:
    """Counts of both ends in memory that both see: they leave it within a microsecond of each other. After a collective of
    gloo they would begin 0.1 ms apart, a thirtieth of what 1 GiB takes."""

    def __init__(self, path: str, rank: int) -> None:
        with open(path, "r+b") as file:
            self._reached = memoryview(mmap.mmap(file.fileno(), 16)).cast("Q")
        self._rank = rank

    def wait(self) -> None:
        self._reached[self._rank] += 1
        end = time.monotonic() + 600
        while self._reached[1 - self._rank] < self._reached[self._rank]:
            if time.monotonic() > end:
                raise TimeoutError("the other end did not begin")


class Loaded(NamedTuple):
    times: list[float]
    products: float  # of the receiver, a second, while it moves


class End:
    """One of the two processes; both do the same steps."""

    def __init__(self, rank: int, given: argparse.Namespace) -> None:
        import torch
        import torch.distributed

        import ferry

        self.torch, self.rank, self.given = torch, rank, given
        self.gpus = min(2, torch.cuda.device_count())
        self.device = f"cuda:{rank % self.gpus}"
        torch.cuda.set_device(self.device)
        backend = "cpu:gloo,cuda:nccl" if self.gpus == 2 else "gloo"
        torch.distributed.init_process_group(backend, init_method=f"tcp://127.0.0.1:{given.port}", rank=rank, world_size=2)
        self.session = ferry.Session(name=f"rank-{rank}")
        peer = self.session.gpu_of((1 - rank) % self.gpus)
        assert peer is not None, self.session.devices
        self.peer = peer
        self.start = Start(given.start, rank)
        self.step, self.rows = 0, []  # type: tuple[int, list[Row]]

    # ---- How

    def together(self, seconds: float) -> float:
        """The slower end's."""
        mine = self.torch.tensor([seconds], dtype=self.torch.float64)
        self.torch.distributed.all_reduce(mine, op=self.torch.distributed.ReduceOp.MAX)
        return float(mine[0])

    def measure(self, move: Callable[[], None]) -> list[float]:
        """Of the first round, which imports and connects, too."""
        times = []
        for _ in range(self.given.rounds + 1):
            begin = self.begin()
            move()
            self.torch.cuda.current_stream().synchronize()
            times.append(self.together(time.perf_counter() - begin))
        return times

    def begin(self) -> float:
        self.torch.cuda.current_stream().synchronize()
        self.start.wait()
        return time.perf_counter()

    def loaded(self, move: Callable[[], None]) -> Loaded:
        """The same while the receiver multiplies."""
        times, products, spent = [], 0, 0.0
        with self.products.running() if self.rank else contextlib.nullcontext():
            for i in range(self.given.rounds + 1):
                begin, done = self.begin(), self.products.done
                move()
                self.torch.cuda.current_stream().synchronize()
                mine = time.perf_counter() - begin
                if i:
                    products, spent = products + self.products.done - done, spent + mine
                times.append(self.together(mine))
        return Loaded(times, self.together(products / spent if self.rank else 0))

    def rate(self, nbytes: int, times: list[float]) -> float:
        return nbytes / 1e9 / statistics.median(times[1:])

    def say(self, *row: Any) -> float:
        self.rows.append(Row(*row))
        if self.rank == 0:
            print(self.rows[-1], flush=True)
        return self.rows[-1].rate

    # ---- What moves

    def by_ferry(self, tree: Any) -> Callable[[], None]:
        def move() -> None:
            self.step += 1
            if self.rank == 0:
                self.session.send(tree, to=self.peer, key=self.step).result(120)
            else:
                self.session.recv(into=tree, frm=self.peer, key=self.step).result(120)

        return move

    @contextlib.contextmanager
    def prepared(self, tree: Any) -> Iterator[Callable[[], None]]:
        self.step += 1
        if self.rank == 0:
            pair = self.session.prepare_send(tree, to=self.peer, key=self.step)
        else:
            pair = self.session.prepare_recv(into=tree, frm=self.peer, key=self.step)

        def move() -> None:
            pair.fire()
            pair.wait(timeout=120)

        with pair:
            yield move

    def by_torch(self, tree: dict[str, Any]) -> dict[str, Callable[[], None]]:
        distributed = self.torch.distributed
        one = distributed.send if self.rank == 0 else distributed.recv
        posted = distributed.isend if self.rank == 0 else distributed.irecv

        def by_tensor() -> None:
            for tensor in tree.values():
                one(tensor, 1 - self.rank)

        def batched() -> None:
            for work in distributed.batch_isend_irecv([distributed.P2POp(posted, one, 1 - self.rank) for one in tree.values()]):
                work.wait()

        def broadcast() -> None:
            for tensor in tree.values():
                distributed.broadcast(tensor, 0)

        return {"by tensor": by_tensor, "batched": batched, "broadcast": broadcast}

    # ---- The cases

    def run(self) -> None:
        import ferry.torch

        torch = self.torch
        if self.rank == 0:
            print(f"PyTorch {torch.__version__}, {self.gpus} of {torch.cuda.get_device_name(0)}", flush=True)
        self.memory = ferry.torch.mem_pool()
        self.large()
        self.state()
        self.blocks()
        if self.rank == 0:
            print("\n" + "\n".join(map(str, self.rows)), flush=True)

    def pooled(self, make: Callable[[], Any]) -> Any:
        with self.torch.cuda.use_mem_pool(self.memory):
            return make()

    def copy(self, source: Any) -> list[float]:
        to = self.torch.zeros(GIB, dtype=self.torch.uint8, device=f"cuda:{(1 - self.rank) % self.gpus}")

        def move() -> None:
            if self.rank == 0:
                to.copy_(source)

        return self.measure(move)

    def large(self) -> None:
        torch = self.torch
        source = random_bytes(torch, GIB, torch.uint8, self.device)
        copy = self.say("1 GiB, copy_ in one process", self.rate(GIB, self.copy(source)))
        posted, prepared = (self.given.bench.get(name, copy) for name in ("posted", "prepared"))
        by = "the C++ bench" if self.given.bench else "copy_"
        pool = self.pooled(lambda: random_bytes(torch, GIB, torch.uint8, self.device))
        self.say("1 GiB of the pool, posted", self.rate(GIB, self.measure(self.by_ferry(pool))), by, posted, 0.98)
        with self.prepared(pool) as move:
            self.say("1 GiB of the pool, prepared", self.rate(GIB, self.measure(move)), by, prepared, 0.98)
        shared = self.session.explain(source).startswith("zero-copy")
        if self.together(not shared):  # a receive needs what can be shared
            if self.rank == 0:
                print(f"1 GiB of PyTorch's own allocator: {self.session.explain(source)}", flush=True)
            return
        self.say("1 GiB of PyTorch's own, posted", self.rate(GIB, self.measure(self.by_ferry(source))), by, posted, 0.95)

    def state(self) -> None:
        torch = self.torch
        state = llama(torch, self.given.layers, self.device)
        nbytes = sum(tensor.nbytes for tensor in state.values())
        name = f"{len(state)} tensors, {nbytes / 1e9:.1f} GB"
        ways = self.by_torch(state) if self.gpus == 2 else {}
        theirs = {
            way: self.say(f"{name}, torch.distributed {way}", self.rate(nbytes, self.measure(move)))
            for way, move in ways.items()
        }
        best = max(theirs.values(), default=0.0)
        by = "torch.distributed's best"
        own = self.rate(nbytes, self.measure(self.by_ferry(state)))
        self.say(f"{name}, PyTorch's own, posted", own, by, best, 1.08)
        self.products = Products(torch)
        alone = self.alone()
        others = {way: self.loaded(ways[way]) for way in ("by tensor", "batched") if way in ways}
        rates = {way: self.rate(nbytes, one.times) for way, one in others.items()}
        for way, one in others.items():
            self.say(f"{name}, beside products, torch {way}", rates[way])
            self.say(f"products beside torch {way}", one.products, "those alone", alone, 0, "a second")
        del state, ways
        torch.cuda.empty_cache()
        pooled = self.pooled(lambda: llama(torch, self.given.layers, self.device))
        posted = self.by_ferry(pooled)
        self.say(f"{name}, the pool's, posted", self.rate(nbytes, self.measure(posted)), by, best, 1.08)
        with self.prepared(pooled) as prepared:
            self.say(f"{name}, the pool's, prepared", self.rate(nbytes, self.measure(prepared)), by, best, 1.15)
            for how, move in (("posted", posted), ("prepared", prepared)):
                one = self.loaded(move)
                for way, target in (("by tensor", 5), ("batched", 1.4)):
                    rate = self.rate(nbytes, one.times)
                    self.say(f"{name}, beside products, {how}", rate, f"torch {way}", rates.get(way, 0), target)
                self.say(f"products beside Ferry, {how}", one.products, "those alone", alone, 0.9, "a second")

    def alone(self) -> float:
        """Products a second, of the receiver."""
        if self.rank == 0:
            return self.together(0)
        with self.products.running():
            time.sleep(0.3)  # clocks rise
            begin, done = time.perf_counter(), self.products.done
            time.sleep(1)
            return self.together((self.products.done - done) / (time.perf_counter() - begin))

    def blocks(self) -> None:
        import numpy

        import ferry

        nbytes, name = BLOCKS * BLOCK, f"{BLOCKS} blocks of {BLOCK >> 10} KiB by table"
        order = numpy.random.default_rng(self.rank).permutation(OF)[:BLOCKS].astype("u8")
        tensor = self.pooled(lambda: random_bytes(self.torch, (OF, BLOCK), self.torch.uint8, self.device))
        theirs = self.nixl(order)
        if theirs is None and self.rank == 0:
            print("NIXL is not installed", flush=True)
        beside = 0.0 if theirs is None else self.say(f"{name}, NIXL", self.rate(nbytes, theirs))
        picked = ferry.Blocks(tensor, order)
        self.say(f"{name}, posted", self.rate(nbytes, self.measure(self.by_ferry(picked))), "NIXL", beside, 3)
        with self.prepared(picked) as move:
            self.say(f"{name}, prepared", self.rate(nbytes, self.measure(move)), "NIXL", beside, 10)
        # Both ends may look: what is in the blocks of the one is in those of the other.
        indices = self.torch.from_numpy(order.astype("i8")).to(self.device)
        weights = self.torch.arange(1, BLOCKS + 1, device=self.device)
        total = float((tensor[indices].sum(1, dtype=self.torch.int64) * weights).sum())
        assert self.together(total) == total == -self.together(-total), "the blocks that came are others"

    def nixl(self, order: Any) -> Optional[list[float]]:
        try:
            from nixl_cu13 import nixl_agent, nixl_agent_config
        except ImportError:
            try:
                from nixl import nixl_agent, nixl_agent_config
            except ImportError:
                return None
        import numpy

        memory = random_bytes(self.torch, (OF, BLOCK), self.torch.uint8, self.device)
        agent = nixl_agent(f"rank-{self.rank}", nixl_agent_config(backends=["UCX"]))
        kept = agent.register_memory(memory)
        told: list[Any] = [None, None]
        mine = (agent.get_agent_metadata(), memory.data_ptr(), memory.get_device(), order.astype("i4"))
        self.torch.distributed.all_gather_object(told, mine)
        if self.rank == 0:
            metadata, address, ordinal, there = told[1]

            def whole(of: str, at: int, device: int) -> Any:
                return agent.prep_xfer_dlist(of, numpy.array([[at, BLOCK, device, BLOCK, OF]], "u8"), mem_type="VRAM")

            lists = whole("", memory.data_ptr(), memory.get_device()), whole(agent.add_remote_agent(metadata), address, ordinal)
            request = agent.make_prepped_xfer("WRITE", lists[0], mine[3], lists[1], there)

        def move() -> None:
            if self.rank:
                return
            state = agent.transfer(request)
            while state == "PROC":
                state = agent.check_xfer_state(request)
            assert state == "DONE", state

        times = self.measure(move)
        self.together(0)
        agent.deregister_memory(kept)
        return times


def of_the_bench(path: str) -> dict[str, float]:
    """GB/s of the C++ bench for 1 GiB between two GPUs of one daemon, posted and prepared; empty if it cannot be run here."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [path, "--cases", "large", "--routes", "local", "--rounds", "5", "--json", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 8):  # 8: some target of its own is missed
            print(f"{path}: exit status {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}", flush=True)
            return {}
        rows = json.load(file)["rows"]
    rates: dict[str, float] = {}
    for how in ("posted", "prepared"):
        row = next(row for row in rows if row["case"].endswith(f"GiB {how} local"))
        rates[how] = row["warm"]
        print(f"1 GiB, the C++ bench, {how}: {row['warm']:.1f} GB/s, {row['measured']:.2f} of {row['against']}", flush=True)
    return rates


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def status_of(ends: list[int]) -> int:
    """Of both: something that failed counts more than a target that is missed."""
    return 1 if set(ends) - {0, 8} else max(ends)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ferryd", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--bench", help="ferry_gpu_bench; default: beside ferryd")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--start", help=argparse.SUPPRESS)
    given = parser.parse_args()
    bench = given.bench or os.path.join(os.path.dirname(os.path.abspath(given.ferryd)), "ferry_gpu_bench")
    sys.path.insert(0, given.package)
    os.environ["FERRY_LIBRARY"] = os.path.realpath(given.library)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")  # both ends are on this machine
    if given.rank is not None:
        given.bench = json.loads(given.bench)
        end = End(given.rank, given)
        end.run()
        sys.stdout.flush()
        status = 8 if any(row.missed for row in end.rows) else 0
        os._exit(status)  # PyTorch's own end would hand memory back to a daemon that may be gone
    try:
        import torch
    except ImportError as missing:
        print(f"SKIPPED: {missing}")
        return 77
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU")
        return 77
    rates = of_the_bench(bench) if os.path.exists(bench) else {}
    with tempfile.TemporaryDirectory(prefix="ferry-bench-") as folder:
        runtime = os.path.join(folder, "run")
        daemon = subprocess.Popen([given.ferryd, "--runtime-dir", runtime, "--log-level", "warn"])
        try:
            os.environ["FERRY_CLIENT_DIR"] = os.path.join(runtime, "client")
            import ferry

            while True:
                try:
                    ferry.Session().close()
                    break
                except ferry.UnavailableError:
                    if daemon.poll() is not None:
                        raise
                    time.sleep(0.05)
            command = [sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:], "--port", str(free_port())]
            start = os.path.join(folder, "start")
            with open(start, "wb") as file:
                file.write(bytes(16))
            command += ["--bench", json.dumps(rates), "--start", start]
            ends = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(2)]
            statuses = [end.wait() for end in ends]
        finally:
            daemon.terminate()
            daemon.wait(60)
    return status_of(statuses)


if __name__ == "__main__":
    sys.exit(main())
