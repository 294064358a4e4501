#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A vLLM-shaped weight update: four trainer ranks at one daemon, which have rows of each weight, to two workers at another,
which need columns of one half of the weights and rows of the other; each is a process. Beside it the plain transfers of the
same bytes, from the same memory into the same, posted by all at once. Besides the rates, the CPU time of all these processes,
without the daemons': what Python does for them, whatever else the machine does meanwhile.

    weight_update.py [--rounds 15] [--weights 64] [--stand-ins]

--stand-ins: of PyTorch and vLLM, those of tests/python, where these are not installed: what is measured is ferry.vllm. Runs
against the installed package, or PYTHONPATH, $FERRY_LIBRARY and $FERRY_DAEMON. Prints two lines, medians. Exit status 8 if the
ratio is below 0.9.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
if "--stand-ins" in sys.argv and "FERRY_STAND_IN" not in os.environ:
    # Once more, and so every process that this one starts.
    folders = [os.path.join(ROOT, "tests", "python", "stand_ins"), os.environ.get("PYTHONPATH", "")]
    stand_in = {"FERRY_STAND_IN": "fake_vllm", "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **stand_in})

import torch  # noqa: E402
from state_dict import two_nodes  # noqa: E402
from vllm.distributed.weight_transfer import m2n_layout  # noqa: E402
from vllm.distributed.weight_transfer.base import ParamMeta, Shard, WeightSource  # noqa: E402

import ferry  # noqa: E402
import ferry.vllm  # noqa: E402
from ferry.torch import Layout, Region  # noqa: E402

RANKS, WORKERS = 4, 2
TARGET = 0.9
ROWS, COLUMNS = 1024, 2048  # of float32: 8 MiB a weight
SHAPE = (ROWS, COLUMNS)


def home(weight: int, worker: int) -> Region:
    """What a worker needs: columns of the even ones, rows of the odd ones."""
    return Layout(SHAPE, list(range(WORKERS)), [1 - weight % 2]).region(worker)


def pieces(weight: int, rank: int, worker: int) -> tuple[Region, Region] | None:
    """What goes from a rank to a worker: where in the rank's part, and where in the worker's; None: nothing."""
    have, need = Layout(SHAPE, list(range(RANKS)), [0]).region(rank), home(weight, worker)
    begin = [max(a, b) for a, b in zip(have.offset, need.offset, strict=True)]
    end = [min(a + c, b + d) for a, c, b, d in zip(have.offset, have.size, need.offset, need.size, strict=True)]
    if any(a >= b for a, b in zip(begin, end, strict=True)):
        return None
    size = tuple(b - a for a, b in zip(begin, end, strict=True))

    def within(whole: Region) -> Region:
        return Region(tuple(a - b for a, b in zip(begin, whole.offset, strict=True)), size)

    return within(have), within(need)


def cut(tensor: Any, region: Region) -> Any:
    return tensor[tuple(slice(a, a + b) for a, b in zip(region.offset, region.size, strict=True))]


class Rows(WeightSource):  # type: ignore[misc, unused-ignore]
    def __init__(self, weights: int) -> None:
        owners = {"owners": tuple(range(RANKS)), "mesh_shape": (RANKS,), "placements": (Shard(0),)}
        self.metadata = [ParamMeta(f"weight.{i}", torch.float32, SHAPE, **owners) for i in range(weights)]
        self.parts: list[Any] = []

    def iter_local(self) -> Iterator[tuple[str, Any]]:
        return iter((meta.name, part) for meta, part in zip(self.metadata, self.parts, strict=True))


class Trainer:
    """A rank: its engine, and its rows in memory that the daemon sees."""

    def __init__(self, rank: int, weights: int, directory: str, gather: Callable[[Any], list[Any]], client: Any) -> None:
        self.rank, self.source = rank, Rows(weights)
        info = ferry.vllm.FerryTrainerInitInfo(rank=rank, client_dir=directory, gather=gather)
        self.engine = ferry.vllm.FerryTrainerWeightTransferEngine.trainer_init(info, client=client, source=self.source)
        made = self.engine._session.empty((weights, ROWS // RANKS, COLUMNS))
        self.source.parts = [torch.from_dlpack(made[i]) for i in range(weights)]

    def plain(self, step: int) -> None:
        posted = []
        for worker in range(WORKERS):
            tree = {}
            for i, part in enumerate(self.source.parts):
                piece = pieces(i, self.rank, worker)
                if piece is not None:
                    tree[str(i)] = cut(part, piece[0])
            posted.append(self.engine._session.send(tree, to=2, key=f"{step}/{self.rank}/{worker}"))
        for one in posted:
            one.result(60)
            assert one.copied_bytes == 0


def trainer(rank: int, weights: int, directory: str, pipe: Connection) -> None:
    def gather(mine: Any) -> Any:
        pipe.send(mine)
        return pipe.recv()

    one = Trainer(rank, weights, directory, gather, None)
    for call, step in iter(pipe.recv, None):
        if call == "update":
            one.engine.send_weights()
        else:
            one.plain(step)
        pipe.send(time.process_time())
    one.engine.shutdown()


def worker(rank: int, weights: int, directory: str, pipe: Connection) -> None:
    os.environ["FERRY_CLIENT_DIR"] = directory
    parallel = SimpleNamespace(rank=rank, tensor_parallel_size=WORKERS, pipeline_parallel_size=1)
    config = SimpleNamespace(parallel_config=parallel, model_config=SimpleNamespace(quantization=None))
    engine = ferry.vllm.FerryWeightTransferEngine(None, config, torch.device("cpu"), SimpleNamespace())
    live: dict[str, Any] = {}

    def resolve(model: Any, names: list[str], *_: Any, **__: Any) -> list[Any]:
        """Every weight is written where it is used; vLLM says so of a model's layers."""
        for i, name in enumerate(names):
            live[name] = torch.from_dlpack(engine._session.empty(home(i, rank).size))
        return [SimpleNamespace(name=name, tensor=tensor, direct=True) for name, tensor in live.items()]

    m2n_layout.resolve_parameter_destinations = resolve
    for call, given in iter(pipe.recv, None):
        if call == "init_weight_transfer_engine":
            engine.init_transfer_engine(ferry.vllm.FerryWeightTransferInitInfo(**given))
        elif call == "update_weights":
            engine.receive_weights(ferry.vllm.FerryWeightTransferUpdateInfo(**given))
        elif call == "plain":
            plain(engine._session, rank, list(live.values()), given)
        else:
            getattr(engine, call)()
        pipe.send(time.process_time())
    engine.shutdown()


def plain(session: ferry.Session, worker: int, live: list[Any], step: int) -> None:
    posted = []
    for rank in range(RANKS):
        tree = {}
        for i, part in enumerate(live):
            piece = pieces(i, rank, worker)
            if piece is not None:
                tree[str(i)] = cut(part, piece[1])
        if tree:
            posted.append(session.recv(into=tree, frm=0, key=f"{step}/{rank}/{worker}", device=2))
    for one in posted:
        one.result(60)


class Client:
    """vLLM's four calls, each to both workers."""

    def __init__(self, pipes: list[Connection]) -> None:
        self.pipes = pipes
        self.used = 0.0  # seconds of CPU time that the workers have used so far

    def ask(self, call: str, given: Any = None) -> None:
        for pipe in self.pipes:
            pipe.send((call, given))
        self.used = sum(pipe.recv() for pipe in self.pipes)

    def init_weight_transfer_engine(self, info: Any) -> None:
        self.ask("init_weight_transfer_engine", info)

    def start_weight_update(self) -> None:
        self.ask("start_weight_update")

    def update_weights(self, info: Any) -> None:
        self.ask("update_weights", info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.ask("finish_weight_update")


class Measured(NamedTuple):
    """Of each update, and of each time the plain transfers: seconds, and those of CPU time of all processes."""

    updates: list[float]
    plains: list[float]
    updates_cpu: list[float]
    plains_cpu: list[float]


def measure(directories: list[str], weights: int, rounds: int) -> Measured:
    here, there = (os.path.join(directory, "client") for directory in directories)
    context = multiprocessing.get_context("spawn")
    asked: list[list[Connection]] = [[], []]
    for pipes, target, many, place in ((asked[0], worker, range(WORKERS), there), (asked[1], trainer, range(1, RANKS), here)):
        for rank in many:
            mine, theirs = context.Pipe()
            pipes.append(mine)
            context.Process(target=target, args=(rank, weights, place, theirs), daemon=True).start()
    workers, ranks = asked

    def gather(mine: Any) -> list[Any]:
        all_of_it = [mine, *(pipe.recv() for pipe in ranks)]
        for pipe in ranks:
            pipe.send(all_of_it)
        return all_of_it

    client = Client(workers)
    one = Trainer(0, weights, here, gather, client)
    made = Measured([], [], [], [])
    used = 0.0
    for step in range(rounds + 1):
        for pipe in ranks:
            pipe.send(("update", step))
        begin = time.perf_counter()
        one.engine.send_weights()
        made.updates.append(time.perf_counter() - begin)
        before, used = used, sum(pipe.recv() for pipe in ranks) + client.used + time.process_time()
        made.updates_cpu.append(used - before)
        begin = time.perf_counter()
        for pipe in (*ranks, *workers):
            pipe.send(("plain", step))
        one.plain(step)
        before, used = used, sum([pipe.recv() for pipe in (*ranks, *workers)], time.process_time())
        made.plains.append(time.perf_counter() - begin)
        made.plains_cpu.append(used - before)
    for pipe in (*ranks, *workers):
        pipe.send(None)
    one.engine.shutdown()
    return Measured(*(values[1:] for values in made))  # the first one maps what the others use


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--weights", type=int, default=64, help="of 8 MiB each")
    parser.add_argument("--stand-ins", action="store_true", help="of PyTorch and vLLM")
    given = parser.parse_args()
    with two_nodes() as directories:
        made = measure(directories, given.weights, given.rounds)
    gigabytes = given.weights * ROWS * COLUMNS * 4 / 1e9
    own, other = (gigabytes / statistics.median(times) for times in made[:2])
    own_cpu, other_cpu = (1e3 * statistics.median(times) for times in made[2:])
    print(
        f"vLLM-shaped weight update, {RANKS} ranks to {WORKERS} workers, {gigabytes:.2f} GB: {own:.2f} GB/s; plain transfers "
        f"of the same bytes: {other:.2f} GB/s; ratio {own / other:.2f}"
    )
    print(f"CPU time of the {RANKS + WORKERS} processes: {own_cpu:.0f} ms an update; of the plain transfers {other_cpu:.0f} ms")
    return 0 if own >= TARGET * other else 8


if __name__ == "__main__":
    sys.exit(main())
