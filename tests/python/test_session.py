# SPDX-License-Identifier: Apache-2.0
"""Importing, opening, devices, domains, two sessions, a daemon that goes away."""

import os
import select
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import INTERRUPTIBLE

import ferry


def test_import_brings_neither_numpy_nor_threads_nor_the_library(run):
    said = run(
        "import sys, threading, ferry\n"
        "print('numpy' in sys.modules, 'ctypes' in sys.modules, threading.active_count(),"
        " any('libferry' in line for line in open('/proc/self/maps')))"
    )
    assert said == "False False 1 False\n"


def test_all_names_are_there():
    for name in ferry.__all__:
        assert getattr(ferry, name) is not None
    assert ferry.__version__.count(".") == 2
    with pytest.raises(AttributeError, match="no attribute 'Sessions'"):
        _ = ferry.Sessions


def test_a_misspelled_name_is_an_error_of_types(tmp_path):
    """Types come with the package: a module's __getattr__ would excuse every name."""
    package = os.path.dirname(os.path.dirname(ferry.__file__))
    config = os.path.join(os.path.dirname(__file__), "..", "..", "python", "pyproject.toml")
    program = tmp_path / "user.py"
    program.write_text(
        "import ferry\nferry.errors.FerryError\nferry.Sesion()\nferry.DeadlineExceeded\nferry.Session().snd(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path, program],
        env={**os.environ, **({} if "site-packages" in package else {"MYPYPATH": package})},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = [line.split(" error: ")[1].split(";")[0] for line in done.stdout.splitlines() if " error: " in line]
    assert [line.rsplit("has no attribute ")[-1].split()[0].strip('"') for line in said] == [
        "Sesion",
        "DeadlineExceeded",
        "snd",
    ], done.stdout + done.stderr


def test_names_are_completed_and_things_show_what_they_are(run, nodes, a, b, key):
    said = run("import ferry, sys; print(dir(ferry)); print('numpy' in sys.modules, ferry.errors.FerryError.__name__)")
    assert "'Session'" in said and "'errors'" in said and "TYPE_CHECKING" not in said and said.endswith("False FerryError\n")
    with ferry.Session(nodes.a) as session:
        assert repr(session) == f"<ferry.Session {session.id} of node node-a>"
    assert repr(session) == "<ferry.Session closed>"
    future = b.recv({"x": b"x", "y": b"y"}, frm=0, key=key, deadline=0.1)
    assert repr(future) == f"<ferry.Future under way, 2 transfers from key '{key}/x'>"
    future.exception(20)
    assert repr(future) == f"<ferry.Future failed: DeadlineExceededError, 2 transfers from key '{key}/x'>"
    assert repr(a.send([], to=2, key=key)) == "<ferry.Future over, no transfers>"
    with a.prepare_send(a.empty(1), to=2, key=key) as prepared:
        assert repr(prepared) == f"<ferry.Prepared prepared, 1 transfer from key '{key}'>"
    assert "released" in repr(prepared)


def test_a_session_sees_the_devices_of_the_next_daemon(tmp_path):
    from ferry.node import program

    def start(devices):
        config = tmp_path / "n.yaml"
        config.write_text(f"node: {{ name: n, runtime_dir: {tmp_path}/r }}\ndevices: {{ host: {devices}, gpus: none }}\n")
        return subprocess.Popen([program(), "--config", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    daemon = start(2)
    while True:
        try:
            session = ferry.Session(tmp_path / "r" / "client")
            break
        except ferry.UnavailableError:
            assert daemon.poll() is None
    with session:
        assert [device.name for device in session.devices] == ["host0", "host1"]
        daemon.kill()
        daemon.wait()
        daemon = start(3)
        while len(session.devices) != 3:  # once the old one's end has been noticed
            session.wait_daemon(30)
        assert session.empty(4, device="host2").device == session.devices[2].id
    assert len(session.devices) == 3
    daemon.kill()
    daemon.wait()


def test_a_library_that_is_none_of_ours_is_refused(run):
    said = run(
        "import ferry\ntry: ferry.Session()\nexcept ImportError as error: print(error)", env={"FERRY_LIBRARY": "libm.so.6"}
    )
    assert "libferry at libm.so.6 has no ferry_version; it is older than ferry" in said
    said = run(
        "import ferry\ntry: ferry.Session()\nexcept ImportError as error: print(error)", env={"FERRY_LIBRARY": "/nothing"}
    )
    assert "cannot open libferry at /nothing" in said and "install the wheel ferry-transfer" in said


def test_a_session_knows_its_devices(a):
    assert a.node == "node-a"
    assert a.id > 0
    assert [(device.id, device.kind, device.name, device.local) for device in a.devices] == [
        (0, "host", "host0", True),
        (1, "host", "host1", True),
    ]


def test_what_waits_for_a_device_whose_members_are_gone_ends_at_once(nodes, run):
    with ferry.Session(nodes.a, domain="members") as engine:
        engine.join("engine")
        waiting = engine.recv(shape=4, dtype="uint8", frm="node-b/host1", key="of nobody", device="host0")
        joined = "import ferry, os\nferry.Session(os.environ['B'], domain='members').join('trainer-0', 'host1')"
        run(joined)
        with pytest.raises(ferry.PeerClientGoneError, match="the last member of its domain there, 'trainer-0', is gone"):
            waiting.result(timeout=20)
        with pytest.raises(ferry.PeerClientGoneError, match="post again when it is back"):
            engine.send(bytes(4), to="node-b/host1", key="later", device="host0").result(timeout=20)
        with pytest.raises(ferry.InvalidArgumentError, match="the member's name has 1 to 64 bytes, not 0"):
            engine.join("")
        with pytest.raises(ferry.NotFoundError, match="join: .* belongs to node-b"):
            engine.join("m", "node-b/host1")


def test_devices_of_the_cluster_have_names(a):
    known = {f"{device.node}/{device.name}": device for device in a.cluster_devices()}
    assert known["node-b/host1"].id == 3
    assert not known["node-b/host1"].local
    assert a.device_id("node-b/host1") == a.device_id(known["node-b/host1"]) == a.device_id(3) == 3
    assert a.device_id("host1") == 1
    assert a.device_id(None) == 0
    with pytest.raises(ferry.NotFoundError, match=r"known: node-a/host0, node-a/host1, node-b/host0"):
        a.device_id("node-c/host0")


def test_two_sessions_of_a_process_do_not_mix(nodes, a, key):
    with ferry.Session(nodes.a) as other:
        assert other.id != a.id
        tensor = other.empty(4)
        with pytest.raises(ferry.InvalidArgumentError, match="in no arena of this session"):
            a.recv(into=tensor, frm=1, key=key)
    assert a.send(b"x", to=1, key=key).transfer_ids
    with pytest.raises(ferry.FailedPreconditionError, match="the session is closed"):
        other.empty(4)
    assert bytes(tensor.memory) == bytes(16)  # readable after the session


def test_the_domain_is_of_the_file(nodes, key, tmp_path, monkeypatch):
    file = tmp_path / "domain"
    file.write_text("job-17\n")
    monkeypatch.setenv("FERRY_DOMAIN_FILE", str(file))
    with ferry.Session(nodes.a) as sender, ferry.Session(nodes.b, domain="job-17") as receiver:
        sent = sender.send(b"ferried", to=2, key=key)
        assert bytes(receiver.recv(shape=7, dtype="uint8", frm=0, key=key).result(20).memory) == b"ferried"
        sent.result(20)
    for text, why in (("", "is empty"), ("x" * 33, "at most 32 bytes, not 33")):
        file.write_text(text)
        with pytest.raises(ferry.InvalidArgumentError, match=why):
            ferry.Session(nodes.a)
    monkeypatch.setenv("FERRY_DOMAIN_FILE", str(tmp_path / "nothing"))
    with pytest.raises(ferry.InvalidArgumentError, match="FERRY_DOMAIN_FILE: .*No such file"):
        ferry.Session(nodes.a)


def test_a_local_node_is_all_that_a_first_transfer_needs():
    with ferry.local_node() as node, node.session() as session:
        sent = session.send(b"hello", to="host1", key="greeting")
        got = session.recv(shape=5, dtype="uint8", frm="host0", key="greeting", device="host1").result(20)
        assert bytes(got.memory) == b"hello"
        sent.result(20)
        node.close()
        with pytest.raises(ferry.DaemonLostError) as lost:
            session.send(b"hello", to="host1", key="greeting").result(20)
        assert lost.value.reason == "DAEMON_LOST"
    with pytest.raises(ProcessLookupError):
        _ = node.pid


def test_a_node_by_its_command():
    command = [*INTERRUPTIBLE, sys.executable, "-m", "ferry.node", "--host-devices", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        assert line.startswith("export FERRY_CLIENT_DIR=")
        directory = line.split("=", 1)[1].strip()
        with ferry.Session(directory) as session:
            assert len(session.devices) == 3
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert not os.path.exists(directory)


def test_a_node_ends_with_the_process_that_started_it():
    program = "import ferry, sys\nnode = ferry.local_node()\nprint(node.pid, node._directory, flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pid, directory = process.stdout.readline().split()
        watched = os.pidfd_open(int(pid))
        process.kill()
        assert select.select([watched], [], [], 30)[0], "the daemon is still there"
        os.close(watched)
    shutil.rmtree(directory)


def test_a_node_that_cannot_start_says_why(monkeypatch):
    with pytest.raises(ferry.UnavailableError, match=r"ferryd did not start: (?s:.*)devices.host: '-1'"):
        ferry.local_node(host_devices=-1)
    monkeypatch.setenv("FERRY_DAEMON", "/nothing/ferryd")
    with pytest.raises(FileNotFoundError, match="FERRY_DAEMON: /nothing/ferryd is no program"):
        ferry.local_node()


@pytest.mark.parametrize(
    "error", [ImportError("of another version"), KeyboardInterrupt(), ferry.NotAllowedError("not you", "")]
)
def test_a_local_node_that_cannot_be_used_leaves_nothing(monkeypatch, error):
    """Whatever it is that fails: the daemon is ended, and its directory is gone."""
    made = []

    def session(directory, **_):
        made.append(directory)
        raise error

    started = []
    popen = subprocess.Popen

    def start(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("ferry.node.Session", session)
    monkeypatch.setattr("ferry.node.subprocess.Popen", start)
    with pytest.raises(type(error)):
        ferry.local_node()
    assert [process.poll() is not None for process in started] == [True]
    assert made and not os.path.exists(os.path.dirname(os.path.dirname(made[0])))


def test_a_local_node_that_cannot_be_started_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def refused(*_, **__):
        raise PermissionError("no more processes")

    monkeypatch.setattr("ferry.node.subprocess.Popen", refused)
    with pytest.raises(PermissionError):
        ferry.local_node()
    assert list(tmp_path.iterdir()) == []
