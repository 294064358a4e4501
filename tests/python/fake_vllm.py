# SPDX-License-Identifier: Apache-2.0
"""Of vLLM as much as ferry.vllm, its tests and its example ask of it: weight transfer's base classes and factories."""

import dataclasses
import importlib
import sys
import types

import fake_torch_cpu


class Engine:
    def __init__(self, config, vllm_config, device, model):
        self.config, self.parallel_config, self.model_config = config, vllm_config.parallel_config, vllm_config.model_config
        self.device, self.model = device, model

    def parse_init_info(self, info):
        return self.init_info_cls(**info)

    def parse_update_info(self, info):
        return self.update_info_cls(**info)


class Trainer:
    def __init__(self, *, client, source=None, is_sender=True, rank=0):
        self.client, self.source, self.is_sender, self.rank = client, source, is_sender, rank


@dataclasses.dataclass
class Info:
    rank: int = dataclasses.field(kw_only=True)

    @property
    def is_sender(self):
        return self.rank == 0


class WeightSource:
    def implements_iter_local(self):
        return hasattr(type(self), "iter_local")


@dataclasses.dataclass(frozen=True)
class ParamMeta:
    name: str
    dtype: object
    shape: tuple
    owners: tuple = None
    mesh_shape: tuple = None
    placements: tuple = None


@dataclasses.dataclass(frozen=True)
class Shard:
    dim: int


class Factory:
    def __init__(self):
        self.known = {}

    def register_engine(self, name, module, kind):
        if name in self.known:
            raise ValueError("already registered")
        self.known[name] = (module, kind)

    def _kind(self, name):
        module, kind = self.known[name]
        return getattr(importlib.import_module(module), kind)

    def create_engine(self, config, vllm_config, device, model):
        return self._kind(config.backend)(config, vllm_config, device, model)

    def trainer_init(self, info, *, client, source):
        return self._kind(info.backend).trainer_init(info, client=client, source=source)


def install(monkeypatch):
    fake_torch_cpu.install(monkeypatch)
    names = ["vllm", "vllm.distributed", "vllm.distributed.weight_transfer", "vllm.model_executor"]
    names += [f"vllm.distributed.weight_transfer.{part}" for part in ("base", "factory", "m2n_layout")]
    names += ["vllm.model_executor.model_loader", "vllm.model_executor.model_loader.reload"]
    fake_torch_cpu.packages(monkeypatch, *names)
    base, factory = (sys.modules[f"vllm.distributed.weight_transfer.{part}"] for part in ("base", "factory"))
    base.TrainerInitInfo, base.TrainerWeightTransferEngine, base.WeightTransferEngine = Info, Trainer, Engine
    base.WeightTransferInitInfo = base.WeightTransferUpdateInfo = object
    base.WeightSource, base.ParamMeta, base.Shard = WeightSource, ParamMeta, Shard
    factory.WeightTransferEngineFactory, factory.WeightTransferTrainerFactory = Factory(), Factory()
    reload = sys.modules["vllm.model_executor.model_loader.reload"]
    reload.initialize_layerwise_reload = lambda model: None
    reload.finalize_layerwise_reload = lambda model, config: None
    # Without layers nothing is written in place: every parameter is load_weights'.
    sys.modules["vllm.distributed.weight_transfer.m2n_layout"].resolve_parameter_destinations = lambda model, names, *_, **__: [
        types.SimpleNamespace(name=name, tensor=None, direct=False) for name in names
    ]
