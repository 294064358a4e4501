# SPDX-License-Identifier: Apache-2.0
"""Of verl as much as ferry.verl, its tests and its example ask of it: the registry, and what the manager is made of. A
reference of Ray's is a call that `ray.get` makes."""

import asyncio
import functools
import sys
import types
from typing import ClassVar

import fake_torch_cpu


class CheckpointEngine:
    wire_format = "named_tensors"


class CheckpointEngineRegistry:
    _registry: ClassVar = {}

    def register(backend):
        def wrapper(cls):
            CheckpointEngineRegistry._registry[backend] = cls
            return cls

        return wrapper

    @classmethod
    def get(cls, backend):
        return cls._registry[backend]

    @classmethod
    def new(cls, backend, *args, **kwargs):
        return cls._registry[backend](*args, **kwargs)


class Worker:
    """An actor, or one of a replica's: an engine, and what it has loaded."""

    def __init__(self, engine, weights=None):
        self.checkpoint_engine, self.weights = engine, weights
        self.loaded, self.step = {}, None

    def execute_checkpoint_engine(self, method, **arguments):
        return getattr(self.checkpoint_engine, method)(**arguments)

    def update_weights(self, global_steps=None, mode=None):
        if self.weights is not None:
            return asyncio.run(self.checkpoint_engine.send_weights(self.weights(global_steps), global_steps))
        return asyncio.run(self._load(global_steps))

    async def _load(self, step):
        loaded = {}
        async for name, tensor in self.checkpoint_engine.receive_weights(global_steps=step):
            loaded[name] = tensor.clone()
        self.loaded, self.step = loaded, step


class Group:
    def __init__(self, worker_handles, ray_cls_with_init=None):
        self.workers, self.world_size = worker_handles, len(worker_handles)

    def execute_checkpoint_engine(self, method, **arguments):
        assert len(method) == self.world_size and all(len(values) == self.world_size for values in arguments.values())
        return [
            functools.partial(
                worker.execute_checkpoint_engine, method[i], **{name: values[i] for name, values in arguments.items()}
            )
            for i, worker in enumerate(self.workers)
        ]

    def update_weights(self, **arguments):
        return [functools.partial(worker.update_weights, **arguments) for worker in self.workers]


def install(monkeypatch):
    fake_torch_cpu.install(monkeypatch)
    fake_torch_cpu.packages(monkeypatch, "verl", "verl.checkpoint_engine", "verl.checkpoint_engine.base")
    base = sys.modules["verl.checkpoint_engine.base"]
    sys.modules["verl.checkpoint_engine"].base = base
    base.CheckpointEngine, base.CheckpointEngineRegistry = CheckpointEngine, CheckpointEngineRegistry
    base.ray = types.SimpleNamespace(get=lambda references: [reference() for reference in references])
    base.RayWorkerGroup, base.RayClassWithInitArgs, base._worker_cls = Group, types.SimpleNamespace, Worker
