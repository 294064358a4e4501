# SPDX-License-Identifier: Apache-2.0
"""vLLM's own worker on a host without a GPU, for test_vllm.py: its platform is vLLM's for the CPU ($VLLM_TARGET_DEVICE=cpu, as
vLLM's own tests of the CPU have the wheel that is built for CUDA), its model a small Llama of vLLM's layers, and the calls are
those of vLLM's `Worker`. Left out is what needs kernels, which that wheel has for CUDA alone: the runner of the model."""

import copy
import json
import os
import types

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.parallel_state import ensure_model_parallel_initialized, init_distributed_environment
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.worker.gpu_worker import Worker

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def configured(folder, tensor_parallel=1):
    """The VllmConfig that this command line makes, of a Llama in `folder`."""
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(LLAMA, file)
    said = ["--model", str(folder), "--skip-tokenizer-init", "--dtype", "float32", "--max-model-len", "64", "--enforce-eager"]
    said += ["--tensor-parallel-size", str(tensor_parallel), "--distributed-executor-backend", "mp"]
    said += ["--weight-transfer-config", '{"backend": "ferry"}']
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    return EngineArgs.from_cli_args(parser.parse_args(said)).create_engine_config()


def of_rank(config, rank):
    config = copy.copy(config)
    config.parallel_config = copy.copy(config.parallel_config)
    config.parallel_config.rank = rank
    return config


def worker(config, model):
    """vLLM's worker as it is once its model is loaded."""
    made = Worker.__new__(Worker)
    made.vllm_config, made.parallel_config, made.rank = config, config.parallel_config, config.parallel_config.rank
    made.device = torch.device("cpu")
    made._weight_update_active = made._weight_update_is_draft = False
    made.model_runner = types.SimpleNamespace(reset_lora_state=lambda: None)
    made.weight_transfer_engine = WeightTransferEngineFactory.create_engine(
        config.weight_transfer_config, config, made.device, model
    )
    return made


def serve(rank, ranks, folder, meeting, pipe):
    """In a process of its own: a worker of `ranks` by tensor parallelism, and what it is asked by `pipe`."""
    config = of_rank(configured(folder, ranks), rank)
    with set_current_vllm_config(config):
        init_distributed_environment(ranks, rank, f"file://{meeting}", rank, "gloo")
        ensure_model_parallel_initialized(ranks, 1)
        model = initialize_model(vllm_config=config)
    for parameter in model.parameters():
        parameter.data.zero_()
    one, fetched = worker(config, model), []
    import ferry._vllm_worker as module

    pull = module.Pull
    module.Pull = lambda *given, **named: fetched.append(pull(*given, **named)) or fetched[-1]
    asked = {
        "parameters": lambda: {name: parameter.detach().clone() for name, parameter in model.named_parameters()},
        "fetched": lambda: sum(one.nbytes for one in fetched),
        "direct": lambda: [one.name for one in one.weight_transfer_engine._parameters if one.target is not None],
    }
    for call, given in iter(pipe.recv, None):
        try:
            said = asked[call](*given) if call in asked else getattr(one, call)(*given)
        except Exception as error:
            said = error
        pipe.send({name: tensor.numpy() for name, tensor in said.items()} if call == "parameters" else said)
    one.shutdown_weight_transfer_engine()
    torch.distributed.destroy_process_group()
