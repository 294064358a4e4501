# SPDX-License-Identifier: Apache-2.0
"""ferry.verl over a stand-in of verl's base class: actors on node a, rollouts on node b. With verl's own: tests/frameworks."""

import asyncio
import sys

import fake_torch_cpu
import numpy as np
import pytest

import ferry


@pytest.fixture
def engines(monkeypatch, nodes):
    fake_torch_cpu.install(monkeypatch)
    fake_torch_cpu.packages(monkeypatch, "verl", "verl.checkpoint_engine", "verl.checkpoint_engine.base")
    registry = {}

    class CheckpointEngineRegistry:
        def register(backend):
            return lambda made: registry.setdefault(backend, made)

    base = sys.modules["verl.checkpoint_engine.base"]
    base.CheckpointEngine, base.CheckpointEngineRegistry = object, CheckpointEngineRegistry
    sys.modules.pop("ferry.verl", None)
    import ferry.verl

    made = []

    def new(directory, **options):
        made.append(registry["ferry"](bucket_size=64, client_dir=directory, deadline=20, **options))
        return made[-1]

    yield new
    for engine in made:
        engine.close()
    sys.modules.pop("ferry.verl", None)
    del ferry.__dict__["verl"]


def weights(step, count=7):
    for i in range(count):
        yield f"w{i}", fake_torch_cpu.tensor(np.full((i + 1, 5), 100 * step + i, "f4"))


def joined(kind, actors, rollouts):
    topology = kind.build_topology(len(actors), len(rollouts), [engine.prepare() for engine in (*actors, *rollouts)])
    for engines, arguments in zip((actors, rollouts), topology, strict=True):
        for i, engine in enumerate(engines):
            engine.init_process_group(**{name: values[i] for name, values in arguments.items()})


async def collected(stream):
    return {name: np.array(tensor) async for name, tensor in stream}


async def update(actors, rollouts, step):
    joined(type(actors[0]), actors, rollouts)
    sends = [engine.send_weights(weights(step), step) for engine in actors]
    return (await asyncio.gather(*sends, *(collected(engine.receive_weights(step)) for engine in rollouts)))[len(actors) :]


def check(got, step):
    assert sorted(got) == [f"w{i}" for i in range(7)]
    assert all((got[name] == tensor).all() and got[name].shape == tensor.shape for name, tensor in weights(step))


def test_versions_arrive_and_who_joins_gets_the_last(engines, nodes):
    actors, rollouts = [engines(nodes.a) for _ in range(2)], [engines(nodes.b) for _ in range(2)]
    for step in (1, 2):
        for got in asyncio.run(update(actors, rollouts, step)):
            check(got, step)
    late = engines(nodes.b)
    check(asyncio.run(collected(late.join([engine.prepare() for engine in actors]))), 2)
    assert late.routes and "any" not in late.routes


def test_an_actor_that_is_gone_is_told(engines, nodes):
    actors, rollout = [engines(nodes.a) for _ in range(2)], engines(nodes.b)
    asyncio.run(update(actors, [rollout], 1))
    actors[1].close()
    with pytest.raises(ferry.UnavailableError, match="cannot be reached"):
        asyncio.run(collected(rollout.receive_weights(1)))


def test_what_was_not_prepared_is_refused(engines, nodes):
    with pytest.raises(ferry.FailedPreconditionError, match="come before send_weights"):
        asyncio.run(engines(nodes.a).send_weights(weights(1)))
    with pytest.raises(ferry.FailedPreconditionError, match="come before receive_weights"):
        asyncio.run(collected(engines(nodes.a).receive_weights()))
