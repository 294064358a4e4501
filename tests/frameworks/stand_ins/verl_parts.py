# SPDX-License-Identifier: Apache-2.0
"""The base of verl's checkpoint engines, which alone is there, made importable: what it imports is stood in for."""

import importlib.util
import os
import sys
import types

FILES = os.environ["FERRY_FRAMEWORK_FILES"]


class Anything(types.ModuleType):
    """A module whose members are whatever is imported from it."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def decorator(*_, **__):
    return lambda wrapped: wrapped


for name in (
    "ray", "verl", "verl.checkpoint_engine", "verl.single_controller", "verl.single_controller.base",
    "verl.single_controller.base.decorator", "verl.single_controller.ray", "verl.utils", "verl.utils.distributed",
    "verl.utils.import_utils", "verl.utils.ray_utils", "verl.workers", "verl.workers.config", "verl.workers.rollout",
    "verl.workers.rollout.utils",
):  # fmt: skip
    sys.modules[name] = Anything(name)
sys.modules["ray"].remote = lambda wrapped: wrapped
sys.modules["verl.single_controller.base.decorator"].register = decorator
sys.modules["verl.single_controller.base.decorator"].Dispatch = types.SimpleNamespace(ONE_TO_ALL=0, DP_COMPUTE=1)
sys.modules["verl.utils.ray_utils"].auto_await = lambda wrapped: wrapped
spec = importlib.util.spec_from_file_location("verl.checkpoint_engine.base", f"{FILES}/verl/checkpoint_engine/base.py")
base = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = sys.modules["verl.checkpoint_engine"].base = base
spec.loader.exec_module(base)
