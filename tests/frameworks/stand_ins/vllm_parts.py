# SPDX-License-Identifier: Apache-2.0
"""vLLM's modules of weight transfer, which alone are there, made importable: what they import beside is stood in for, its
configuration, its logger, and its loader."""

import logging
import os
import sys
import types

import torch

sys.path.insert(0, os.environ["FERRY_FRAMEWORK_FILES"])


def stand_in(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    made.__path__ = []
    sys.modules[name] = made
    return made


reloaded = []
stand_in("vllm.config", VllmConfig=object)
stand_in("vllm.config.parallel", ParallelConfig=object)
stand_in("vllm.config.weight_transfer", WeightTransferConfig=types.SimpleNamespace)
stand_in("vllm.logger", init_logger=logging.getLogger)
for package in ("vllm.model_executor", "vllm.model_executor.model_loader"):
    stand_in(package)
stand_in(
    "vllm.model_executor.model_loader.reload",
    initialize_layerwise_reload=lambda model: reloaded.append("begin"),
    finalize_layerwise_reload=lambda model, config: reloaded.append("end"),
)
if not hasattr(torch, "accelerator"):
    torch.accelerator = types.SimpleNamespace(synchronize=lambda: None)
