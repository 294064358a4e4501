# SPDX-License-Identifier: Apache-2.0
"""ferry.verl under verl's own CheckpointEngineManager: actors and rollouts are actors of Ray, in verl's groups of workers, and
learn of the engine by custom_backend_module."""

import asyncio

import pytest
import ray
from verl.checkpoint_engine import CheckpointEngineManager
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.workers.config import CheckpointEngineConfig, RolloutConfig
from verl_workers import Actor, Replica, Rollout

ENGINE = CheckpointEngineConfig(backend="ferry", custom_backend_module="ferry.verl", update_weights_bucket_megabytes=1)
ROLLOUT = RolloutConfig(name="vllm", tensor_model_parallel_size=1, checkpoint_engine=ENGINE)
ASKED = ["abort_all_requests", "release_kv_cache", "resume_kv_cache", "resume_generation"]


@pytest.fixture(scope="module", autouse=True)
def cluster(node):
    ray.init(num_cpus=4, include_dashboard=False, logging_level="warning")
    yield
    ray.shutdown()


def group(kind, count, **given):
    pool = RayResourcePool(process_on_nodes=[count], use_gpu=False, max_colocate_count=1)
    made = RayClassWithInitArgs(cls=ray.remote(kind), **given)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, device_name="cpu")


def test_verls_manager_updates_all_and_a_replica_joins():
    actors, rollouts = group(Actor, 2, config=ENGINE), group(Rollout, 2, rollout_config=ROLLOUT)
    first, late = (Replica(ROLLOUT, [worker]) for worker in rollouts.workers)
    manager = CheckpointEngineManager(ENGINE, actors, [first])
    import ferry.verl  # which the manager has imported already

    assert manager.backend_cls is ferry.verl.FerryCheckpointEngine
    assert asyncio.run(ferry.verl.join_replicas(manager, [])) is None
    for step in (1, 2):
        assert asyncio.run(manager.update_weights(global_steps=step)) == {}
    assert ray.get(first.workers[0].steps_of_what_is_loaded.remote(2)) == [1, 2]
    assert asyncio.run(ferry.verl.join_replicas(manager, [late])) == 2
    assert ray.get(late.workers[0].steps_of_what_is_loaded.remote(2)) == [2]
    assert first.log == ASKED * 2 and late.log == ASKED and manager.replicas == [first, late]
    asyncio.run(manager.update_weights(global_steps=3))
    assert [ray.get(one.workers[0].steps_of_what_is_loaded.remote(3)) for one in (first, late)] == [[1, 2, 3], [2, 3]]
    manager.remove_replicas([first])
    ray.kill(first.workers[0])
    asyncio.run(manager.update_weights(global_steps=4))
    assert ray.get(late.workers[0].steps_of_what_is_loaded.remote(4)) == [2, 3, 4]
