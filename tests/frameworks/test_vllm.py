# SPDX-License-Identifier: Apache-2.0
"""ferry.vllm in vLLM itself, on a host without a GPU: its loader of plugins, its command line and configuration, its base
classes and factories, its worker's calls and its layers (vllm_workers.py), and PyTorch's tensors of the CPU. What the CPU
classes of upstream's tests/distributed/test_weight_transfer.py ask of a backend, and whole updates."""

import functools
import http.server
import importlib.metadata
import json
import math
import multiprocessing
import os
import threading
import time
from unittest.mock import MagicMock

import pytest
import torch
import transformers
import vllm_workers
from vllm.config import VllmConfig
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import HTTPVLLMWeightSyncClient, ModuleSource, VLLMWeightSyncClient
from vllm.distributed.weight_transfer.base import ParamMeta, Replicate, Shard, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory
from vllm.plugins import load_general_plugins

import ferry
import ferry.vllm as backend

# Whose children have vLLM already, and no session: importing it takes ten seconds.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["ferry.vllm", "transformers", "vllm.v1.executor", "vllm_workers"])

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


@functools.cache
def config():
    return VllmConfig(weight_transfer_config=WeightTransferConfig(backend="ferry"))


def worker(rank=0):
    configured = vllm_workers.of_rank(config(), rank)
    return WeightTransferEngineFactory.create_engine(
        configured.weight_transfer_config, configured, torch.device("cpu"), Model()
    )


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
    load_general_plugins()


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


def test_vllms_loader_of_plugins_registers_it_in_both_factories():
    assert "ferry" in WeightTransferEngineFactory._registry and "ferry" in WeightTransferTrainerFactory._registry
    found = importlib.metadata.entry_points(group="vllm.general_plugins")
    (entry,) = [one for one in found if one.name == "ferry"]
    assert entry.load() is backend.register
    backend.register()  # a second time, as vLLM does in some processes
    assert isinstance(worker(), backend.FerryWeightTransferEngine)
    with pytest.raises(ValueError, match="already registered"):
        WeightTransferEngineFactory.register_engine("ferry", backend.FerryWeightTransferEngine)
    with pytest.raises(ValueError, match="Invalid weight transfer backend.*'ferry'"):
        WeightTransferEngineFactory.create_engine(
            WeightTransferConfig(backend="ferries"), config(), torch.device("cpu"), Model()
        )


def test_vllms_command_line_takes_it(tmp_path):
    made = vllm_workers.configured(tmp_path)
    assert type(made) is VllmConfig and made.weight_transfer_config == WeightTransferConfig(backend="ferry")
    one = vllm_workers.worker(made, Model())
    assert isinstance(one.weight_transfer_engine, backend.FerryWeightTransferEngine)


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


class Rows(WeightSource):
    """Of two trainer ranks: halves of the rows of what has two dimensions, the whole of the rest at each."""

    def __init__(self, model, rank):
        self.model, self.rank = model, rank

    @functools.cached_property
    def metadata(self):
        both = {"owners": (0, 1), "mesh_shape": (2,)}
        return [
            ParamMeta(name, one.dtype, tuple(one.shape), **both, placements=(Shard(0) if one.dim() > 1 else Replicate(),))
            for name, one in self.model.named_parameters()
        ]

    def iter_local(self):
        for name, one in self.model.named_parameters():
            yield name, one.chunk(2, 0)[self.rank] if one.dim() > 1 else one


class Remote:
    """vLLM's workers in processes of their own."""

    def __init__(self, folder, ranks):
        self.pipes, self.processes, self.versions = [], [], []
        for rank in range(ranks):
            mine, theirs = processes.Pipe()
            given = (rank, ranks, str(folder), str(folder / "meeting"), theirs)
            self.pipes.append(mine)
            self.processes.append(processes.Process(target=vllm_workers.serve, args=given))
            self.processes[-1].start()
            theirs.close()

    def all(self, call, *given):
        for pipe in self.pipes:
            pipe.send((call, given))
        said = [pipe.recv() for pipe in self.pipes]
        for one in said:
            if isinstance(one, Exception):
                raise one
        return said

    def init_weight_transfer_engine(self, info):
        self.all("init_weight_transfer_engine", info)

    def start_weight_update(self):
        self.all("start_weight_update")

    def update_weights(self, info):
        self.all("update_weights", info)

    def finish_weight_update(self, weight_version=None):
        self.all("finish_weight_update")
        self.versions.append(weight_version)

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()
        assert [process.exitcode for process in self.processes] == [0] * len(self.processes)


def as_vllm_has_it(weights, rank, ranks):
    """What a worker's parameters are to be: fused as vLLM fuses them, and of each its own part."""
    due = {}
    for name, one in weights.items():
        module, _, what = name.removesuffix(".weight").rpartition(".")
        if what in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"):
            fused = "qkv_proj" if what in ("q_proj", "k_proj", "v_proj") else "gate_up_proj"
            due.setdefault(f"{module}.{fused}.weight", []).append(one.chunk(ranks, 0)[rank])
        elif what in ("o_proj", "down_proj"):
            due[name] = [one.chunk(ranks, 1)[rank]]
        else:
            due[name] = [one.chunk(ranks, 0)[rank] if one.dim() > 1 else one]
    return {name: torch.cat(parts) for name, parts in due.items()}


@pytest.mark.parametrize("ranks, workers", [(1, 1), (2, 2)])
def test_a_llama_of_transformers_becomes_one_of_vllm(tmp_path, ranks, workers):
    """By vLLM's own source of a module's weights, or by two ranks with rows; to one worker, or to two by tensor parallelism, of
    which each fetches no more than its shard of what vLLM's layers let be written in place."""
    client = Remote(tmp_path, workers)
    assert isinstance(client, VLLMWeightSyncClient)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**vllm_workers.LLAMA)).to(torch.float32)
    sources = [ModuleSource(model)] if ranks == 1 else [Rows(model, rank) for rank in range(ranks)]
    engines = trainers(client, sources, bucket_bytes=1 << 12)
    for version in (1, 2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += version
        assert everybody(engines) == [None] * ranks
        for rank, parameters in enumerate(client.all("parameters")):
            due = as_vllm_has_it(dict(model.named_parameters()), rank, workers)
            assert sorted(parameters) == sorted(due)
            assert [name for name, one in due.items() if not torch.equal(torch.from_numpy(parameters[name]), one)] == []
    assert client.versions == ["1", "2"]
    direct = {name for name, _ in model.named_parameters() if "o_proj" in name or "down_proj" in name}
    assert all(direct <= set(names) for names in client.all("direct"))
    whole = sum(one.nbytes for one in model.parameters())
    less = sum(one.nbytes for name, one in model.named_parameters() if name in direct)
    assert client.all("fetched") == [2 * (whole - less + less // workers)] * workers
    client.end()
    close(*engines)


def test_vllms_client_of_http_carries_what_is_told():
    """Its JSON, to a server that asks a worker what vLLM's routes ask."""
    one = vllm_workers.worker(config(), Model())

    class Routes(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            given = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            given.pop("weight_version", None)
            getattr(one, self.path[1:])(*given.values())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Routes) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        engines = trainers(HTTPVLLMWeightSyncClient(f"http://127.0.0.1:{server.server_port}"), [Sharded(0), Sharded(1)])
        assert everybody(engines) == [None, None]
        server.shutdown()
    model = one.weight_transfer_engine.model
    assert all(torch.equal(model.loaded[name], value(name, 1)) for name in SHAPES)
    one.shutdown_weight_transfer_engine()
    close(*engines)


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
    load_general_plugins()
    engine = worker(7)
    pipe.send("ready")
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
        self.pipe, theirs = processes.Pipe()
        self.process = processes.Process(target=dead_worker, args=(call, theirs))
        self.process.start()
        theirs.close()
        assert self.pipe.recv() == "ready"

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
