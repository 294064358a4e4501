# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors of PyTorch from one process to another: a tensor of 1 GiB beside the driver's own copy, and a state dict of the
shapes of a Llama of 8 billion parameters (16 GB) beside torch.distributed, tensor by tensor.

Each end is a process with a GPU of its own, or both have the one there is; then there is nothing to compare the state dict
with, since NCCL takes no two ranks on one GPU. The time of a round is that of the slower end; medians.

    python gpu_tensors.py --ferryd bin/ferryd --library lib/libferry.so.0 --package share/ferry/python
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

GIB = 1 << 30


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
        self.peer = self.session.gpu_of((1 - rank) % self.gpus)
        self.step = 0

    def together(self, seconds: float) -> float:
        """The slower end's."""
        mine = self.torch.tensor([seconds], dtype=self.torch.float64)
        self.torch.distributed.all_reduce(mine, op=self.torch.distributed.ReduceOp.MAX)
        return float(mine[0])

    def measure(self, move: Callable[[], None]) -> list[float]:
        times = []
        for _ in range(self.given.rounds + 1):
            self.torch.cuda.synchronize()
            self.together(0)
            begin = time.perf_counter()
            move()
            self.torch.cuda.synchronize()
            times.append(self.together(time.perf_counter() - begin))
        return times

    def by_ferry(self, tree: Any) -> Callable[[], None]:
        def move() -> None:
            self.step += 1
            if self.rank == 0:
                self.session.send(tree, to=self.peer, key=self.step).result(120)
            else:
                self.session.recv(into=tree, frm=self.peer, key=self.step).result(120)

        return move

    def prepared(self, tree: Any) -> Callable[[], None]:
        if self.rank == 0:
            pair = self.session.prepare_send(tree, to=self.peer, key="prepared")
        else:
            pair = self.session.prepare_recv(into=tree, frm=self.peer, key="prepared")

        def move() -> None:
            pair.fire()
            pair.wait(timeout=120)

        return move

    def by_torch(self, tree: dict[str, Any]) -> Callable[[], None]:
        def move() -> None:
            for tensor in tree.values():
                if self.rank == 0:
                    self.torch.distributed.send(tensor, 1)
                else:
                    self.torch.distributed.recv(tensor, 0)

        return move

    def say(self, what: str, nbytes: int, times: list[float], beside: float, by: str) -> float:
        """Of the first round, which imports and connects, only how long it took. GB/s."""
        rate = nbytes / 1e9 / statistics.median(times[1:])
        if self.rank == 0:
            ratio = f"{rate / beside:6.2f} of {by}" if beside else ""
            print(f"{what:<52} {rate:8.1f} GB/s  first {times[0] * 1e3:8.1f} ms  {ratio}", flush=True)
        return rate

    def run(self) -> None:
        torch = self.torch
        if self.rank == 0:
            print(f"PyTorch {torch.__version__}, {self.gpus} of {torch.cuda.get_device_name(0)}", flush=True)
        copy = self.copy()
        self.pool(copy)
        self.own(copy)
        state = llama(torch, self.given.layers, self.device)
        nbytes = sum(tensor.nbytes for tensor in state.values())
        name = f"{len(state)} tensors, {nbytes / 1e9:.1f} GB"
        if self.gpus == 2:
            beside, by = self.say(f"{name}, torch.distributed", nbytes, self.measure(self.by_torch(state)), 0, ""), "that"
        else:
            beside, by = copy, "copy_"
        self.say(f"{name}, Ferry, PyTorch's own memory", nbytes, self.measure(self.by_ferry(state)), beside, by)
        del state
        torch.cuda.empty_cache()
        with torch.cuda.use_mem_pool(self.memory):
            pooled = llama(torch, self.given.layers, self.device)
        self.say(f"{name}, Ferry, the pool's", nbytes, self.measure(self.by_ferry(pooled)), beside, by)
        self.say(f"{name}, Ferry, the pool's, prepared", nbytes, self.measure(self.prepared(pooled)), beside, by)

    def copy(self) -> float:
        source = random_bytes(self.torch, GIB, self.torch.uint8, self.device)
        to = self.torch.zeros(GIB, dtype=self.torch.uint8, device=f"cuda:{(1 - self.rank) % self.gpus}")

        def move() -> None:
            if self.rank == 0:
                to.copy_(source)

        return self.say("1 GiB, copy_ within one process", GIB, self.measure(move), 0, "")

    def pool(self, copy: float) -> None:
        import ferry.torch

        self.memory = ferry.torch.mem_pool()
        with self.torch.cuda.use_mem_pool(self.memory):
            tensor = random_bytes(self.torch, GIB, self.torch.uint8, self.device)
        self.say("1 GiB, of ferry.torch.mem_pool", GIB, self.measure(self.by_ferry(tensor)), copy, "copy_")

    def own(self, copy: float) -> None:
        tensor = random_bytes(self.torch, GIB, self.torch.uint8, self.device)
        shared = self.session.explain(tensor).startswith("zero-copy")
        if self.together(not shared):  # a receive needs what can be shared
            if self.rank == 0:
                print(f"1 GiB, of PyTorch's own allocator: {self.session.explain(tensor)}", flush=True)
            return
        self.say("1 GiB, of PyTorch's own allocator", GIB, self.measure(self.by_ferry(tensor)), copy, "copy_")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ferryd", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--package", required=True)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    sys.path.insert(0, given.package)
    os.environ["FERRY_LIBRARY"] = os.path.realpath(given.library)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")  # both ends are on this machine
    if given.rank is not None:
        End(given.rank, given).run()
        sys.stdout.flush()
        os._exit(0)  # PyTorch's own end would hand memory back to a daemon that may be gone
    try:
        import torch
    except ImportError as missing:
        print(f"SKIPPED: {missing}")
        return 77
    if not torch.cuda.is_available():
        print("SKIPPED: PyTorch finds no GPU")
        return 77
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
            ends = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(2)]
            statuses = [end.wait() for end in ends]
        finally:
            daemon.terminate()
            daemon.wait(60)
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
