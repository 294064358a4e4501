# SPDX-License-Identifier: Apache-2.0
"""What ends a session: `close`, the end of `with`, the interpreter's end. It waits neither for a daemon that stands still nor
for a callback that does not come back."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from test_interrupts import interrupting

import ferry

ENDS = {
    "close": "session.close()",
    "with": "session.__exit__(None, None, None)",
    "the interpreter's end": "",
    "exit": "sys.exit()",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_session_waits_for_no_daemon(end):
    """That stands still, while there is everything that a session may have. Were it waited for, it would be given up."""
    program = f"""
import ferry, os, signal, sys, threading
session = ferry.Session()
other = session.empty(64, "uint8")
session.join("me")
firing = session.prepare_send(other, to="host1", key="prepared")
firing.fire()
got = [session.recv(shape=4, frm="host0", key=f"key-{{i}}", device="host1") for i in range(3)]
got[0].add_done_callback(lambda future: None)
os.kill(int(sys.argv[1]), signal.SIGSTOP)
def asks(begun, session=session):
    begun.set()
    try:
        session.empty(4)
    except ferry.CancelledError:
        pass
def waits(begun, got=got):
    begun.set()
    got[1].exception()
for function in (asks, waits):
    begun = threading.Event()
    threading.Thread(target=function, args=(begun,), daemon=True).start()
    begun.wait()
del function, asks, waits
{ENDS[end]}
"""
    with ferry.local_node() as node, node.session() as witness:
        done = subprocess.run(
            [sys.executable, "-c", program, str(node.pid)],
            env={**os.environ, **node.environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        witness.check_health()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


CALLBACK = """
import ferry, os, sys, threading
first, second = ferry.Session(os.environ["A"]), ferry.Session(os.environ["A"])
begun = threading.Event()
never = second.recv(shape=4, frm=0, key=sys.argv[1], device=1, deadline=3600)
def callback(future):
    begun.set()
    {waits}
got = first.recv(shape=4, dtype="uint8", frm=0, key=sys.argv[1] + "-got", device=1)
got.add_done_callback(callback)
first.send(b"four", to=1, key=sys.argv[1] + "-got")
begun.wait()
"""


@pytest.mark.parametrize("waits", ["never.exception()", "threading.Event().wait()"])
def test_the_end_of_the_interpreter_waits_for_no_callback(run, key, waits):
    run(CALLBACK.format(waits=waits), key)


def test_a_session_whose_callback_does_not_come_back_is_closed(nodes, key, caplog):
    begun, goes_on, over = threading.Event(), threading.Event(), threading.Event()

    def callback(future):
        begun.set()
        goes_on.wait(60)
        over.set()

    session = ferry.Session(nodes.a)
    got = session.recv(shape=4, dtype="uint8", frm=0, key=key, device=1)
    got.add_done_callback(callback)
    session.send(b"four", to=1, key=key)
    assert begun.wait(20)
    thread = session.waiter._thread
    session.close()
    assert not over.is_set() and "was closed while a callback of a ferry.Future goes on" in caplog.text
    goes_on.set()
    assert over.wait(20) and bytes(got.result().memory) == b"four"
    thread.join(20)


def test_a_local_node_that_was_stopped_ends_by_itself():
    node = ferry.local_node()
    process = node._process
    os.kill(node.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, node.pid, os.WSTOPPED)  # with all of its threads
    node.close(600)
    assert process.returncode == 0


def test_ctrl_c_ends_the_wait_for_a_local_node_to_end():
    """By force, and nothing is left behind."""
    said = interrupting("""
import ferry, os, subprocess, sys
node = ferry.local_node()
node._process.kill()
node._process.wait()
hangs = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
node._process = hangs = subprocess.Popen([sys.executable, "-c", hangs], stdout=subprocess.PIPE)
hangs.stdout.readline()
try:
    print("waits", flush=True)
    node.close(600)
except KeyboardInterrupt:
    print(hangs.returncode, os.path.exists(node._directory))
""")
    assert said == ["waits", "-9 False"]
