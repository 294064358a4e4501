# SPDX-License-Identifier: Apache-2.0
"""vLLM's weight transfer by Ferry: two trainer ranks that have rows of each weight, two workers that keep columns of it.

The engines are vLLM's own, made by its factories. The four calls to the workers, which vLLM makes by HTTP or Ray, go by pipes
here, and the model is one of three weights; of host memory, or on GPUs (--cuda).

    pip install 'ferry-transfer[node]' vllm
    python examples/python/vllm_transfer.py [--cuda]
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import ParamMeta, Shard, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

import ferry
import ferry.vllm

RANKS, WORKERS, VERSIONS = 2, 2, 3
SHAPES = {"embed": (512, 96), "up": (256, 384), "down": (384, 96)}


def value(name: str, version: int) -> Any:
    rows, columns = SHAPES[name]
    return torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) + 1000 * version


def device_of(cuda: bool, place: int) -> Any:
    if not cuda:
        return torch.device("cpu")
    torch.cuda.set_device(place % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


class Rows(WeightSource):  # type: ignore[misc, unused-ignore]
    """What a trainer rank has of each weight."""

    def __init__(self, rank: int, device: Any) -> None:
        self.rank, self.device, self.version = rank, device, 0

    @functools.cached_property
    def metadata(self) -> list[Any]:
        owners = {"owners": tuple(range(RANKS)), "mesh_shape": (RANKS,), "placements": (Shard(0),)}
        return [ParamMeta(name, torch.float32, shape, **owners) for name, shape in SHAPES.items()]

    def iter_local(self) -> Iterator[tuple[str, Any]]:
        for name in SHAPES:
            yield name, value(name, self.version).chunk(RANKS, 0)[self.rank].to(self.device)


class Columns(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """What a worker keeps of each weight, which it cuts out of the whole, as vLLM's loaders do."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.kept: dict[str, Any] = {}

    def load_weights(self, weights: Iterator[tuple[str, Any]]) -> None:
        for name, whole in weights:
            self.kept[name] = whole.chunk(WORKERS, 1)[self.rank].clone()

    def has(self, version: int) -> bool:
        due = {name: value(name, version).chunk(WORKERS, 1)[self.rank] for name in SHAPES}
        return set(due) == set(self.kept) and all(torch.equal(self.kept[name].cpu(), due[name]) for name in due)


def worker(rank: int, cuda: bool, pipe: Connection) -> None:
    ferry.vllm.register()  # which vLLM does itself, by the entry point of the package
    parallel = SimpleNamespace(rank=rank, tensor_parallel_size=1, pipeline_parallel_size=1)
    config = SimpleNamespace(parallel_config=parallel, model_config=None)
    backend, model = SimpleNamespace(backend="ferry"), Columns(rank)
    engine = WeightTransferEngineFactory.create_engine(backend, config, device_of(cuda, RANKS + rank), model)
    for call, given in iter(pipe.recv, None):
        failed = None
        try:
            if call == "init_weight_transfer_engine":
                engine.init_transfer_engine(engine.parse_init_info(given))
            elif call == "start_weight_update":
                engine.start_weight_update()
            elif call == "update_weights":
                engine.update_weights(given)
            else:
                engine.finish_weight_update()
                assert model.has(engine.version), engine.version
        except Exception as error:
            failed = error
        pipe.send(failed)
    # In one piece: other processes print too.
    print(f"worker {rank}: {engine.version} versions by route {'+'.join(engine.routes)}\n", end="", flush=True)
    engine.shutdown()


class Client:
    """The four calls, each to all workers."""

    def __init__(self, pipes: list[Connection]) -> None:
        self.pipes = pipes

    def _each(self, call: str, given: Any = None) -> None:
        for pipe in self.pipes:
            pipe.send((call, given))
        for failed in [pipe.recv() for pipe in self.pipes]:
            if failed is not None:
                raise failed

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self._each("init_weight_transfer_engine", info)

    def start_weight_update(self) -> None:
        self._each("start_weight_update")

    def update_weights(self, info: dict[str, Any]) -> None:
        self._each("update_weights", info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._each("finish_weight_update", weight_version)


def trainer(rank: int, cuda: bool, other: Connection, client: Client | None) -> None:
    """`other`: to the other rank. Where torch.distributed has a process group no `gather` is given."""
    ferry.vllm.register()

    def gather(mine: Any) -> list[Any]:
        other.send(mine)
        theirs = other.recv()
        return [mine, theirs] if rank == 0 else [theirs, mine]

    source = Rows(rank, device_of(cuda, rank))
    info = ferry.vllm.FerryTrainerInitInfo(rank=rank, gather=gather)
    engine = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    for _ in range(VERSIONS):
        source.version += 1
        engine.send_weights()
    engine.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--cuda", action="store_true", help="weights on GPUs; the daemon is that of $FERRY_CLIENT_DIR")
    cuda = parser.parse_args().cuda
    if cuda:
        return run(cuda)
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        return run(cuda)


def run(cuda: bool) -> int:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(WORKERS)]
    first, second = context.Pipe()
    processes: list[Any] = [
        context.Process(target=worker, args=(rank, cuda, pipes[rank][1]), daemon=True) for rank in range(WORKERS)
    ]
    processes.append(context.Process(target=trainer, args=(1, cuda, second, None), daemon=True))
    for process in processes:
        process.start()
    trainer(0, cuda, first, Client([mine for mine, _ in pipes]))
    for mine, _ in pipes:
        mine.send(None)
    for process in processes:
        process.join()
    return int(max(abs(process.exitcode) for process in processes))


if __name__ == "__main__":
    sys.exit(main())
