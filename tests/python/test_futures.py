# SPDX-License-Identifier: Apache-2.0
"""Waiting: result, await, callbacks; what other threads do meanwhile; cancelling, poisoning, deadlines."""

import asyncio
import concurrent.futures
import sys
import threading
import time

import pytest

import ferry
from ferry import _abi
from ferry._future import wait_in_slices


def receive(session, key, **how):
    return session.recv(shape=4, dtype="uint8", frm=0, key=key, **how)


def test_a_wait_that_takes_too_long_leaves_the_transfer(a, b, key):
    got = receive(b, key)
    assert not got.done()
    with pytest.raises(ferry.WaitTimeoutError, match=r"of key 'test_a_wait.*are not over after 0.01 s; they go on: wait again"):
        got.result(0.01)
    with pytest.raises(TimeoutError):
        got.exception(timeout=0)
    a.send(b"late", to=2, key=key).result(20)
    assert bytes(got.result(20).memory) == b"late" and got.done() and got.exception() is None


def test_what_is_over_just_behind_a_slice_of_a_wait_has_gone_well(a, b, key):
    lib = _abi.library()
    got = receive(b, key)
    handle = got._posts[0].handle
    said = [lib.ferry_batch_wait(handle, 0)]  # that its time has passed
    a.send(b"four", to=2, key=key).result(20)
    lib.ferry_status_free(lib.ferry_batch_wait(handle, 20 * 10**9))
    assert wait_in_slices(lambda ns: said.pop() if said else lib.ferry_batch_wait(handle, ns), None, str) is None


@pytest.mark.parametrize("waiting", [1, 50])
def test_what_was_posted_before_and_still_waits_holds_up_nobody(a, b, key, waiting):
    """An 'over' counter goes on in the order of posting: each call has one of its own."""
    held = [receive(b, f"{key}/never/{i}") for i in range(waiting)]
    held += [a.send(b"four", to=2, key=f"{key}/nobody/{i}") for i in range(waiting)]
    for i in range(100):
        sent = a.send(b"four", to=2, key=f"{key}/{i}")
        receive(b, f"{key}/{i}").result(5)
        sent.result(5)
    assert not any(future.done() for future in held)
    for future in held:
        future.cancel()


def test_awaiting(a, b, key):
    async def main():
        got = [receive(b, f"{key}/{i}") for i in range(100)]
        sent = [a.send(b"%04d" % i, to=2, key=f"{key}/{i}") for i in reversed(range(100))]
        tensors = await asyncio.gather(*got)
        assert await sent[0] is None
        return [bytes(tensor.memory) for tensor in tensors]

    assert asyncio.run(main()) == [b"%04d" % i for i in range(100)]


def test_awaiting_with_a_timeout_cancels_both_ends(a, b, key):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receive(b, key), 0.05)

    asyncio.run(main())
    with pytest.raises(ferry.CancelledError, match="the receive of key .* cancelled by the client"):
        a.send(b"next", to=2, key=key).result(20)


def test_an_error_comes_out_of_an_await(b, key):
    async def main():
        with pytest.raises(ferry.DeadlineExceededError) as failed:
            await receive(b, key, deadline=0.05)
        return failed.value.reason

    assert asyncio.run(main()) == "WAITING_FOR_PEER"


def test_callbacks_come_once_and_in_any_state(a, b, key):
    called, over = [], threading.Event()
    got = receive(b, key)
    got.add_done_callback(lambda future: called.append(future))
    got.add_done_callback(lambda future: over.set())
    a.send(b"four", to=2, key=key).result(20)
    assert over.wait(20) and called == [got]
    got.add_done_callback(lambda future: called.append(threading.current_thread()))
    assert called[1:] == [threading.current_thread()]


@pytest.mark.parametrize("raised", ["1 / 0", "sys.exit(3)", "(_ for _ in ()).throw(KeyboardInterrupt())"])
def test_a_callback_that_raises_disturbs_nobody(run, key, raised):
    """In a process of its own, with the interpreter's own hooks: the session's thread must go on."""
    said = run(f"""
import asyncio, ferry, logging, os, sys, threading
logging.basicConfig(stream=sys.stdout)
session = ferry.Session(os.environ["A"])
def receive(name):
    return session.recv(shape=4, dtype="uint8", frm=0, key="{key}" + name, device=1)
first, over = receive("first"), threading.Event()
first.add_done_callback(lambda future: {raised})
first.add_done_callback(lambda future: over.set())
session.send(b"four", to=1, key="{key}first").result(20)
print(over.wait(20))
async def awaits():
    session.send(b"more", to=1, key="{key}second")
    return await asyncio.wait_for(second, 20)
for name in ("second", "second"):
    second = receive(name)
    print(bytes(asyncio.run(awaits()).memory))
print([thread.name for thread in threading.enumerate()])
""")
    assert said.startswith("ERROR:ferry:a callback of a ferry.Future, <function <lambda>")
    assert "Traceback (most recent call last)" in said and said.endswith(
        "True\nb'more'\nb'more'\n['MainThread', 'ferry-calls', 'ferry-futures']\n"
    )


def test_a_callback_that_is_called_at_once_may_end_its_own_thread(a, b, key, caplog):
    got = receive(b, key)
    a.send(b"four", to=2, key=key).result(20)
    got.result(20)
    got.add_done_callback(lambda future: 1 / 0)
    assert "ZeroDivisionError" in caplog.text
    with pytest.raises(SystemExit):
        got.add_done_callback(lambda future: sys.exit(3))


def test_a_thread_for_callbacks_that_cannot_be_started_is_so_once(nodes, b, key, monkeypatch):
    """As at the limit of a process' threads, which may be gone the next time."""
    start, refused = threading.Thread.start, []

    def full(thread):
        if thread.name == "ferry-futures" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", full)
    with ferry.Session(nodes.a) as session:
        first, second = (session.send(b"four", to=2, key=f"{key}/{i}") for i in range(2))
        with pytest.raises(ferry.ResourceExhaustedError, match="cannot be started: can't start new thread"):
            first.add_done_callback(print)
        came, again = threading.Event(), threading.Event()
        second.add_done_callback(lambda _: came.set())
        first.add_done_callback(lambda _: again.set())
        for i in range(2):
            receive(b, f"{key}/{i}").result(20)
        assert came.wait(20) and again.wait(20)
    refused.clear()
    session = ferry.Session(nodes.a)
    with pytest.raises(ferry.ResourceExhaustedError):
        session.send(b"four", to=2, key=key).add_done_callback(print)
    session.close()


def test_callbacks_of_what_ends_with_its_session(nodes, key):
    over = threading.Event()
    with ferry.Session(nodes.b) as session:
        got = receive(session, key)
        got.add_done_callback(lambda future: over.set())
    assert over.is_set()
    again = []
    got.add_done_callback(again.append)
    assert again == [got]
    assert isinstance(got.exception(0), ferry.FerryError)


@pytest.mark.parametrize("wait", ["result", "prepared", "daemon"])
def test_the_interpreter_goes_on_while_one_waits(nodes, b, key, wait):
    """Were it held in the wait, this thread could not count until that is over."""
    counted, waiting = [], threading.Event()

    def block():
        waiting.set()
        try:
            if wait == "result":
                receive(b, key).result(0.5)
            elif wait == "prepared":
                with b.prepare_recv(shape=4, dtype="uint8", frm=0, key=key) as prepared:
                    prepared.fire()
                    prepared.wait(timeout=0.5)
            else:
                ferry._abi.library().ferry_session_wait(b.handle, 0)
                receive(b, key).exception(0.5)
        except ferry.WaitTimeoutError:
            counted.append("over")

    thread = threading.Thread(target=block)
    thread.start()
    waiting.wait(20)
    before = 0
    while not counted:
        before += 1
        time.sleep(0)
    thread.join()
    assert before > 10


def test_cancelling_and_poisoning_are_told_at_the_other_end(a, b, key):
    got, sent = receive(b, key), a.send(b"longer", to=2, key=key + "x")
    got.cancel()
    with pytest.raises(ferry.CancelledError):
        got.result(20)
    sent.poison("the step was aborted")
    with pytest.raises(ferry.PoisonedError, match="the step was aborted"):
        sent.result(20)


def test_a_failure_names_what_failed(a, b, key):
    leaves = {name: a.empty(4, "uint8") for name in "xyz"}
    got = b.recv(leaves, frm=0, key=key, deadline=0.2)
    a.send({"x": leaves["x"], "z": leaves["z"]}, to=2, key=key).result(20)
    with pytest.raises(ferry.DeadlineExceededError) as failed:
        got.result(20)
    assert failed.value.keys == (f"{key}/y".encode(),)
    assert failed.value.transfer_ids == (got.transfer_ids[1],)


def test_a_failure_that_nobody_hears_is_logged_once(nodes, a, b, key, caplog):
    def fail(name, heard):
        future = receive(b, f"{key}/{name}", deadline=0.01)
        over = threading.Event()
        watch = b.recv(shape=4, dtype="uint8", frm=0, key=f"{key}/{name}/after", deadline=0.05)
        watch.add_done_callback(lambda _: over.set())
        assert over.wait(20) and watch.exception()
        while not future.done():
            pass
        heard(future)

    fail("unheard", lambda future: None)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.name == "ferry"
    assert f"keys '{key}/unheard': DEADLINE_EXCEEDED WAITING_FOR_PEER" in record.getMessage()
    caplog.clear()
    fail("asked", lambda future: future.exception())
    fail("called", lambda future: future.add_done_callback(lambda _: None))
    cancelled = receive(b, f"{key}/cancelled")
    cancelled.cancel()
    while not cancelled.done():
        pass
    with ferry.Session(nodes.b) as session:
        ended = receive(session, f"{key}/ended")
    del cancelled, ended
    sent = a.send(b"four", to=2, key=key)
    receive(b, key).result(20)
    while not sent.done():
        pass
    del sent
    assert not caplog.records


def test_a_future_that_is_thrown_away_leaves_its_transfers(a, b, key):
    a.send(b"kept", to=2, key=key)
    assert bytes(receive(b, key).result(20).memory) == b"kept"


def test_the_routes_of_a_call_are_asked_for_together(a, key, monkeypatch):
    tensors = [a.empty(16, "uint8") for _ in range(50)]
    waiting = a.recv(into=a.empty(16, "uint8"), frm=0, key=f"{key}-waits", device=1)
    sent = a.send(tensors, to=1, key=key)
    a.recv(tensors, frm=0, key=key, device=1).result(20)
    sent.result(20)
    library, asked = ferry._abi.library(), []
    for name in ("ferry_batch_routes", "ferry_transfer_route"):
        call = getattr(library, name)
        monkeypatch.setattr(library, name, lambda *given, call=call: asked.append(given) or call(*given))
    assert sent.routes() == ("local",) * 50 and len(asked) == 1
    assert waiting.routes() == ("any",)


def waiting_pair(a, key):
    """Two receives; and what has them come."""
    got = [a.recv(shape=4, dtype="uint8", frm=0, key=f"{key}-{i}", device=1) for i in range(2)]
    return got, lambda: [a.send(b"four", to=1, key=f"{key}-{i}") for i in range(2)]


def test_what_asyncio_has_for_awaitables_takes_a_future(a, key):
    async def waits():
        results = []
        for i, wait in enumerate(
            [
                lambda got: asyncio.gather(*got),
                lambda got: asyncio.gather(*(asyncio.wait_for(one, 20) for one in got)),
                lambda got: asyncio.gather(*(asyncio.shield(one) for one in got)),
                lambda got: asyncio.gather(*(asyncio.ensure_future(one) for one in got)),
                lambda got: asyncio.gather(*(asyncio.wrap_future(one.as_concurrent()) for one in got)),
            ]
        ):
            got, send = waiting_pair(a, f"{key}-{i}")
            send()
            results += await wait(got)
        got, send = waiting_pair(a, f"{key}-completed")
        send()
        results += [await one for one in asyncio.as_completed(got)]
        got, send = waiting_pair(a, f"{key}-wait")
        send()
        done, left = await asyncio.wait([asyncio.ensure_future(one) for one in got])
        assert not left
        return results + [one.result() for one in done]

    assert [bytes(one.memory) for one in asyncio.run(waits())] == [b"four"] * 14


def test_what_takes_no_future_of_this_kind_says_what_to_give(a, key):
    got = a.recv(shape=4, dtype="uint8", frm=0, key=key, device=1)

    async def waits():
        with pytest.raises(TypeError, match=r"give it asyncio\.ensure_future\(future\)"):
            await asyncio.wait([got])
        with pytest.raises(TypeError, match="a coroutine was expected, got <ferry.Future"):
            await asyncio.create_task(got)

    asyncio.run(waits())
    for wait in (concurrent.futures.wait, concurrent.futures.as_completed):
        with pytest.raises(TypeError, match=r"give it ferry\.Future\.as_concurrent\(\)"):
            list(wait([got]))
    for words in ("as_concurrent", "ensure_future", "create_task", "gather"):
        assert words in ferry.Future.__doc__
    got.cancel()


def test_a_future_of_concurrent_futures_ends_as_its_transfers(a, key):
    got, send = waiting_pair(a, key)
    these = [one.as_concurrent() for one in got]
    done, left = concurrent.futures.wait(these, timeout=0)
    assert not done and left == set(these)
    send()
    assert [bytes(one.result().memory) for one in concurrent.futures.as_completed(these, timeout=20)] == [b"four"] * 2
    assert bytes(got[0].as_concurrent().result(0).memory) == b"four"  # of one that is over
    failed = a.recv(shape=4, frm=0, key=key, device=1)
    other = failed.as_concurrent()
    failed.poison("why")
    with pytest.raises(ferry.PoisonedError, match="why"):
        other.result(20)
    cancelled = a.recv(shape=4, frm=0, key=key, device=1)
    assert cancelled.as_concurrent().cancel()
    assert isinstance(cancelled.exception(20), ferry.CancelledError)
