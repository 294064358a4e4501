# SPDX-License-Identifier: Apache-2.0
"""Of Ray 2.60 as much as ferry.ray asks of it: the base classes with the signatures that Ray documents. What Ray itself does
with a transport is tested in tests/frameworks."""

import abc
import dataclasses
import sys
import types
from typing import Any, Optional


@dataclasses.dataclass
class CommunicatorMetadata:
    pass


@dataclasses.dataclass
class TensorTransportMetadata:
    tensor_meta: list
    tensor_device: Optional[str] = None


@dataclasses.dataclass
class FetchRequest:
    obj_id: str
    tensors: list[Any]


class TensorTransportManager(abc.ABC):
    @abc.abstractmethod
    def tensor_transport_backend(self): ...

    @staticmethod
    @abc.abstractmethod
    def is_one_sided(): ...

    @staticmethod
    @abc.abstractmethod
    def can_abort_transport(): ...

    @abc.abstractmethod
    def actor_has_tensor_transport(self, actor): ...

    @abc.abstractmethod
    def extract_tensor_transport_metadata(self, obj_id, rdt_object): ...

    @abc.abstractmethod
    def get_communicator_metadata(self, src_actor, dst_actor, backend=None): ...

    @abc.abstractmethod
    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None): ...

    @abc.abstractmethod
    def send_multiple_tensors(self, tensors, tensor_transport_metadata, communicator_metadata): ...

    @abc.abstractmethod
    def garbage_collect(self, obj_id, tensor_transport_meta, tensors): ...

    @abc.abstractmethod
    def abort_transport(self, obj_id, communicator_metadata): ...


registered: dict[str, tuple] = {}


def register_tensor_transport(name, devices, manager, data_type):
    if name in registered:
        raise ValueError(f"Transport {name} already registered.")
    assert issubclass(manager, TensorTransportManager)
    registered[name] = (devices, manager, data_type)


def install(monkeypatch):
    ray, experimental, rdt, manager = (
        types.ModuleType(name)
        for name in ("ray", "ray.experimental", "ray.experimental.rdt", "ray.experimental.rdt.tensor_transport_manager")
    )
    for one in (CommunicatorMetadata, TensorTransportMetadata, TensorTransportManager, register_tensor_transport):
        setattr(experimental, one.__name__, one)
    manager.FetchRequest = FetchRequest
    ray.experimental, experimental.rdt, rdt.tensor_transport_manager = experimental, rdt, manager
    registered.clear()
    for module in (ray, experimental, rdt, manager):
        monkeypatch.setitem(sys.modules, module.__name__, module)
