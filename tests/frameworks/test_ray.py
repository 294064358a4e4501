# SPDX-License-Identifier: Apache-2.0
"""ferry.ray in Ray itself, on one machine: what Ray's own tests of custom transports, of its manager and of its Gloo transport
ask of a transport (python/ray/tests/rdt), with NumPy's arrays, without PyTorch; its tensors: test_ray_torch.py."""

import os
import re
import sys
import time

import numpy as np
import pytest
import ray
from ray.experimental.rdt.rdt_manager import RDTManager, RDTMeta

import ferry
import ferry.ray

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
ferry.ray.register(np.ndarray)  # before classes name it


@ray.remote(enable_tensor_transport=True, max_restarts=1)
class Actor:
    def __init__(self):
        ferry.ray.register(np.ndarray)  # Ray tells an actor of transports when it is made, and not when it is restarted

    @ray.method(tensor_transport="FERRY")
    def echo(self, data):
        return data

    @ray.method(tensor_transport="FERRY")
    def shared(self, size):
        made = ferry.ray.session().empty(size, "float32").numpy()
        made[:] = 1
        return made

    def plain(self, data):
        return data

    def double(self, data):
        return [self.double(one) for one in data] if isinstance(data, list) else data * 2

    def add(self, a, b):
        return a + b

    def total(self, data):
        return float(sum(one.sum() for one in data)) if isinstance(data, list) else float(data.sum())

    @ray.method(tensor_transport="FERRY")
    def fail(self, text):
        raise ValueError(text)

    def sleep(self, seconds):
        time.sleep(seconds)

    @ray.method(concurrency_group="_ray_system")
    def block_background(self, seconds):
        time.sleep(seconds)

    def objects(self):
        return ray._private.worker.global_worker.rdt_manager.rdt_store.get_num_objects()

    def offered(self):
        from ray.experimental.rdt.util import get_tensor_transport_manager

        return len(get_tensor_transport_manager("FERRY").source().names())

    def hold_back(self):
        """From now on what is asked of this actor is not posted, until `let_go`."""
        import threading

        here, self._gate, self._asked = ferry.ray.session(), threading.Event(), threading.Event()
        post = here._post

        def late(*given, **named):
            self._asked.set()
            self._gate.wait(60)
            return post(*given, **named)

        here._post = late

    def was_asked(self):
        return self._asked.wait(20)

    def let_go(self):
        del ferry.ray.session()._post
        self._gate.set()

    def pulls(self):
        from ray.experimental.rdt.util import get_tensor_transport_manager

        return len(get_tensor_transport_manager("FERRY")._pulls)

    def pid(self):
        return os.getpid()

    def transfers(self):
        return list(ferry.ray.transfers)

    def sessions(self):
        return ferry.ray.session().id


@pytest.fixture(scope="module", autouse=True)
def cluster(node):
    ray.init(num_cpus=4, include_dashboard=False, logging_level="warning")
    yield
    ray.shutdown()


@pytest.fixture
def actors():
    made = [Actor.options(num_cpus=0).remote() for _ in range(2)]
    yield made
    for actor in made:
        ray.kill(actor)


def until(what, timeout=20):
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_array_goes_from_actor_to_actor(actors):
    sender, receiver = actors
    assert ray.get(receiver.total.remote(sender.echo.remote(np.array([1, 2, 3])))) == 6
    assert ray.get(receiver.total.remote(sender.plain.remote(np.array([1, 2, 3])))) == 6
    told = ray.get(receiver.transfers.remote())
    assert len(told) == 1 and told[0].nbytes == 24 and told[0].copied == 1 and told[0].routes == ("local",)


def test_memory_of_the_session_goes_without_a_copy(actors):
    sender, receiver = actors
    assert ray.get(receiver.total.remote(sender.shared.remote(1 << 20))) == 1 << 20
    assert [one.copied for one in ray.get(receiver.transfers.remote())] == [0]


def test_several_arrays_beside_other_data(actors):
    sender, receiver = actors
    got = ray.get(receiver.double.remote(sender.echo.remote([np.arange(3), np.arange(4.0), 7, np.zeros((0, 3))])))
    assert (got[0] == [0, 2, 4]).all() and (got[1] == np.arange(4) * 2).all() and got[2] == 14 and got[3].shape == (0, 3)
    got = ray.get(receiver.double.remote(sender.echo.remote([np.arange(3), b"1" * 1_000_000])))  # in the object store
    assert len(got[1]) == 2_000_000
    assert ray.get(receiver.double.remote(sender.echo.remote(123))) == 246


def test_the_driver_gets_and_puts(actors):
    sender, receiver = actors
    ref = sender.echo.remote(np.arange(5))
    assert (ray.get(ref) == np.arange(5)).all()
    refs = [sender.echo.remote(np.full(5, i)) for i in range(4)]
    assert [int(one[0]) for one in ray.get(refs)] == [0, 1, 2, 3]
    assert (ray.get(ref, _use_object_store=True) == np.arange(5)).all()
    assert ray.get(receiver.total.remote(ray.put(np.arange(5), _tensor_transport="FERRY"))) == 10


def test_into_buffers_of_the_driver(actors):
    ref = actors[0].echo.remote([np.arange(5.0)])
    target = np.zeros(5)
    # Ray looks whether the buffers fit as if they were torch's: what it passes on is what counts here.
    transport = ray.experimental.rdt.util.get_tensor_transport_manager("FERRY")
    manager = ray._private.worker.global_worker.rdt_manager
    until(lambda: manager.get_rdt_metadata(ref.hex()).tensor_transport_meta is not None)
    meta = manager.get_rdt_metadata(ref.hex()).tensor_transport_meta
    got = transport.recv_multiple_tensors(ref.hex(), meta, None, [target])
    assert got[0] is target and (target == np.arange(5)).all()


def test_one_object_many_times(actors):
    sender, receiver = actors
    ref = sender.echo.remote(np.arange(3))
    assert (ray.get(receiver.add.remote(ref, ref)) == np.arange(3) * 2).all()
    assert all((one == np.arange(3) * 2).all() for one in ray.get([receiver.double.remote(ref) for _ in range(5)]))
    assert (ray.get(sender.double.remote(ref)) == np.arange(3) * 2).all()


def test_many_receivers_at_once(actors):
    takers = [Actor.options(num_cpus=0).remote() for _ in range(3)]
    ref = actors[0].echo.remote(np.full(1 << 18, 2.0))
    assert ray.get([taker.total.remote(ref) for taker in takers]) == [2.0 * (1 << 18)] * 3
    for taker in takers:
        ray.kill(taker)


def test_what_is_out_of_scope_is_freed(actors):
    sender, receiver = actors
    ref = sender.echo.remote([np.arange(3), b"1" * 100])
    ray.get([receiver.double.remote(ref), receiver.double.remote(ref)])
    until(lambda: ray.get(receiver.objects.remote()) == 0)
    assert ray.get(sender.offered.remote()) == 1
    del ref
    until(lambda: ray.get(sender.objects.remote()) == 0 and ray.get(sender.offered.remote()) == 0)
    last = receiver.double.remote(sender.echo.remote(np.arange(3)))  # whose reference goes before it has come
    assert (ray.get(last) == np.arange(3) * 2).all()


def test_a_sender_that_is_busy_sends_all_the_same(actors):
    sender, receiver = actors
    ref = sender.echo.remote(np.arange(5))
    sender.sleep.remote(60)
    assert ray.get(receiver.total.remote(ref), timeout=20) == 10


def test_both_ways_at_once(actors):
    first, second = actors
    refs = [(first.echo.remote(np.full(9, i)), second.echo.remote(np.full(9, i))) for i in range(20)]
    there = [second.total.remote(a) for a, _ in refs]
    back = [first.total.remote(b) for _, b in refs]
    assert ray.get(there) == ray.get(back) == [9.0 * i for i in range(20)]


def test_an_exception_of_the_program_is_that(actors):
    sender, receiver = actors
    with pytest.raises(Exception, match="of the program"):
        ray.get(receiver.double.remote(sender.fail.remote("of the program")))
    assert (ray.get(receiver.double.remote(sender.echo.remote(np.arange(3)))) == np.arange(3) * 2).all()


def test_a_sender_that_died_is_told_and_its_successor_is_as_good(actors):
    sender, receiver = actors
    ref = sender.echo.remote(np.arange(5))
    ray.wait([ref])
    assert ray.get(receiver.total.remote(ref)) == 10
    ray.kill(sender, no_restart=False)
    began = time.monotonic()
    with pytest.raises((ferry.FerryError, ray.exceptions.RayError)) as error:
        ray.get(receiver.total.remote(ref), timeout=30)
    assert not isinstance(error.value, ray.exceptions.GetTimeoutError), time.monotonic() - began
    # Ray's own word, or Ferry's: of a process that has ended already, or that ends as it is asked.
    known = r"ActorDied|has ended, or was started again since|went away before it answered"
    assert re.search(known, f"{type(error.value).__name__} {error.value}")
    assert ray.get(receiver.plain.remote(1)) == 1  # nobody was ended because of that
    again = Actor.options(num_cpus=0).remote()
    assert ray.get(receiver.total.remote(again.echo.remote(np.arange(6)))) == 15
    ray.kill(again)


def test_an_actor_that_ray_has_restarted_sends_and_receives(actors):
    """The same handle: its process is another one, and so are its source and its session. Of a class that does not register
    itself Ray says "Unsupported tensor transport protocol: FERRY" then."""
    sender, receiver = actors
    assert ray.get(receiver.total.remote(sender.echo.remote(np.arange(5)))) == 10
    before = ray.get(sender.pid.remote())
    ray.kill(sender, no_restart=False)

    def back():
        try:
            return ray.get(sender.pid.remote(), timeout=20) != before
        except ray.exceptions.RayActorError:  # it is not there yet
            return False

    until(back, 60)
    assert ray.get(receiver.total.remote(sender.echo.remote(np.arange(6))), timeout=30) == 15
    assert ray.get(sender.total.remote(receiver.echo.remote(np.arange(7))), timeout=30) == 21


def test_a_fetch_that_is_cancelled_leaves_nothing(actors):
    sender, receiver = actors
    ref = sender.echo.remote(np.arange(5))
    ray.wait([ref])
    ray.get(sender.hold_back.remote())
    result = receiver.total.remote(ref)
    assert ray.get(sender.was_asked.remote())  # the fetch has begun
    ray.cancel(result)
    ray.get(sender.let_go.remote())
    try:  # which of the two comes first is Ray's matter: it does not end what an actor has begun
        assert ray.get(result, timeout=30) == 10
    except (ray.exceptions.TaskCancelledError, ray.exceptions.RayTaskError):
        pass
    until(lambda: ray.get(receiver.pulls.remote()) == 0 and ray.get(receiver.objects.remote()) == 0)
    assert ray.get(receiver.total.remote(ref), timeout=30) == 10  # both go on, with the same object
    del ref
    until(lambda: ray.get(sender.objects.remote()) == 0 and ray.get(sender.offered.remote()) == 0)


def test_a_receiver_that_dies_leaves_the_sender_alone(actors, node):
    sender, receiver = actors
    ref = sender.echo.remote(np.arange(5))
    receiver.block_background.remote(100)
    result = receiver.total.remote(ref)
    ray.kill(receiver)
    with pytest.raises(ray.exceptions.ActorDiedError):
        ray.get(result)
    other = Actor.options(num_cpus=0).remote()
    assert ray.get(other.total.remote(ref)) == 10
    ray.kill(other)


def test_ray_knows_no_other_transport_by_that_name():
    with pytest.raises(ValueError, match="already registered"):
        ray.experimental.register_tensor_transport("FERRY", ["cpu"], ferry.ray.FerryTransport, np.ndarray)
    ferry.ray.register(np.ndarray)
    with pytest.raises(ValueError, match="Invalid tensor transport"):
        Actor.options(num_cpus=0).remote().double.options(tensor_transport="FERRIES").remote(np.arange(3))


def test_the_manager_posts_all_fetches_first(monkeypatch, node):
    calls = []
    transport = ray.experimental.rdt.util.get_tensor_transport_manager("FERRY")
    fetch, wait = transport.fetch_multiple_tensors, transport.wait_fetch_complete
    monkeypatch.setattr(transport, "fetch_multiple_tensors", lambda *given: (calls.append("fetch"), fetch(*given))[1])
    monkeypatch.setattr(
        transport, "wait_fetch_complete", lambda *given, **named: (calls.append("wait"), wait(*given, **named))[1]
    )
    manager, names = RDTManager(), [f"object-{i}" for i in range(3)]
    fields = RDTMeta._fields
    for i, name in enumerate(names):
        meta = transport.extract_tensor_transport_metadata(name, [np.full(3, i)])
        known = {
            "src_actor": None,
            "tensor_transport_backend": "FERRY",
            "tensor_transport_meta": meta,
            "sent_dest_actors": set(),
        }
        manager.set_rdt_metadata(name, RDTMeta(**{field: known.get(field) for field in fields}))
    got = manager.fetch_and_get_rdt_objects(names)
    assert [int(got[name][0][0]) for name in names] == [0, 1, 2]
    assert calls == ["fetch"] * 3 + ["wait"] * 3
    for name in names:
        transport.garbage_collect(name, None, [])
