# SPDX-License-Identifier: Apache-2.0
"""Of torch as much as ferry.vllm and ferry.verl ask of it for tensors of the CPU, over NumPy."""

import sys
import types

import numpy as np


class Tensor(np.ndarray):
    is_cuda = False
    device = types.SimpleNamespace(index=None, type="cpu")

    def detach(self):
        return self

    def contiguous(self):
        return np.ascontiguousarray(self).view(Tensor)

    def copy_(self, other):
        self[...] = other
        return self

    def chunk(self, parts, dim=0):
        return [part.view(Tensor) for part in np.split(self, parts, dim)]

    def clone(self):
        return self.copy().view(Tensor)

    def cpu(self):
        return self

    def to(self, device):
        return self

    def numel(self):
        return self.size

    def element_size(self):
        return self.itemsize


def tensor(array):
    return np.asarray(array).view(Tensor)


def install(monkeypatch):
    torch = types.ModuleType("torch")
    torch.Tensor, torch.nn = Tensor, types.SimpleNamespace(Module=object)
    torch.from_dlpack = lambda given: np.from_dlpack(given).view(Tensor)
    torch.float32 = np.dtype("float32")
    torch.arange = lambda count, dtype: np.arange(count, dtype=dtype).view(Tensor)
    torch.equal = np.array_equal
    torch.empty = lambda shape, dtype, device=None: np.empty(shape, dtype).view(Tensor)
    torch.device = lambda given: types.SimpleNamespace(type="cpu", index=None)
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    torch.distributed = types.SimpleNamespace(is_available=lambda: False)
    torch.accelerator = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)


def packages(monkeypatch, *names):
    """Empty packages, by name."""
    for name in names:
        made = types.ModuleType(name)
        made.__path__ = []
        monkeypatch.setitem(sys.modules, name, made)
