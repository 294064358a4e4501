# SPDX-License-Identifier: Apache-2.0
"""verl's checkpoint engine by Ferry: two actor ranks, two rollouts, and one that joins later and gets the last version.

The engines are verl's own, made by its registry. What verl's manager asks of them by Ray goes by pipes here; with that manager
`ferry.verl.join_replicas` is what has replicas join. Of host memory, or on GPUs (--cuda).

    pip install 'ferry-transfer[node]' verl
    python examples/python/verl_transfer.py [--cuda]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngineRegistry

import ferry
import ferry.verl

ACTORS, ROLLOUTS, STEPS = 2, 2, 3
SHAPES = {"embed": (512, 96), "up": (256, 384), "down": (384, 96), "norm": (96, 1)}


def value(name: str, step: int) -> Any:
    rows, columns = SHAPES[name]
    return torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) + 1000 * step


def weights(step: int, device: Any) -> Iterator[tuple[str, Any]]:
    """The whole of each, as verl's actors gather them, all ranks together: of two ranks each keeps every second one."""
    for name in SHAPES:
        yield name, value(name, step).to(device)


async def received(stream: Any) -> dict[str, Any]:
    """What a server loads, one weight after the other."""
    return {name: tensor.clone() async for name, tensor in stream}


def worker(place: int, cuda: bool, pipe: Connection) -> None:
    """An actor or a rollout: whatever it is asked."""
    device = torch.device("cpu")
    if cuda:
        torch.cuda.set_device(place % torch.cuda.device_count())
        device = torch.device("cuda", torch.cuda.current_device())
    engine = CheckpointEngineRegistry.new("ferry", bucket_size=1 << 16)
    loaded: dict[str, Any] = {}
    for call, given in iter(pipe.recv, None):
        said: Any = None
        if call == "send":
            asyncio.run(engine.send_weights(weights(given, device), given))
        elif call == "receive":
            loaded = asyncio.run(received(engine.receive_weights(given)))
        elif call == "join":
            loaded = asyncio.run(received(engine.join(given)))
        elif call == "check":
            assert sorted(loaded) == sorted(SHAPES)
            assert all(torch.equal(tensor.cpu(), value(name, given)) for name, tensor in loaded.items())
            said = "+".join(engine.routes)
        else:
            said = getattr(engine, call)(**given)
        pipe.send(said)
    engine.close()


class Workers:
    """Processes, each with an engine."""

    def __init__(self, first: int, count: int, cuda: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        for i in range(count):
            mine, theirs = context.Pipe()
            self.pipes.append(mine)
            self.processes.append(context.Process(target=worker, args=(first + i, cuda, theirs), daemon=True))
            self.processes[-1].start()
            theirs.close()  # so that the end of the process is an end of the pipe

    def ask(self, call: str, each: list[Any]) -> None:
        for pipe, given in zip(self.pipes, each, strict=True):
            pipe.send((call, given))

    def answers(self) -> list[Any]:
        return [pipe.recv() for pipe in self.pipes]

    def all(self, call: str, given: Any) -> list[Any]:
        self.ask(call, [given] * len(self.pipes))
        return self.answers()

    def end(self) -> int:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()
        return int(max(abs(process.exitcode) for process in self.processes))


def update(actors: Workers, rollouts: Workers, step: int) -> None:
    """As verl's manager does it."""
    prepared = actors.all("prepare", {}) + rollouts.all("prepare", {})
    topology = CheckpointEngineRegistry.get("ferry").build_topology(ACTORS, ROLLOUTS, prepared)
    for workers, columns in zip((actors, rollouts), topology, strict=True):
        each = [{name: values[i] for name, values in columns.items()} for i in range(len(workers.pipes))]
        workers.ask("init_process_group", each)
        workers.answers()
    actors.ask("send", [step] * ACTORS)
    rollouts.all("receive", step)
    actors.answers()
    for workers in (actors, rollouts):
        workers.all("finalize", {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--cuda", action="store_true", help="weights on GPUs; the daemon is that of $FERRY_CLIENT_DIR")
    cuda = parser.parse_args().cuda
    if cuda:
        return run(cuda)
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        return run(cuda)


def run(cuda: bool) -> int:
    actors, rollouts = Workers(0, ACTORS, cuda), Workers(ACTORS, ROLLOUTS, cuda)
    for step in range(1, STEPS + 1):
        update(actors, rollouts, step)
    print(f"{ROLLOUTS} rollouts have step {STEPS} by route {'+'.join(sorted(set(rollouts.all('check', STEPS))))}")
    late = Workers(ACTORS + ROLLOUTS, 1, cuda)
    late.all("join", actors.all("prepare", {}))
    print(f"one that has joined has step {STEPS} by route {'+'.join(late.all('check', STEPS))}")
    return max(workers.end() for workers in (late, rollouts, actors))


if __name__ == "__main__":
    sys.exit(main())
