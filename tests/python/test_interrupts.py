# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in every call that waits, while the daemon stands still (SIGSTOP): it ends the call, and what the call would have
brought is undone. A call that cannot be interrupted ends by itself as soon as the daemon is given up, after 10 seconds or
more: with an error of Ferry's instead."""

import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import INTERRUPTIBLE

from ferry._calls import Calls

SET_UP = """
import os, signal, sys
import ferry, numpy
node = ferry.local_node()
session = node.session()
tensor = session.empty(64, "uint8")
array = numpy.zeros(64, "u1")
column = numpy.arange(4)
def prepared_pair(key):
    return (session.prepare_send(tensor, to="host1", key=key),
            session.prepare_recv(shape=64, dtype="uint8", frm="host0", key=key, device="host1"))
waiting = [session.recv(shape=4, frm="host0", key=key, device="host1") for key in ("cancels", "poisons")]
session.send(array, to="host1", key="moved")
moved = session.recv(shape=64, dtype="uint8", frm="host0", key="moved", device="host1")
moved.result(20)
failed = session.recv(shape=4, frm="host0", key="failed", device="host1")
failed.cancel()
while not failed.done():
    pass
prepared = prepared_pair("released")
ended = prepared_pair("ended")
for one in ended:
    one.fire()
for one in ended:
    one.wait(timeout=20)
ended[1].release()
while not ferry._abi.library().ferry_prepared_ended(ended[0]._handles[0]):
    pass
session.device_id("host1")
def stop():
    os.kill(node.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, node.pid, os.WSTOPPED)  # with all of its threads
def go_on():
    os.kill(node.pid, signal.SIGCONT)
"""

# In this order: those that make no thread wait that another one of them needs.
CALLS = {
    "opens": "ferry.Session(node.client_dir, timeout=600)",
    "lists": "session.cluster_devices()",
    "joins": "session.join('me')",
    "makes memory": "session.empty(1 << 20)",
    "sends": "session.send(tensor, to='host1', key='sends')",
    "sends a copy": "session.send(numpy.zeros(1 << 21, 'u1'), to='host1', key='sends a copy')",
    "sends a column": "session.send_many(tensor, to='host1', keys=column, offsets=column, lengths=column)",
    "receives": "session.recv(into=tensor, frm='host1', key='receives')",
    "prepares": "session.prepare_send(tensor, to='host1', key='prepares')",
    "cancels": "waiting[0].cancel()",
    "poisons": "waiting[1].poison('why')",
    "asks for routes": "moved.routes()",
    "hears how it failed": "failed.result()",
    "fires what has ended": "ended[0].fire()",
    "waits for what has ended": "ended[0].wait(2)",
    "releases": "prepared[0].release()",
    "waits for what is left": "session.wait_daemon()",
}


def interrupted(process):
    """Sends SIGINT to the main thread of `process` once that sleeps."""
    while True:
        with open(f"/proc/{process.pid}/task/{process.pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        if state == "S":
            process.send_signal(signal.SIGINT)
            return
        assert state not in "ZX", "it has ended"


def interrupting(program, logs=""):
    """What a program says whose every line "waits" is answered by Ctrl-C. It ends well, with nothing but `logs` in stderr."""
    with subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line == "waits\n":
                interrupted(process)
        errors = process.stderr.read()
        assert process.wait(30) == 0 and re.fullmatch(logs, errors), (said, errors)
    return said


def test_ctrl_c_ends_every_call_while_the_daemon_stands_still():
    calls = "".join(
        f"""
try:
    print("waits", flush=True)
    {call}
except KeyboardInterrupt:
    print({name!r}, "interrupted", flush=True)
except ferry.FerryError as error:
    print({name!r}, error, flush=True)
else:
    print({name!r}, "came to an end", flush=True)
"""
        for name, call in CALLS.items()
    )
    said = interrupting(f"""{SET_UP}
stop()
{calls}
try:
    session.wait_daemon(0.1)
except ferry.WaitTimeoutError as error:
    print(error, flush=True)
go_on()
# Nothing is left of what was interrupted: the same keys can be posted again, and the memory is there.
session.wait_daemon(60)
again = [session.send(tensor, to="host1", key=key) for key in ("sends", "sends a copy", 0, 1, 2, 3)]
again.append(session.recv(into=tensor, frm="host1", key="receives"))
again.append(session.prepare_send(tensor, to="host1", key="prepares"))
for one in again[:-1]:
    one.cancel()
session.check_health()
node.close()
""")
    assert [line for line in said if line != "waits"] == [
        *(f"{name} interrupted" for name in CALLS),
        "DEADLINE_EXCEEDED: what was interrupted or let go of has no answer yet after 0.1 s: wait again",
    ]


@pytest.mark.parametrize(
    "left", ["with prepared[0]:", "with node.session():", "with ferry.Session(node.client_dir) as other, prepared[1]:"]
)
def test_what_follows_ctrl_c_does_not_hang(left):
    """The end of `with`, and of everything: before the daemon is given up."""
    said = interrupting(
        f"""{SET_UP}
witness = node.session()
try:
    {left}
        stop()
        print("waits", flush=True)
        while True:
            tensor = session.empty(1 << 20)
except KeyboardInterrupt:
    pass
witness.check_health()  # not lost yet, so that the end of `with` has not waited for its loss
print("left", flush=True)
del tensor
session.close()
witness.close()
print("closed", flush=True)
node.close(0)
""",
        r"the daemon does not answer: <ferry.Prepared .* keeps its memory until it does\n" if "prepared" in left else "",
    )
    assert said == ["waits", "left", "closed"]


def test_a_task_that_is_cancelled_ends_while_the_daemon_stands_still():
    said = interrupting(f"""{SET_UP}
import asyncio
got = session.recv(shape=4, frm="host0", key="awaited", device="host1")
async def awaits():
    stop()
    print("waits", flush=True)
    await got
try:
    asyncio.run(awaits())
except KeyboardInterrupt:
    print("interrupted", flush=True)
session.check_health()
go_on()
assert isinstance(got.exception(20), ferry.CancelledError)
""")
    assert said == ["waits", "interrupted"]


# What the main task does, and whether that cancels the first transfer.
TASKS = {
    "awaits": ("await got", True),
    "gathers": ("await asyncio.gather(got, other)", True),
    "waits for a task that awaits": ("await asyncio.ensure_future(got)", True),
    "leaves it to another task": ("task = asyncio.ensure_future(got); await asyncio.Event().wait()", True),
    "shields it": ("await asyncio.shield(got)", True),
    "waits for a callback": ("got.add_done_callback(lambda _: None); await asyncio.Event().wait()", False),
    "waits in a thread": ("await asyncio.to_thread(is_over.wait, 20)", False),
}


@pytest.mark.parametrize("task", TASKS)
def test_ctrl_c_in_asyncio(task):
    """It cancels the main task, and asyncio.run every other one that is left: so what no task awaits goes on."""
    does, cancels = TASKS[task]
    said = interrupting(f"""{SET_UP}
import asyncio, threading
got, other = [session.recv(shape=4, frm="host0", key=key, device="host1", deadline=3600) for key in ("got", "other")]
is_over = threading.Event()
async def main():
    print("waits", flush=True)
    try:
        {does}
    finally:
        is_over.set()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(type(got.exception(20)).__name__ if {cancels} else got.done(), flush=True)
node.close()
""")
    assert said == ["waits", "interrupted", "CancelledError" if cancels else "False"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio takes no Ctrl-C for itself before Python 3.11")
def test_the_second_ctrl_c_ends_a_call_that_a_coroutine_does_not_await():
    """Of the first one it would hear at its next `await`."""
    said = interrupting(f"""{SET_UP}
import asyncio, threading
got = session.recv(shape=4, frm="host0", key="got", device="host1", deadline=3600)
def again(task):
    while not task.cancelling():
        pass
    print("waits", flush=True)
async def main():
    threading.Thread(target=again, args=(asyncio.current_task(),), daemon=True).start()
    print("waits", flush=True)
    got.result()
try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", got.done(), flush=True)
node.close()
""")
    assert said == ["waits", "waits", "interrupted False"]


def test_what_a_thread_other_than_the_main_one_calls_it_calls_itself(a, key, monkeypatch):
    """Which costs nothing: signals are none of its business."""
    begun, got, begin = [], [], a.calls._begin
    monkeypatch.setattr(a.calls, "_begin", lambda call: begun.append(call) or begin(call))

    def moves():
        a.send(b"four", to=1, key=key)
        got.append(bytes(a.recv(shape=4, dtype="uint8", frm=0, key=key, device=1).result(20).memory))

    other = threading.Thread(target=moves)
    other.start()
    other.join()
    assert got == [b"four"] and not begun
    moves()
    assert got == [b"four"] * 2 and begun


def test_what_comes_of_a_call_that_nobody_waits_for_is_undone():
    """Whoever is first: the call, or the signal."""
    calls, goes_on, undone = Calls(), threading.Event(), []

    def slow(interrupts=False):
        if interrupts:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        goes_on.wait(20)
        return "came"

    def raises(*_):
        raise RuntimeError("a handler's")

    before = signal.signal(signal.SIGUSR1, raises)
    try:
        with pytest.raises(RuntimeError, match="a handler's"):
            calls(slow, True, undo=undone.append)
        assert not calls.undone(time.monotonic()) and not undone
        assert not calls.soon(slow, seconds=0)
        other = threading.Thread(target=lambda: undone.append(calls.undone(time.monotonic() + 20)))
        other.start()
        goes_on.set()
        assert calls.undone(time.monotonic() + 20) and "came" in undone
        other.join()
        assert undone == ["came", True]
        assert calls(slow) == "came" and calls.undone(time.monotonic())
        with pytest.raises(ZeroDivisionError):
            calls(lambda: 1 / 0)
    finally:
        signal.signal(signal.SIGUSR1, before)
        calls.close()
    assert calls(slow) == "came"  # at once, without a thread
