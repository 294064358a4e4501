# SPDX-License-Identifier: Apache-2.0
"""No surprises in the host process: fork and spawn, Ctrl-C, the interpreter's end, other libraries with gRPC in them."""

import os
import signal
import subprocess
import sys

import pytest
from conftest import INTERRUPTIBLE


def test_importing_it_costs_next_to_nothing(run):
    """In time of the processor, which is what other work on the machine leaves alone, and without what only some need."""
    program = (
        "import time; begun = time.process_time(); import ferry; print(time.process_time() - begun)\n"
        "import sys, threading\n"
        "assert not {'numpy', 'asyncio', 'ferry._session'} & set(sys.modules), sorted(sys.modules)\n"
        "assert threading.active_count() == 1\n"
    )
    assert min(float(run(program)) for _ in range(5)) <= 0.1


def test_a_child_of_fork_gets_a_clear_error_and_leaves_the_parent_alone(run):
    said = run("""
import ferry, os, sys
session = ferry.Session(os.environ["A"])
tensor = session.empty(4, "uint8")
got = session.recv(shape=4, dtype="uint8", frm=0, key="fork", device=1)
got.add_done_callback(lambda future: None)
prepared = session.prepare_send(tensor, to=2, key="fork-prepared")
child = os.fork()
if not child:
    def attempt(name, call):
        try:
            call()
        except ferry.ForkedError as error:
            print(name, error.reason, "multiprocessing.get_context('spawn')" in error.message and "DataLoader" in error.message)
    attempt("send", lambda: session.send(tensor, to=1, key="fork"))
    attempt("empty", lambda: session.empty(4))
    attempt("open", lambda: ferry.Session(os.environ["A"]))
    attempt("wait", lambda: got.result(20))
    attempt("callback", lambda: got.add_done_callback(print))
    attempt("cancel", got.cancel)
    attempt("fire", prepared.fire)
    prepared.release()
    session.close()
    del tensor, got, prepared, session
    sys.exit(3)  # as multiprocessing does not: with everything that runs at an exit
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
session.send(b"fork", to=1, key="fork")
print(bytes(got.result(20).memory))
""")
    calls = ("send", "empty", "open", "wait", "callback", "cancel", "fire")
    assert said == "".join(f"{name} FORKED True\n" for name in calls) + "b'fork'\n"


def test_a_child_of_fork_waits_for_no_lock_of_another_thread(run):
    """As where another thread of the parent's was in a call then."""
    said = run("""
import ferry, numpy, os, signal, sys
session = ferry.Session(os.environ["A"])
tensor, array = session.empty(4, "uint8"), numpy.zeros(4, "u1")
column = {"keys": numpy.zeros(1, "i8"), "offsets": [0], "lengths": [1]}
prepared = session.prepare_send(tensor, to=1, key="prepared")
locks = [session.counters._lock, session.arenas._lock, session.stage._lock, session.imports._lock, session.kept._lock]
for lock in locks:
    lock.acquire()
child = os.fork()
if not child:
    signal.alarm(20)
    for call in (
        lambda: session.send(tensor, to=1, key="fork"),
        lambda: session.send(array, to=1, key="fork"),
        lambda: session.recv(into=array, frm=1, key="fork"),
        lambda: session.recv(shape=4, frm=1, key="fork"),
        lambda: session.prepare_send(array, to=1, key="fork"),
        lambda: session.prepare_recv(into=array, frm=1, key="fork"),
        lambda: session.send_many(tensor, to=1, **column),
        lambda: session.recv_many(tensor, frm=1, **column),
        lambda: session.explain(array),
        lambda: session.empty(4),
        lambda: session.devices,
        prepared.fire,
        prepared.wait,
    ):
        try:
            call()
        except ferry.ForkedError as error:
            print(error.reason, "DataLoader" in error.message)
    print(session)
    session.close()
    del tensor, prepared, session
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
for lock in locks:
    lock.release()
""")
    assert said == "FORKED True\n" * 13 + "<ferry.Session of before a fork>\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing(nodes, tmp_path, method):
    program = tmp_path / "workers.py"
    program.write_text("""
import multiprocessing, os, pickle, sys
import ferry

def work(rank):
    try:
        with ferry.Session(os.environ["A"]) as session:
            sent = session.send(b"%d" % rank, to=1, key=f"worker-{rank}")
            session.recv(shape=1, dtype="uint8", frm=0, key=f"worker-{rank}", device=1).result(20)
            return "moved"
    except ferry.ForkedError as error:
        raise

if __name__ == "__main__":
    session = ferry.Session(os.environ["A"])
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for result in [pool.apply_async(work, (rank,)) for rank in range(2)]:
            try:
                print(result.get(20))
            except ferry.ForkedError as error:
                print(error.reason)
""")
    done = subprocess.run(
        [sys.executable, program, method],
        env={**os.environ, "A": nodes.a},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == (["FORKED"] if method == "fork" else ["moved"]) * 2


@pytest.mark.parametrize("wait", ["got.result()", "asyncio.run(awaited())", "prepared.wait()"])
def test_ctrl_c_ends_a_wait_and_nothing_else(nodes, key, wait):
    program = f"""
import asyncio, ferry, os, sys, threading
async def awaited():
    print("waits", flush=True)
    return await got
with ferry.Session(os.environ["A"]) as session:
    got = session.recv(shape=4, dtype="uint8", frm=0, key="{key}", device=1)
    prepared = session.prepare_recv(shape=4, dtype="uint8", frm=0, key="{key}-prepared", device=1)
    prepared.fire()
    try:
        if "await" not in {wait!r}:
            print("waits", flush=True)
        {wait}
    except KeyboardInterrupt:
        print("interrupted")
    if "await" not in {wait!r}:  # which cancels it
        session.send(b"four", to=1, key="{key}")
        print(bytes(got.result(20).memory))
"""
    with subprocess.Popen(
        [*INTERRUPTIBLE, sys.executable, "-c", program],
        env={**os.environ, "A": nodes.a},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0 and not err, err
    assert out == "interrupted\n" + ("" if "await" in wait else "b'four'\n")


ENDS = {
    "falls off its end": "",
    "exits": "sys.exit(0)",
    "in a thread that waits": "in_a_daemon_thread(got.result)",
    "in a thread that awaits": "in_a_daemon_thread(lambda: asyncio.run(awaits()))",
    "in a thread that waits for a firing": "in_a_daemon_thread(prepared.wait)",
    "in a thread that waits, of a local node": "node = ferry.local_node(); alone = node.session(); "
    "in_a_daemon_thread(alone.recv(shape=4, frm=0, key='never', device=1).result)",
    "in asyncio": "asyncio.run(begins_to_wait())",
    "with a reference cycle": "cycle = [session, got]; cycle.append(cycle); del session, got",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_the_interpreter_is_silent(run, key, end):
    run(f"""
import asyncio, sys, threading
import ferry, numpy, os
session = ferry.Session(os.environ["A"])
other = ferry.Session(os.environ["B"])
tensor = session.empty(1 << 20, "uint8")
sent = [session.send(tensor, to=2, key="{key}-" + str(i)) for i in range(50)]
got = other.recv(shape=4, dtype="uint8", frm=0, key="{key}")
for future in (*sent, got):
    future.add_done_callback(lambda future: None)
prepared = session.prepare_send(tensor, to=2, key="{key}-prepared")
prepared.fire()
arrays = [numpy.from_dlpack(tensor), numpy.asarray(tensor), tensor.numpy()]
capsules = [tensor.__dlpack__(), tensor.__dlpack__(max_version=(1, 0))]
sys.modules["kept for ever"] = (tensor, arrays, capsules, sent)
def in_a_daemon_thread(waits):
    begun = threading.Event()
    def run():
        begun.set()
        waits()
        print("it came to an end")
    threading.Thread(target=run, daemon=True).start()
    begun.wait()
async def awaits():
    await got
async def begins_to_wait():
    async def wait():
        await got
    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
{ENDS[end]}
""")


WAITING = """
import concurrent.futures, threading
import ferry, os
def work():
    begun.set()
    try:
        print(bytes(got.result().memory))
    except ferry.CancelledError:
        print("cancelled")
begun = threading.Event()
def start():
    if {pool}:
        concurrent.futures.ThreadPoolExecutor().submit(work)
    else:
        threading.Thread(target=work).start()
    begun.wait()
"""


@pytest.mark.parametrize("pool", [False, True])
def test_a_thread_that_is_no_daemon_ends_with_the_session(run, key, pool):
    """Of which a program that ends, by Ctrl-C too, has come out: Python waits for such a thread, and not for a deadline."""
    said = run(f"""{WAITING.format(pool=pool)}
try:
    with ferry.Session(os.environ["A"]) as session:
        got = session.recv(shape=4, dtype="uint8", frm=0, key="{key}", device=1, deadline=3600)
        start()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
""")
    assert said == "cancelled\n"


def test_a_thread_that_is_no_daemon_goes_on_when_the_main_thread_is_over(run, key):
    """As with everything else in Python: what it waits for still comes."""
    said = run(f"""{WAITING.format(pool=False)}
session = ferry.Session(os.environ["A"])
got = session.recv(shape=4, dtype="uint8", frm=0, key="{key}", device=1, deadline=25)
start()
def sends():
    threading.main_thread().join()
    session.send(b"late", to=1, key="{key}")
threading.Thread(target=sends).start()
""")
    assert said == "b'late'\n"


def test_what_goes_after_the_modules_is_silent(run, key):
    """As at the end of a program whose memory somebody else's module has."""
    run(f"""
import ferry, gc, os, sys
import ferry._imports
session = ferry.Session(os.environ["A"])
tensor = session.empty(1 << 20, "uint8")
sent = session.send(tensor, to=2, key="{key}")
prepared = session.prepare_send(tensor, to=2, key="{key}-prepared")
prepared.fire()
for name in ("_memory", "_future", "_imports"):
    sys.modules["ferry." + name].os = None
del tensor, sent, prepared
gc.collect()
session.close()
""")


def test_a_node_and_its_sessions_end_with_the_interpreter(run):
    run("""
import ferry
node = ferry.local_node()
session = node.session()
got = session.recv(shape=1 << 20, frm=0, key="never", device=1)
""")


@pytest.mark.parametrize("order", ["before", "after"])
def test_grpc_and_protobuf_of_the_same_process(run, order):
    pytest.importorskip("grpc")
    theirs = """
import grpc
from concurrent import futures
from google.protobuf import wrappers_pb2
def echo(request, context):
    return wrappers_pb2.StringValue(value=request.value + "!")
handler = grpc.method_handlers_generic_handler("test.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(
    echo, request_deserializer=wrappers_pb2.StringValue.FromString,
    response_serializer=wrappers_pb2.StringValue.SerializeToString)})
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_generic_rpc_handlers((handler,))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
    call = channel.unary_unary("/test.Echo/Echo", request_serializer=wrappers_pb2.StringValue.SerializeToString,
                               response_deserializer=wrappers_pb2.StringValue.FromString)
    print(call(wrappers_pb2.StringValue(value="hello"), timeout=10).value)
"""
    ours = f"""
import ferry, os
session = ferry.Session(os.environ["A"])
sent = session.send(b"ferried", to=1, key="grpc-{order}")
print(bytes(session.recv(shape=7, dtype="uint8", frm=0, key="grpc-{order}", device=1).result(20).memory))
"""
    said = run(theirs + ours + theirs if order == "before" else ours + theirs + ours)
    assert said.count("hello!") + said.count("ferried") == 3
