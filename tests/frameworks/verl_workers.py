# SPDX-License-Identifier: Apache-2.0
"""Actors and rollouts of verl's own classes, for test_verl_manager.py, as upstream's tests/checkpoint_engine/test_utils.py has
them. What serves, and what trains, is left out: both need a GPU."""

import torch
from verl.checkpoint_engine import CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.import_utils import import_external_libs
from verl.workers.rollout import BaseRollout, RolloutReplica

SHAPES = {f"layers.{i}.weight": (i + 1, 7) for i in range(9)}


def weights(step):
    for i, (name, shape) in enumerate(SHAPES.items()):
        yield name, torch.full(shape, float(100 * step + i), dtype=torch.bfloat16 if i % 2 else torch.float32)


class Actor(Worker):
    """Of verl's ActorRolloutRefWorker its checkpoint engine, made as there, and the two calls of the manager."""

    def __init__(self, config):
        super().__init__()
        import_external_libs(config.custom_backend_module or None)
        bucket = config.update_weights_bucket_megabytes << 20
        given = config.engine_kwargs.get(config.backend, {})
        self.checkpoint_engine = CheckpointEngineRegistry.new(config.backend, bucket_size=bucket, **given)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps=None, mode="auto"):
        await self.checkpoint_engine.send_weights(weights(global_steps), global_steps=global_steps)

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method, *args, **kwargs):
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)


class Server(BaseRollout):
    def __init__(self, config):
        super().__init__(config, None, device_mesh=None)
        self.loaded, self.steps = {}, []

    async def update_weights(self, weights, global_steps=None, **_):
        self.loaded = {name: tensor.clone() async for name, tensor in weights}
        self.steps.append(global_steps)

    async def resume(self, tags):
        raise NotImplementedError

    async def release(self):
        raise NotImplementedError


class Rollout(CheckpointEngineWorker):
    def __init__(self, rollout_config):
        super().__init__(rollout_config, None, Server(rollout_config))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def steps_of_what_is_loaded(self, step):
        loaded = self.server_adapter.loaded
        assert sorted(loaded) == sorted(SHAPES)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in weights(step))
        return self.server_adapter.steps


class Replica(RolloutReplica):
    """Without a server: it notes what it is asked."""

    def __init__(self, config, workers):
        super().__init__(replica_rank=0, config=config, model_config=None)
        self.workers, self.log = workers, []

    def get_ray_class_with_init_args(self):
        raise NotImplementedError

    async def launch_servers(self):
        raise NotImplementedError

    async def abort_all_requests(self, **_):
        self.log.append("abort_all_requests")

    async def release_kv_cache(self):
        self.log.append("release_kv_cache")

    async def resume_kv_cache(self):
        self.log.append("resume_kv_cache")

    async def resume_generation(self):
        self.log.append("resume_generation")
