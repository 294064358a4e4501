# SPDX-License-Identifier: Apache-2.0
"""ferry.verl in verl itself, its base class and registry, with PyTorch's tensors of the CPU, in one process: `Group` makes the
calls of verl's manager."""

import asyncio

import pytest
import torch
from verl.checkpoint_engine import base
from verl.utils.import_utils import import_external_libs
from verl_workers import SHAPES, weights

import ferry

import_external_libs("ferry.verl")  # custom_backend_module=ferry.verl, as verl's manager and workers do it


class Group:
    """What verl's manager does: prepare, build_topology, init_process_group, then both sides at once, and finalize."""

    def __init__(self, actors, rollouts, **options):
        self.actors, self.rollouts = ([self.new(**options) for _ in range(count)] for count in (actors, rollouts))

    def new(self, bucket_size=64, **options):
        return base.CheckpointEngineRegistry.new("ferry", bucket_size=bucket_size, **options)

    def build(self):
        everybody = [*self.actors, *self.rollouts]
        metadata = [engine.prepare() for engine in everybody]
        topology = base.CheckpointEngineRegistry.get("ferry").build_topology(len(self.actors), len(self.rollouts), metadata)
        for engines, arguments in zip((self.actors, self.rollouts), topology, strict=True):
            assert all(len(values) == len(engines) for values in arguments.values())
            for i, engine in enumerate(engines):
                engine.init_process_group(**{name: values[i] for name, values in arguments.items()})

    async def update(self, step, received=None):
        self.build()
        sends = [engine.send_weights(weights(step), global_steps=step) for engine in self.actors]
        gets = [
            collected(engine.receive_weights(global_steps=step if received is None else received)) for engine in self.rollouts
        ]
        done = await asyncio.wait_for(asyncio.gather(*sends, *gets, return_exceptions=True), 30)
        for engine in (*self.actors, *self.rollouts):
            engine.finalize()
        failed = [one for one in done if isinstance(one, BaseException)]
        if failed:
            raise failed[0]
        return done[len(sends) :]

    def close(self):
        for engine in (*self.actors, *self.rollouts):
            engine.close()


async def collected(stream):
    return {name: tensor.clone() async for name, tensor in stream}


def check(got, step):
    assert sorted(got) == sorted(SHAPES)
    assert all(torch.equal(got[name], tensor) and got[name].dtype == tensor.dtype for name, tensor in weights(step))


@pytest.fixture(autouse=True)
def daemon(node):
    pass


def test_it_is_registered_and_complete():
    with pytest.raises(ValueError, match=r"registered backends: \['ferry', 'naive'"):
        base.CheckpointEngineRegistry.get("ferries")
    assert base.CheckpointEngineRegistry.get("ferry") is ferry.verl.FerryCheckpointEngine
    assert issubclass(ferry.verl.FerryCheckpointEngine, base.CheckpointEngine)
    assert (
        not ferry.verl.FerryCheckpointEngine.__abstractmethods__
        and ferry.verl.FerryCheckpointEngine.wire_format == "named_tensors"
    )


@pytest.mark.parametrize("bucket", [1, 64, 1 << 20])
@pytest.mark.parametrize("actors, rollouts", [(1, 1), (3, 2)])
def test_every_rollout_gets_every_version(actors, rollouts, bucket):
    group = Group(actors, rollouts, bucket_size=bucket)
    for step in (1, 2, 5):
        for got in asyncio.run(group.update(step)):
            check(got, step)
    kept = [len(engine._source.names()) for engine in group.actors]
    assert kept == [len(engine._kept) for engine in group.actors]  # of the last version alone
    assert all(engine.routes == ["local"] for engine in group.rollouts)
    group.close()


def test_no_rank_sends_for_the_others():
    group = Group(3, 1, bucket_size=1 << 20)
    asyncio.run(group.update(1))
    shares = [sum(len(engine._source.find(name).tensors) for name in engine._kept) for engine in group.actors]
    assert shares == [3, 3, 3]
    group.close()


def test_a_rollout_that_joins_gets_the_last_version():
    group = Group(2, 1)
    late = group.new()
    with pytest.raises(ferry.FailedPreconditionError, match="no version"):
        asyncio.run(collected(late.join([engine.prepare() for engine in group.actors])))
    asyncio.run(group.update(1))
    asyncio.run(group.update(2))
    check(asyncio.run(collected(late.join([engine.prepare() for engine in group.actors]))), 2)
    group.rollouts.append(late)  # and those after it like everybody
    assert len(asyncio.run(group.update(3))) == 2
    group.close()


def test_a_rollout_that_goes_holds_up_nobody():
    group = Group(2, 2)
    asyncio.run(group.update(1))
    group.rollouts.pop().close()
    (got,) = asyncio.run(group.update(2))
    check(got, 2)
    group.close()


def test_an_actor_that_goes_is_an_exception_and_its_successor_is_as_good():
    group = Group(2, 1)
    asyncio.run(group.update(1))
    group.build()

    async def received():
        stream = asyncio.create_task(collected(group.rollouts[0].receive_weights(global_steps=2)))
        await group.actors[0].send_weights(weights(2), global_steps=2)
        await asyncio.to_thread(group.actors[1].close)
        with pytest.raises((ferry.PeerClientGoneError, ferry.UnavailableError)):
            await asyncio.wait_for(stream, 20)

    asyncio.run(received())
    group.actors[1] = group.new()
    (got,) = asyncio.run(group.update(3))
    check(got, 3)
    group.close()


def test_another_step_than_was_asked_for_is_refused():
    group = Group(1, 1)
    with pytest.raises(ferry.FailedPreconditionError, match="step 8 was to be received, and step 7 was sent"):
        asyncio.run(group.update(7, received=8))
    group.close()
