# SPDX-License-Identifier: Apache-2.0
"""ferry.verl over a stand-in of verl's base class: actors on node a, rollouts on node b. With verl's own: tests/frameworks."""

import asyncio
import sys

import fake_torch_cpu
import fake_verl
import numpy as np
import pytest

import ferry


@pytest.fixture
def engines(monkeypatch, nodes):
    fake_verl.install(monkeypatch)
    sys.modules.pop("ferry.verl", None)
    import ferry.verl

    made = []

    def new(directory, **options):
        made.append(
            fake_verl.CheckpointEngineRegistry.new("ferry", bucket_size=64, client_dir=directory, deadline=20, **options)
        )
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


def breaking(step, count):
    """`count` weights, and then what a gather that fails raises."""
    yield from weights(step, count)
    raise RuntimeError("gather failed")


async def failing(actors, rollouts, step, count):
    """An update in which the last actor fails after `count` weights; what each end got."""
    joined(type(actors[0]), actors, rollouts)
    sends = [engine.send_weights(weights(step), step) for engine in actors[:-1]]
    sends.append(actors[-1].send_weights(breaking(step, count), step))
    takes = [collected(engine.receive_weights(step)) for engine in rollouts]
    return await asyncio.gather(*sends, *takes, return_exceptions=True)


@pytest.mark.parametrize("count", [0, 4])
def test_an_update_that_failed_leaves_nothing_in_the_next_one(engines, nodes, count):
    actor, rollout = engines(nodes.a), engines(nodes.b)
    asyncio.run(update([actor], [rollout], 1))
    first = actor._source.names()
    for _ in range(2):
        sent, took = asyncio.run(failing([actor], [rollout], 2, count))
        assert isinstance(sent, RuntimeError)
        assert isinstance(took, ferry.AbortedError) and "RuntimeError: gather failed" in str(took), took
    late = engines(nodes.b)  # what joins meanwhile has the version before
    check(asyncio.run(collected(late.join([actor.prepare()]))), 1)
    (got,) = asyncio.run(update([actor], [rollout], 2))
    check(got, 2)
    check(asyncio.run(collected(late.join([actor.prepare()]))), 2)
    assert len(actor._source.names()) == 2 * len(first) and set(first) < set(actor._source.names())
    asyncio.run(update([actor], [rollout], 3))  # which begins with giving up what is not needed any more
    assert len(actor._source.names()) == 2 * len(first) and not set(first) & set(actor._source.names())


def test_after_an_update_that_failed_at_one_actor_who_joins_gets_the_version_before(engines, nodes, manager):
    manager, _ = manager
    actors, rollout = [worker.checkpoint_engine for worker in manager.actor_wg.workers], engines(nodes.b)
    asyncio.run(update(actors, [rollout], 1))
    kept = []
    for step in (2, 3):
        _, sent, took = asyncio.run(failing(actors, [rollout], step, 2))
        assert isinstance(sent, RuntimeError) and isinstance(took, ferry.AbortedError)
        late = Replica([], engines(nodes.b))
        assert asyncio.run(sys.modules["ferry.verl"].join_replicas(manager, [late])) == 1
        check(late.workers[0].loaded, 1)
        alone = engines(nodes.b)
        check(asyncio.run(collected(alone.join([actor.prepare() for actor in actors]))), 1)
        kept.append(len(actors[0]._source.names()))
    assert kept[0] == kept[1]  # of a version that not all have nothing is left
    (got,) = asyncio.run(update(actors, [rollout], 4))
    check(got, 4)
    check(asyncio.run(collected(alone.join([actor.prepare() for actor in actors]))), 4)


def test_actors_that_have_no_version_in_common_have_nothing_to_join(engines, nodes, manager):
    manager, _ = manager
    actors, rollout = [worker.checkpoint_engine for worker in manager.actor_wg.workers], engines(nodes.b)
    asyncio.run(update(actors, [rollout], 1))
    actors[1].close()
    manager.actor_wg.workers[1].checkpoint_engine = engines(nodes.a)  # started again
    late = Replica([], engines(nodes.b))
    with pytest.raises(ferry.FailedPreconditionError, match=r"in common \(verl-1-\w+; none\).*join after the next one"):
        asyncio.run(sys.modules["ferry.verl"].join_replicas(manager, [late]))
    assert late.log == [] and len(manager.replicas) == 1


class Replica:
    """What verl's manager asks of one; `log` has it in order."""

    def __init__(self, log, *engines):
        self.log, self.workers = log, [fake_verl.Worker(engine) for engine in engines]

    async def abort_all_requests(self, reject_request=False):
        self.log.append("abort")

    async def release_kv_cache(self):
        self.log.append("release_kv_cache")

    async def resume_kv_cache(self):
        self.log.append("resume_kv_cache")

    async def resume_generation(self):
        self.log.append("resume_generation")


class Manager:
    """verl's, as far as replicas that join are its business."""

    def __init__(self, actors, replicas):
        self.backend_cls, self.replicas = fake_verl.CheckpointEngineRegistry.get("ferry"), replicas
        self.actor_wg = fake_verl.Group([fake_verl.Worker(engine, weights) for engine in actors])

    def add_replicas(self, replicas):
        self.replicas.extend(replicas)


@pytest.fixture
def manager(engines, nodes):
    log = []
    return Manager([engines(nodes.a) for _ in range(2)], [Replica(log, engines(nodes.b))]), log


def test_replicas_that_join_have_the_last_version_and_nobody_else_is_asked(engines, nodes, manager):
    manager, others = manager
    actors = [worker.checkpoint_engine for worker in manager.actor_wg.workers]
    old = manager.replicas[0].workers[0]
    early = Replica([], engines(nodes.b))
    assert asyncio.run(sys.modules["ferry.verl"].join_replicas(manager, [early])) is None  # there is nothing yet
    assert manager.replicas[1:] == [early] and early.log == [] and not early.workers[0].loaded
    for step in (10, 20):
        asyncio.run(update(actors, [old.checkpoint_engine], step))
    log = []
    late = [Replica(log, engines(nodes.b), engines(nodes.b)), Replica(log, engines(nodes.b))]
    assert asyncio.run(sys.modules["ferry.verl"].join_replicas(manager, late)) == 20
    for worker in (worker for replica in late for worker in replica.workers):
        check(worker.loaded, 20)
        assert worker.step == 20
    assert log == ["abort"] * 2 + ["release_kv_cache"] * 2 + ["resume_kv_cache"] * 2 + ["resume_generation"] * 2
    assert manager.replicas[2:] == late and others == [] and not old.loaded
    everybody = [old.checkpoint_engine, *(worker.checkpoint_engine for replica in late for worker in replica.workers)]
    for got in asyncio.run(update(actors, everybody, 30)):  # and those after it like the others
        check(got, 30)


def test_replicas_that_could_not_join_are_not_added_and_do_not_go_on(engines, nodes, manager):
    manager, _ = manager
    actors = [worker.checkpoint_engine for worker in manager.actor_wg.workers]
    asyncio.run(update(actors, [manager.replicas[0].workers[0].checkpoint_engine], 1))
    late = Replica([], engines(nodes.b))
    late.workers[0].checkpoint_engine.finalize = lambda: 1 / 0  # which is not what is told
    prepare = actors[1].prepare

    def gone():  # between the two
        said = prepare()
        actors[1].close()
        return said

    actors[1].prepare = gone
    with pytest.raises(ferry.UnavailableError, match="cannot be reached"):
        asyncio.run(sys.modules["ferry.verl"].join_replicas(manager, [late]))
    assert late.log == ["abort", "release_kv_cache", "resume_kv_cache"] and len(manager.replicas) == 1


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
