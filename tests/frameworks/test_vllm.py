# SPDX-License-Identifier: Apache-2.0
"""ferry.vllm over vLLM's own base classes and factories, with PyTorch's tensors of the CPU: what the CPU classes of upstream's
tests/distributed/test_weight_transfer.py ask of a backend, and whole updates. Of vLLM the modules of weight transfer alone are
there; what they import beside is stood in for (stand_ins/vllm_parts.py)."""

import functools
import importlib.metadata
import math
import multiprocessing
import os
import sys
import threading
import time
import types
from unittest.mock import MagicMock

import pytest
import torch

import ferry

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_ins"))
stand_in = __import__("vllm_parts").stand_in  # before anything of vLLM

from vllm.distributed.weight_transfer.base import ParamMeta, Replicate, Shard, WeightSource  # noqa: E402
from vllm.distributed.weight_transfer.factory import (  # noqa: E402
    WeightTransferEngineFactory,
    WeightTransferTrainerFactory,
)

import ferry.vllm as backend  # noqa: E402

SHAPES = {"embed": (8, 6), "layers.0.up": (6, 4), "norm": (6,), "head": (4, 8)}


def value(name, version):
    count = torch.Size(SHAPES[name]).numel()
    return (torch.arange(count, dtype=torch.float32) + 1000 * version + len(name)).reshape(SHAPES[name])


class Whole(WeightSource):
    """Every rank has everything."""

    version = 1

    @functools.cached_property
    def metadata(self):
        return [ParamMeta(name, torch.float32, shape) for name, shape in SHAPES.items()]

    def iter_full(self):
        for name in SHAPES:
            yield name, value(name, self.version)


class Sharded(WeightSource):
    """Two ranks: halves of the rows of one, of the columns of another, one whole at each."""

    version = 1

    def __init__(self, rank):
        self.rank = rank

    @functools.cached_property
    def metadata(self):
        both = {"owners": (0, 1), "mesh_shape": (2,)}
        return [
            ParamMeta("embed", torch.float32, SHAPES["embed"], **both, placements=(Shard(0),)),
            ParamMeta("layers.0.up", torch.float32, SHAPES["layers.0.up"], **both, placements=(Shard(1),)),
            ParamMeta("norm", torch.float32, SHAPES["norm"], **both, placements=(Replicate(),)),
            ParamMeta("head", torch.float32, SHAPES["head"], owners=(1,)),
        ]

    def iter_local(self):
        yield "embed", value("embed", self.version).chunk(2, 0)[self.rank]
        yield "layers.0.up", value("layers.0.up", self.version).chunk(2, 1)[self.rank]
        yield "norm", value("norm", self.version)
        if self.rank == 1:
            yield "head", value("head", self.version)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loaded = {}

    def load_weights(self, weights):
        self.loaded.update((name, tensor.clone()) for name, tensor in weights)


def worker(rank=0):
    config = MagicMock()
    config.parallel_config = types.SimpleNamespace(rank=rank, tensor_parallel_size=1, pipeline_parallel_size=1)
    settings = types.SimpleNamespace(backend="ferry")
    return WeightTransferEngineFactory.create_engine(settings, config, torch.device("cpu"), Model())


class Client:
    """The four calls of vLLM's client, to workers of this process."""

    def __init__(self, *workers):
        self.workers, self.calls = workers, []

    def each(self, call):
        failed = []

        def run(one):
            try:
                call(one)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(one,)) for one in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def init_weight_transfer_engine(self, info):
        self.each(lambda one: one.init_transfer_engine(one.parse_init_info(info)))

    def start_weight_update(self):
        self.each(lambda one: one.start_weight_update())

    def update_weights(self, info):
        self.each(lambda one: one.update_weights(info))

    def finish_weight_update(self, weight_version=None):
        self.each(lambda one: one.finish_weight_update())
        self.calls.append(weight_version)


@pytest.fixture(autouse=True)
def registered(node):
    backend.register()
    backend.register()


def trainers(client, sources, **options):
    """The engines of all ranks; `everybody` calls send_weights on each, in a thread of its own."""
    barrier, shared = threading.Barrier(len(sources)), [None] * len(sources)

    def gather(rank, given):
        shared[rank] = given
        barrier.wait(30)
        made = list(shared)
        barrier.wait(30)
        return made

    return [
        WeightTransferTrainerFactory.trainer_init(
            backend.FerryTrainerInitInfo(rank=rank, gather=functools.partial(gather, rank), **options),
            client=client,
            source=source,
        )
        for rank, source in enumerate(sources)
    ]


def everybody(engines):
    failed = [None] * len(engines)

    def run(rank):
        try:
            engines[rank].send_weights()
        except Exception as error:
            failed[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def close(*engines):
    for engine in engines:
        engine.shutdown()


def test_both_factories_make_it_by_the_entry_point():
    found = importlib.metadata.entry_points(group="vllm.general_plugins")
    (entry,) = [one for one in found if one.name == "ferry"]
    assert entry.load() is backend.register
    assert isinstance(worker(), backend.FerryWeightTransferEngine)
    with pytest.raises(ValueError, match="already registered"):
        WeightTransferEngineFactory.register_engine("ferry", backend.FerryWeightTransferEngine)


def test_what_is_told_is_looked_at():
    engine = worker()
    whole = {"names": ["a"], "dtype_names": ["float32"], "shapes": [[2]], "owners": [None], "mesh_shapes": [None]}
    assert engine.parse_init_info({**whole, "placements": [None]}).names == ["a"]
    with pytest.raises(ValueError, match="Invalid init_info"):
        engine.parse_init_info({"names": []})
    with pytest.raises(ValueError, match="placements"):
        engine.parse_init_info({**whole, "placements": []})
    with pytest.raises(ValueError, match="sources"):
        engine.parse_update_info({"version": 1, "offer": "x", "sources": []})
    with pytest.raises(RuntimeError, match="not initialized"):
        engine.receive_weights(engine.parse_update_info({"version": 1, "offer": "x", "sources": [[["h", 1, "t"], "n", {}]]}))
    with pytest.raises(ValueError, match="requires a WeightSource"):
        WeightTransferTrainerFactory.trainer_init(backend.FerryTrainerInitInfo(rank=0), client=Client(), source=None)


@pytest.mark.parametrize("bucket", [64, 1 << 20])
@pytest.mark.parametrize("ranks", [1, 2])
def test_weights_arrive_from_all_ranks_at_all_workers(ranks, bucket):
    workers = [worker(rank) for rank in range(2)]
    client = Client(*workers)
    sources = [Whole()] if ranks == 1 else [Sharded(rank) for rank in range(2)]
    engines = trainers(client, sources, bucket_bytes=bucket)
    for version in (1, 2):
        for source in sources:
            source.version = version
        assert everybody(engines) == [None] * ranks
        for one in workers:
            assert list(one.model.loaded) == list(SHAPES) and one.version == version
            assert all(torch.equal(one.model.loaded[name], value(name, version)) for name in SHAPES)
            assert one.routes and "any" not in one.routes
    assert client.calls == ["1", "2"]
    assert [engine._offers.names() for engine in engines] == [[backend.WORKERS], []][:ranks]  # no version is kept
    close(*engines, *workers)


def test_no_rank_sends_for_the_others(monkeypatch):
    one = worker()
    engines = trainers(Client(one), [Sharded(0), Sharded(1)])
    sent = [[], []]
    for rank, engine in enumerate(engines):

        def posts(name, parts, *given, rank=rank, post=engine._session._post):
            parts = list(parts)
            sent[rank] += [math.prod(item.shape) for items, _ in parts for item in items]
            return post(name, parts, *given)

        monkeypatch.setattr(engine._session, "_post", posts)
    assert everybody(engines) == [None, None]
    assert [sum(parts) for parts in sent] in ([36 + 6, 36 + 32], [36, 36 + 6 + 32])
    close(*engines, one)


def test_a_worker_fetches_no_more_than_its_shard(monkeypatch):
    """Of two workers with rows of one parameter and columns of another. Which parameters that holds for vLLM's M2N backend
    says, whose answer stands in here: it looks for layers that are not there."""
    live = [
        {"embed": torch.zeros(4, 6), "layers.0.up": torch.zeros(6, 2), "norm": torch.zeros(6), "head": None} for _ in range(2)
    ]

    def resolve(model, names, dtypes, shapes, *, num_workers, shard_axis_size, allow_direct):
        assert num_workers == shard_axis_size == 2 and allow_direct
        return [
            types.SimpleNamespace(name=name, tensor=model.live[name], direct=model.live[name] is not None) for name in names
        ]

    stand_in("vllm.distributed.weight_transfer.m2n_layout", resolve_parameter_destinations=resolve)
    workers = [worker(rank) for rank in range(2)]
    for one, mine in zip(workers, live, strict=True):
        one.model.live, one.parallel_config.tensor_parallel_size, one.model_config.quantization = mine, 2, None
    engines = trainers(Client(*workers), [Sharded(0), Sharded(1)])
    del sys.modules["vllm.distributed.weight_transfer.m2n_layout"]
    taken = []
    module = sys.modules["ferry._vllm_worker"]
    pull = module.Pull
    monkeypatch.setattr(module, "Pull", lambda *given, **named: taken.append(pull(*given, **named)) or taken[-1])
    assert everybody(engines) == [None, None]
    for rank, mine in enumerate(live):
        assert torch.equal(mine["embed"], value("embed", 1).chunk(2, 0)[rank])
        assert torch.equal(mine["layers.0.up"], value("layers.0.up", 1).chunk(2, 1)[rank])
        assert torch.equal(mine["norm"], value("norm", 1))
        assert list(workers[rank].model.loaded) == ["head"]
    assert sum(one.nbytes for one in taken) == 2 * 4 * (24 + 12 + 6 + 32)
    close(*engines, *workers)


def test_a_version_is_finished_only_if_all_has_arrived():
    one = worker()
    client = Client(one)
    (engine,) = trainers(client, [Whole()])
    one.start_weight_update()
    with pytest.raises(ferry.FailedPreconditionError, match="not all has arrived"):
        one.finish_weight_update()
    one.model.load_weights = MagicMock(side_effect=RuntimeError("of the loader"))
    (error,) = everybody([engine])
    assert isinstance(error, RuntimeError) and "of the loader" in str(error)
    assert client.calls == [] and one.version is None and engine.version == 0
    del one.model.load_weights
    assert everybody([engine]) == [None] and one.version == 1
    close(engine, one)


def dead_worker(call, pipe):
    """A process that ends in one of the calls that it is told to make."""
    engine = backend.FerryWeightTransferEngine(
        None,
        types.SimpleNamespace(parallel_config=types.SimpleNamespace(rank=7), model_config=None),
        torch.device("cpu"),
        Model(),
    )
    if call == "update_weights":
        engine.model.load_weights = lambda weights: os._exit(9)
    while True:
        asked, arguments = pipe.recv()
        if asked == "init_weight_transfer_engine":
            engine.init_transfer_engine(engine.parse_init_info(*arguments))
        elif asked == call:
            if asked == "update_weights":
                engine.update_weights(*arguments)
            os._exit(9)
        elif asked == "finish_weight_update":
            engine.finish_weight_update()
        else:
            getattr(engine, asked)(*arguments)
        if asked == call:
            os._exit(9)
        pipe.send(asked)


class DyingClient:
    """Whose call to the worker that dies in it never returns."""

    def __init__(self, call):
        self.calls, self.held = [], threading.Event()
        self.pipe, theirs = multiprocessing.get_context("spawn").Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=dead_worker, args=(call, theirs))
        self.process.start()
        theirs.close()

    def ask(self, *asked):
        try:
            self.pipe.send((asked[0], asked[1:]))
            assert self.pipe.recv() == asked[0]
        except (EOFError, OSError):
            self.process.join()
            self.died = time.monotonic()
            self.held.wait(60)

    def init_weight_transfer_engine(self, info):
        self.ask("init_weight_transfer_engine", info)

    def start_weight_update(self):
        self.ask("start_weight_update")

    def update_weights(self, info):
        self.ask("update_weights", info)

    def finish_weight_update(self, weight_version=None):
        self.ask("finish_weight_update")
        self.calls.append(weight_version)


def test_a_worker_that_dies_before_it_has_been_told_of_the_weights_is_an_exception():
    client = DyingClient("init_weight_transfer_engine")
    with pytest.raises(ferry.PeerClientGoneError, match="worker-7"):
        trainers(client, [Sharded(0), Sharded(1)])
    assert time.monotonic() - client.died < 1
    client.held.set()


@pytest.mark.parametrize("call", ["start_weight_update", "update_weights", "finish_weight_update"])
def test_a_worker_that_dies_is_an_exception_within_a_second_on_every_rank(call):
    client = DyingClient(call)
    engines = trainers(client, [Sharded(0), Sharded(1)])
    failed = everybody(engines)
    assert time.monotonic() - client.died < 1
    assert isinstance(failed[0], ferry.PeerClientGoneError) and "worker-7" in str(failed[0]), failed
    assert isinstance(failed[1], ferry.AbortedError) and "PEER_CLIENT_GONE" in str(failed[1])
    assert client.calls == [] and [engine._offers.names() for engine in engines] == [[backend.WORKERS], []]
    client.held.set()
    close(*engines)
