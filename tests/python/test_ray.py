# SPDX-License-Identifier: Apache-2.0
"""ferry.ray over stand-ins of Ray's base classes: two transports as those of two actors, on two nodes. With Ray itself:
tests/frameworks."""

import contextlib
import gc
import pickle
import sys
import threading
import time
import types
import weakref

import fake_ray
import numpy as np
import pytest
from test_pages import block_with

import ferry


@pytest.fixture
def module(monkeypatch):
    fake_ray.install(monkeypatch)
    sys.modules.pop("ferry.ray", None)
    import ferry.ray

    yield ferry.ray
    sys.modules.pop("ferry.ray", None)
    del ferry.__dict__["ray"]


@pytest.fixture
def actors(module, monkeypatch, a, b):
    """The transports of one actor on node a and one on node b; `of(...)` makes a call as the actor's."""
    made = {}
    with contextlib.ExitStack() as ended:
        for name in "ab":
            made[name] = module.FerryTransport()
            ended.callback(made[name].close)
        now = threading.local()
        monkeypatch.setattr(module, "session", lambda: getattr(now, "session", a))

        @contextlib.contextmanager
        def at(name):
            now.session = {"a": a, "b": b}[name]
            yield made[name]

        yield at


def fetched(at, meta, **options):
    with at("b") as transport:
        return transport.recv_multiple_tensors(
            "object", meta, transport.get_communicator_metadata(None, None, "FERRY"), **options
        )


def made(at, tensors):
    with at("a") as transport:
        return pickle.loads(pickle.dumps(transport.extract_tensor_transport_metadata("object", tensors)))


def test_it_registers_once_and_says_what_it_can(module):
    module.register(np.ndarray)
    module.register(np.ndarray)
    devices, manager, data_type = fake_ray.registered["FERRY"]
    assert devices == ["cpu", "cuda"] and data_type is np.ndarray
    assert manager.is_one_sided() and manager.can_abort_transport()
    assert manager().tensor_transport_backend() == "FERRY"
    module.register(list, "FERRY_LISTS")
    assert set(fake_ray.registered) == {"FERRY", "FERRY_LISTS"}


def test_the_lines_of_the_page(actors):
    """As they stand there: what they give Ray names a transport that is registered, and the class is as it was."""
    given = []

    def takes(**options):
        given.append(options)
        return lambda made: made

    names = {"ferry": ferry, "ray": types.SimpleNamespace(remote=takes, method=takes), "jax": types.SimpleNamespace(Array=list)}
    exec(block_with("ferry.ray"), names)
    assert set(fake_ray.registered) == {"FERRY", "FERRY_JAX"} and fake_ray.registered["FERRY_JAX"][2] is list
    assert {"enable_tensor_transport": True} in given
    (transport,) = [options["tensor_transport"] for options in given if "tensor_transport" in options]
    assert transport in fake_ray.registered and callable(names["Producer"]().weights)


def test_arrays_arrive_as_they_were_and_the_route_is_told(actors, module, a):
    at = actors
    there = a.empty((3, 4), "int32").numpy()
    there[:] = np.arange(12).reshape(3, 4)
    meta = made(at, [there, np.float64(2.5) * np.ones(5)])
    assert meta.tensor_device == "cpu" and meta.node == "node-a"
    assert meta.tensor_meta == [((3, 4), np.dtype("int32")), ((5,), np.dtype("float64"))]
    first, second = fetched(at, meta)
    assert (first == there).all() and (second == 2.5).all() and isinstance(first, np.ndarray)
    told = module.transfers[-1]
    assert (told.obj_id, told.node, told.nbytes, told.tensors, told.copied) == ("object", "node-a", 88, 2, 1)
    assert told.routes and "any" not in told.routes


def test_an_object_without_tensors_needs_nobody(actors):
    meta = made(actors, [])
    assert meta.address is None and fetched(actors, meta) == []


def test_it_is_fetched_as_often_as_it_is_asked_for(actors):
    meta = made(actors, [np.arange(5)])
    assert all((fetched(actors, meta)[0] == np.arange(5)).all() for _ in range(3))


def test_all_fetches_are_posted_before_any_is_waited_for(actors):
    meta = made(actors, [np.arange(5)])
    with actors("b") as transport:
        requests = [transport.fetch_multiple_tensors("object", meta, None) for _ in range(5)]
        assert all((transport.wait_fetch_complete(request, timeout=20)[0] == np.arange(5)).all() for request in requests)


def test_into_buffers(actors, b):
    meta = made(actors, [np.arange(5), np.arange(6.0)])
    shared, own = b.empty(5, "int64").numpy(), np.zeros(6)
    got = fetched(actors, meta, target_buffers=[shared, own])
    assert got[0] is shared and got[1] is own and (shared == np.arange(5)).all() and (own == np.arange(6)).all()
    with pytest.raises(ferry.InvalidArgumentError, match=r"buffer 0 is int64\(4,\), the tensor int64\(5,\)"):
        fetched(actors, meta, target_buffers=[np.zeros(4, "i8"), own])
    with pytest.raises(ferry.InvalidArgumentError, match="2 tensors are fetched into 1 buffers"):
        fetched(actors, meta, target_buffers=[own])


def test_what_was_freed_is_not_found(actors):
    meta = made(actors, [np.arange(5)])
    with actors("a") as transport:
        transport.garbage_collect("object", meta, [])
        transport.garbage_collect("object", meta, [])
        assert transport.source().names() == []
    with pytest.raises(ferry.NotFoundError, match="'object' is not here: it was never made, or it was freed"):
        fetched(actors, meta)


def test_an_actor_that_died_is_told_at_once_and_leaves_nothing(actors, b):
    meta = made(actors, [np.arange(5)])
    with actors("a") as transport:
        transport.close()
    with pytest.raises(ferry.UnavailableError, match="cannot be reached at .*: it has ended, or was started again since"):
        fetched(actors, meta)
    again = made(actors, [np.arange(7)])  # the actor that Ray has started again
    assert again.address != meta.address
    assert (fetched(actors, again)[0] == np.arange(7)).all()


def test_who_has_not_the_token_gets_nothing(actors):
    meta = made(actors, [np.arange(5)])
    meta.address = meta.address._replace(token="0" * 32)
    with pytest.raises(ferry.PeerClientGoneError, match="its connection was closed"):
        fetched(actors, meta)


def test_an_abort_ends_both_ends(actors, monkeypatch, a):
    meta = made(actors, [np.arange(5)])
    with actors("b") as transport:
        # The sender posts nothing, so that there is something to abort.
        held, posted = threading.Event(), threading.Event()
        send = a._post

        def late(*arguments, **options):
            posted.set()
            held.wait(20)
            return send(*arguments, **options)

        monkeypatch.setattr(a, "_post", late)
        request = transport.fetch_multiple_tensors("object", meta, None)
        assert posted.wait(20)
        transport.abort_transport("object", None)
        with pytest.raises((ferry.CancelledError, ferry.PeerClientGoneError)):
            transport.wait_fetch_complete(request)
        assert transport._pulls == {}
        held.set()
    monkeypatch.undo()


@pytest.mark.parametrize("over", [False, True])
def test_a_fetch_that_is_thrown_away_leaves_nothing(actors, monkeypatch, a, over):
    meta = made(actors, [np.arange(5)])
    held = threading.Event()
    send = a._post
    if not over:  # else all has come, though nobody has asked
        monkeypatch.setattr(a, "_post", lambda *some, **options: (held.wait(20), send(*some, **options))[1])
    with actors("b") as transport:
        request = transport.fetch_multiple_tensors("object", meta, None)
        end = time.monotonic() + 20
        while over and not request.pull.over():
            assert time.monotonic() < end
        connection, arena = request.pull._request._connection, weakref.ref(request.pull.tensors[0]._arena)
        assert len(transport._pulls) == 1
        del request
        gc.collect()
        assert not transport._pulls and connection.fileno() == -1 and arena() is None
    held.set()
    with actors("a") as transport:
        end = time.monotonic() + 20
        while transport.source()._askers:  # who has it hears of it
            assert time.monotonic() < end


def test_a_timeout_of_rays_is_pythons(actors, monkeypatch, a):
    meta = made(actors, [np.arange(5)])
    held = threading.Event()
    send = a._post
    monkeypatch.setattr(a, "_post", lambda *some, **options: (held.wait(20), send(*some, **options))[1])
    with actors("b") as transport:
        request = transport.fetch_multiple_tensors("object", meta, None)
        with pytest.raises(TimeoutError, match="did not answer"):
            transport.wait_fetch_complete(request, timeout=0.01)
        assert transport._pulls == {}
    held.set()


def test_what_is_no_tensor_is_refused(actors):
    with pytest.raises(ferry.InvalidArgumentError, match="a str is no tensor of PyTorch, NumPy, JAX or Ferry"):
        made(actors, ["text"])


def test_an_actor_that_cannot_receive_is_told_before_it_hangs(actors, caplog):
    with actors("a") as transport:
        transport.get_communicator_metadata(None, types.SimpleNamespace(_ray_enable_tensor_transport=True), "FERRY")
        assert not caplog.records
        transport.get_communicator_metadata(None, types.SimpleNamespace(_ray_enable_tensor_transport=False), "FERRY")
    assert "enable_tensor_transport=True" in caplog.text
