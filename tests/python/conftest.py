# SPDX-License-Identifier: Apache-2.0
"""Two daemons as two nodes, shared by all tests; each test has sessions, and a key, of its own.

Devices 0 and 1 are node-a's, 2 and 3 node-b's. The package is the installed one; so is ferryd, of ferry-transfer-node."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import pytest
from fake_gpus import gpus, session_of_gpus, torch  # noqa: F401  # fixtures

import ferry
from ferry._session import _pools

IN_FLIGHT = 20000
# In front of a command: it can be interrupted, also where this process ignores SIGINT, as one that a shell starts in the
# background does. That is handed down, and Python then leaves it alone.
INTERRUPTIBLE = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
)
HOST_DEVICES = "devices: { host: 2, gpus: none }\n"
_keys = itertools.count()


def free_ports(count):
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def interpreter_with(module):
    """This interpreter, or Debian's, whichever has `module`; else the test is skipped."""
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    for path in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(path) and subprocess.run([path, "-c", look], check=False).returncode == 0:
            return path
    pytest.skip(f"there is no {module}: tools/setup --{module}")


class Nodes:
    """`a` and `b`: the client directories. `drain`: how long a daemon that is told to end lets what is in flight go on."""

    def __init__(self, drain="1s"):
        from ferry.node import program

        self.directory = tempfile.mkdtemp(prefix="ferry-py-")
        ports = free_ports(2)
        members = "".join(
            f'    - {{ name: node-{name}, address: "127.0.0.1:{port}", ids: [{2 * i}, {2 * i + 1}] }}\n'
            for i, (name, port) in enumerate(zip("ab", ports, strict=True))
        )
        self.processes = []
        for name, port in zip("ab", ports, strict=True):
            runtime = os.path.join(self.directory, name)
            config = runtime + ".yaml"
            with open(config, "w") as file:
                file.write(
                    f"node: {{ name: node-{name}, runtime_dir: {runtime} }}\n{HOST_DEVICES}membership:\n  nodes:\n{members}"
                    f'peer: {{ listen: "127.0.0.1:{port}" }}\ndrain: {{ timeout: {drain} }}\n'
                    f"limits: {{ transfers_in_flight: {IN_FLIGHT} }}\n"
                )
            with open(runtime + ".log", "wb") as log:
                self.processes.append(subprocess.Popen([program(), "--config", config], stdout=log, stderr=log))
            setattr(self, name, os.path.join(runtime, "client"))

    def wait(self):
        """Until both serve, and know each other: a send from the one to the other is over."""
        for directory in (self.a, self.b):
            while True:
                try:
                    ferry.Session(directory).close()
                    break
                except ferry.UnavailableError:
                    assert all(process.poll() is None for process in self.processes), self.logs()
        with ferry.Session(self.a) as a, ferry.Session(self.b) as b:
            sent = a.send(b"there", to=2, key="there")
            b.recv(shape=5, dtype="uint8", frm=0, key="there").result(30)
            sent.result(30)

    def logs(self):
        return "".join(open(os.path.join(self.directory, f"{name}.log")).read() for name in "ab")

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(30)
        shutil.rmtree(self.directory)


@pytest.fixture(scope="session")
def nodes():
    made = Nodes()
    try:
        made.wait()
        yield made
    finally:
        made.close()


@pytest.fixture
def a(nodes):
    with ferry.Session(nodes.a, name="a") as session:
        yield session


@pytest.fixture
def b(nodes):
    with ferry.Session(nodes.b, name="b") as session:
        yield session


@pytest.fixture
def key(request):
    """Of this test alone."""
    return f"{request.node.name[:40]}-{next(_keys)}"


@pytest.fixture
def run(nodes):
    """Runs a program in a Python of its own, at node a ($A) and node b ($B): what it printed. Its end must be a good one."""

    def run(program, *arguments, status=0, timeout=30, env=None):
        environment = {**os.environ, "A": nodes.a, "B": nodes.b, **(env or {})}
        done = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert not done.stderr or status, done.stderr
        return done.stdout

    return run


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """A closed session leaves no thread of Python's behind. The library's own one is never closed."""
    before = set(threading.enumerate())
    yield
    before |= {one.thread for pool in _pools.values() for one in pool.calls._threads}
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("ferry")]
    assert not left
