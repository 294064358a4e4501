# SPDX-License-Identifier: Apache-2.0
"""verl's checkpoint engine by Ferry: two actor ranks, two rollouts, and one that joins later and gets the last version.

The engines are verl's own, made by its registry. What verl's manager asks of them by Ray goes by pipes here; with that manager
`ferry.verl.join_replicas` is what has replicas join. Of host memory, or on GPUs (--cuda).

    pip install 'ferry-transfer[node]' verl
    python examples/python/verl_transfer.py [--cuda]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import torch
from framework_workers import SHAPES, Workers, main, value
from verl.checkpoint_engine.base import CheckpointEngineRegistry

import ferry.verl  # noqa: F401  # which registers the engine

ACTORS, ROLLOUTS, STEPS = 2, 2, 3


class Worker:
    """An actor or a rollout: whatever it is asked."""

    def __init__(self, place: int, device: Any) -> None:
        self.device, self.engine = device, CheckpointEngineRegistry.new("ferry", bucket_size=1 << 16)
        self.loaded: dict[str, Any] = {}

    def prepare(self) -> Any:
        return self.engine.prepare()

    def init_process_group(self, told: dict[str, Any]) -> None:
        self.engine.init_process_group(**told)

    def finalize(self) -> None:
        self.engine.finalize()

    def send(self, step: int) -> None:
        asyncio.run(self.engine.send_weights(self.weights(step), step))

    def weights(self, step: int) -> Iterator[tuple[str, Any]]:
        """The whole of each, as verl's actors gather them, all ranks together: of two ranks each keeps every second one."""
        for name in SHAPES:
            yield name, value(name, step).to(self.device)

    def receive(self, step: int) -> None:
        asyncio.run(self.load(self.engine.receive_weights(step)))

    def join(self, actors: list[Any]) -> None:
        asyncio.run(self.load(self.engine.join(actors)))

    async def load(self, stream: Any) -> None:
        """As a server does, one weight after the other."""
        self.loaded = {name: tensor.clone() async for name, tensor in stream}

    def routes(self, step: int) -> str:
        """By which the weights of a step came, which are all there."""
        assert sorted(self.loaded) == sorted(SHAPES)
        assert all(torch.equal(tensor.cpu(), value(name, step)) for name, tensor in self.loaded.items())
        return "+".join(self.engine.routes)

    def close(self) -> None:
        self.engine.close()


def update(actors: Workers, rollouts: Workers, step: int) -> None:
    """As verl's manager does it."""
    prepared = actors.all("prepare") + rollouts.all("prepare")
    topology = CheckpointEngineRegistry.get("ferry").build_topology(ACTORS, ROLLOUTS, prepared)
    for workers, columns in zip((actors, rollouts), topology, strict=True):
        workers.ask(
            "init_process_group",
            [({name: values[i] for name, values in columns.items()},) for i in range(len(workers.pipes))],
        )
        workers.answers()
    actors.ask("send", [(step,)] * ACTORS)
    rollouts.all("receive", step)
    actors.answers()
    for workers in (actors, rollouts):
        workers.all("finalize")


def run(cuda: bool) -> int:
    actors, rollouts = Workers(Worker, 0, ACTORS, cuda), Workers(Worker, ACTORS, ROLLOUTS, cuda)
    for step in range(1, STEPS + 1):
        update(actors, rollouts, step)
    print(f"{ROLLOUTS} rollouts have step {STEPS} by route {'+'.join(sorted(set(rollouts.all('routes', STEPS))))}")
    late = Workers(Worker, ACTORS + ROLLOUTS, 1, cuda)
    late.all("join", actors.all("prepare"))
    print(f"one that has joined has step {STEPS} by route {'+'.join(late.all('routes', STEPS))}")
    return max(workers.end() for workers in (late, rollouts, actors))


if __name__ == "__main__":
    sys.exit(main("verl's checkpoint engine by Ferry", run))
