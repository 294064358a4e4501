# SPDX-License-Identifier: Apache-2.0
"""ferry.vllm over stand-ins of vLLM's base classes: two trainer ranks on node a, workers on node b. With vLLM's own:
tests/frameworks."""

import functools
import json
import subprocess
import sys
import threading
import time
import types

import fake_torch_cpu
import fake_vllm
import numpy as np
import pytest
from test_pages import block_with

import ferry

VALUES = {
    "a": np.arange(48, dtype="f4").reshape(8, 6),
    "b": np.arange(24, dtype="f4").reshape(6, 4),
    "c": np.float32([1, 2, 3]),
}


@pytest.fixture
def backend(monkeypatch, nodes):
    fake_vllm.install(monkeypatch)
    monkeypatch.setenv("FERRY_CLIENT_DIR", nodes.b)
    forget()
    import ferry.vllm

    yield ferry.vllm
    forget()


def forget():
    """The adapter, which has the stand-ins of a test in it."""
    for name in ("vllm", "_vllm_worker", "_vllm_infos"):
        sys.modules.pop(f"ferry.{name}", None)
        ferry.__dict__.pop(name, None)


class Source:
    """Rows of a, columns of b; c is the second rank's alone."""

    def __init__(self, rank):
        self.rank, self.version = rank, 0
        shard, both = (lambda dim: types.SimpleNamespace(dim=dim)), {"owners": (0, 1), "mesh_shape": (2,)}
        meta = {name: {"name": name, "dtype": "torch.float32", "shape": value.shape} for name, value in VALUES.items()}
        self.metadata = [
            types.SimpleNamespace(**meta["a"], **both, placements=(shard(0),)),
            types.SimpleNamespace(**meta["b"], **both, placements=(shard(1),)),
            types.SimpleNamespace(**meta["c"], owners=(1,), mesh_shape=(1,), placements=None),
        ]

    def implements_iter_local(self):
        return True

    def iter_local(self):
        yield "a", fake_torch_cpu.tensor(np.split(VALUES["a"] + self.version, 2, 0)[self.rank])
        yield "b", fake_torch_cpu.tensor(np.split(VALUES["b"] + self.version, 2, 1)[self.rank])
        if self.rank == 1:
            yield "c", fake_torch_cpu.tensor(VALUES["c"] + self.version)


class Model:
    def __init__(self):
        self.loaded = {}

    def load_weights(self, weights):
        self.loaded.update((name, np.array(tensor)) for name, tensor in weights)


class Client:
    def __init__(self, worker):
        self.worker, self.finished = worker, []

    def init_weight_transfer_engine(self, info):
        self.worker.init_transfer_engine(self.worker.init_info_cls(**info))

    def start_weight_update(self):
        self.worker.start_weight_update()

    def update_weights(self, info):
        self.worker.receive_weights(self.worker.update_info_cls(**info))

    def finish_weight_update(self, weight_version):
        self.worker.finish_weight_update()
        self.finished.append(weight_version)


class Dying(Client):
    """A worker of this process, and one whose process dies in one of the calls, which then does not return."""

    def __init__(self, worker, call):
        super().__init__(worker)
        self.call, self.held, self.process, self.died = call, threading.Event(), None, None

    def die(self, call):
        if call == self.call:
            self.process.kill()
            self.process.wait()
            self.died = time.monotonic()
            self.held.wait(60)

    def init_weight_transfer_engine(self, info):
        program = (
            "import json, sys\n"
            "from ferry._presence import Presence\n"
            "from ferry._request import Address\n"
            "address, name = json.loads(sys.argv[1])\n"
            "here = Presence(Address(*address), name, 'node-b/worker-7')\n"
            "print('there', flush=True)\n"
            "sys.stdin.read()\n"
        )
        command = [sys.executable, "-c", program, json.dumps([info["trainer"], sys.modules["ferry.vllm"].WORKERS])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "there\n"
        super().init_weight_transfer_engine(info)
        self.die("init")

    def start_weight_update(self):
        super().start_weight_update()
        self.die("start")

    def update_weights(self, info):
        super().update_weights(info)
        self.die("update")

    def finish_weight_update(self, weight_version):
        self.die("finish")
        super().finish_weight_update(weight_version)

    def close(self):
        self.held.set()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def made(backend, nodes):
    """A worker, its client, two trainer ranks, and a call of send_weights on both."""
    worker = worker_of(backend)
    made = group_of(backend, nodes, Client(worker))
    yield types.SimpleNamespace(worker=worker, **vars(made))
    for engine in (worker, *made.ranks):
        engine.shutdown()


def worker_of(backend):
    config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(rank=3), model_config=None)
    return backend.FerryWeightTransferEngine(None, config, "cpu", Model())


def group_of(backend, nodes, client, **options):
    barrier, shared = threading.Barrier(2), [None, None]

    def gather(rank, value):
        shared[rank] = value
        barrier.wait(30)
        both = list(shared)
        barrier.wait(30)
        return both

    ranks = []
    for rank in range(2):
        info = backend.FerryTrainerInitInfo(
            rank=rank, client_dir=nodes.a, gather=functools.partial(gather, rank), bucket_bytes=100, **options
        )
        ranks.append(backend.FerryTrainerWeightTransferEngine.trainer_init(info, client=client, source=Source(rank)))

    def send():
        failed = [None, None]

        def run(rank):
            try:
                ranks[rank].send_weights()
            except Exception as error:
                failed[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failed

    return types.SimpleNamespace(client=client, ranks=ranks, send=send)


def test_it_registers_with_both_factories_once(backend):
    backend.register()
    backend.register()
    factory = sys.modules["vllm.distributed.weight_transfer.factory"]
    assert factory.WeightTransferEngineFactory.known == {"ferry": ("ferry.vllm", "FerryWeightTransferEngine")}
    assert factory.WeightTransferTrainerFactory.known == {"ferry": ("ferry.vllm", "FerryTrainerWeightTransferEngine")}


def test_shards_of_all_ranks_arrive_as_whole_parameters(made):
    for version in (1, 2):
        for engine in made.ranks:
            engine.source.version = version
        assert made.send() == [None, None]
        assert all((made.worker.model.loaded[name] == value + version).all() for name, value in VALUES.items())
        assert made.worker.version == version and made.client.finished[-1] == str(version)
    assert made.worker.routes and "any" not in made.worker.routes


def test_parts_come_to_where_a_live_parameter_has_them(backend, nodes, monkeypatch):
    """Rows and columns of two ranks, into memory that the daemon sees: without a piece beside it that is copied."""
    worker, live = worker_of(backend), {}

    def resolve(model, names, *_, **__):
        for name in names:
            live[name] = np.from_dlpack(worker._session.empty(VALUES[name].shape)).view(fake_torch_cpu.Tensor)
        return [types.SimpleNamespace(name=name, tensor=live[name], direct=True) for name in names]

    layout = sys.modules["vllm.distributed.weight_transfer.m2n_layout"]
    monkeypatch.setattr(layout, "resolve_parameter_destinations", resolve)
    made = group_of(backend, nodes, Client(worker))
    monkeypatch.setattr(worker._session, "empty", None)
    for version in (1, 2):
        for engine in made.ranks:
            engine.source.version = version
        assert made.send() == [None, None]
        assert all((live[name] == value + version).all() for name, value in VALUES.items()) and not worker.model.loaded
    for engine in (worker, *made.ranks):
        engine.shutdown()


def test_the_lines_of_the_page(backend):
    """As they stand there, in a trainer of one rank: the worker has everything when they are through."""
    config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(rank=0), model_config=None)
    worker = backend.FerryWeightTransferEngine(None, config, "cpu", Model())
    whole = Source(0)
    whole.metadata = [
        types.SimpleNamespace(
            name=name, dtype="torch.float32", shape=value.shape, owners=(0,), mesh_shape=(1,), placements=None
        )
        for name, value in VALUES.items()
    ]
    whole.iter_local = lambda: ((name, fake_torch_cpu.tensor(value)) for name, value in VALUES.items())
    names = {
        "WeightTransferTrainerFactory": backend.FerryTrainerWeightTransferEngine,
        "FerryTrainerInitInfo": backend.FerryTrainerInitInfo,
        "rank": 0,
        "address": "127.0.0.1",
        "client": Client(worker),
        "source": whole,
    }
    try:
        exec(block_with("WeightTransferTrainerFactory"), names)
        assert all((worker.model.loaded[name] == value).all() for name, value in VALUES.items())
    finally:
        worker.shutdown()
        if "engine" in names:
            names["engine"].shutdown()


def test_a_worker_that_goes_away_is_an_exception_on_every_rank(made):
    held = threading.Event()

    def dies(info):
        presence = ferry._presence.Presence(ferry._request.Address(*info["sources"][0][0]), info["offer"], "worker-3")
        presence.close()
        held.wait(30)

    made.client.update_weights = dies
    first, second = made.send()
    assert isinstance(first, ferry.PeerClientGoneError) and "worker-3 went away" in str(first)
    assert isinstance(second, ferry.AbortedError) and "version 1 of the weights was not taken" in str(second)
    assert made.client.finished == [] and all(engine.version == 0 for engine in made.ranks)
    held.set()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_has_nothing_to_offer_is_an_exception_on_every_rank(made, monkeypatch, rank):
    """Nobody waits for it in a collective, and the next version comes."""
    with monkeypatch.context() as patch:
        patch.setattr(made.ranks[rank].source, "iter_local", lambda: 1 / 0)
        failed = made.send()
    assert isinstance(failed[rank], ZeroDivisionError), failed
    other = failed[1 - rank]
    assert isinstance(other, ferry.AbortedError) and f"not offered by rank {rank}: ZeroDivisionError" in str(other), other
    assert made.client.finished == [] and all("vllm-1" not in engine._offers.names() for engine in made.ranks)
    assert made.send() == [None, None] and made.worker.version == 1


@pytest.mark.parametrize("call", ["init", "start", "update", "finish"])
def test_a_worker_that_dies_is_an_exception_within_a_second_whatever_it_was_asked(backend, nodes, call):
    """Also while no weights move: the call never returns, and nobody waits for it."""
    worker = worker_of(backend)
    client = Dying(worker, call)
    try:
        if call == "init":
            with pytest.raises(ferry.PeerClientGoneError, match="worker-7 went away"):
                group_of(backend, nodes, client)
            assert time.monotonic() - client.died < 1
            return
        made = group_of(backend, nodes, client)
        first, second = made.send()
        assert time.monotonic() - client.died < 1
        assert isinstance(first, ferry.PeerClientGoneError) and "worker-7 went away" in str(first), first
        assert isinstance(second, ferry.AbortedError) and "PEER_CLIENT_GONE" in str(second), second
        assert client.finished == [] and all(engine.version == 0 for engine in made.ranks)
        first, _ = made.send()  # nor is it asked again
        assert isinstance(first, ferry.PeerClientGoneError)
        for engine in made.ranks:
            engine.shutdown()
    finally:
        client.close()
        worker.shutdown()


def test_a_worker_that_is_shut_down_has_not_died(made):
    assert made.send() == [None, None]
    made.worker.shutdown()
    assert made.ranks[0]._offers.taken(sys.modules["ferry.vllm"].WORKERS).failed == {}
    with pytest.raises(ferry.FailedPreconditionError):
        made.worker.finish_weight_update()


def test_a_call_that_no_worker_answers_ends_at_the_deadline(backend, nodes):
    worker, held = worker_of(backend), threading.Event()
    made = group_of(backend, nodes, Client(worker), deadline=0.5)
    made.client.start_weight_update = lambda: held.wait(60)
    begun = time.monotonic()
    first, _ = made.send()
    assert isinstance(first, ferry.DeadlineExceededError) and "start_weight_update after 0.5 s" in str(first), first
    assert time.monotonic() - begun < 20
    held.set()
    for engine in (worker, *made.ranks):
        engine.shutdown()


def test_what_has_not_arrived_is_not_finished(made):
    made.worker.start_weight_update()
    with pytest.raises(ferry.FailedPreconditionError, match="not all has arrived"):
        made.worker.finish_weight_update()
