# SPDX-License-Identifier: Apache-2.0
"""A private daemon for a laptop, a notebook or a test: ``ferry.local_node()``, ``python -m ferry.node``.

It has host devices only, sockets in a directory of its own that only this user can enter, and listens on no port. It ends
with the process that started it; of one that is killed, if its main thread started it.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Optional

from ferry._session import Session, close_all
from ferry.errors import FerryError, UnavailableError

# Has the daemon get SIGTERM when the thread that started it ends. In a process of its own, since this one may have threads,
# with which nothing but exec is safe behind fork.
_BIND = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


def _bound_to_us() -> list[str]:
    """In front of a command: it ends with this process; nothing where the thread may end before the process does."""
    if threading.current_thread() is not threading.main_thread() or not sys.executable:
        return []
    return [sys.executable, "-I", "-S", "-c", _BIND, str(os.getpid())]


def program() -> str:
    """ferryd: $FERRY_DAEMON, else of the package ferry-transfer-node, else of PATH. FileNotFoundError if there is none."""
    named = os.environ.get("FERRY_DAEMON")
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"FERRY_DAEMON: {named} is no program that can be run")
        return named
    try:
        import ferry_node
    except ImportError:
        found = shutil.which("ferryd")
        if found is None:
            raise FileNotFoundError(
                "there is no ferryd: pip install 'ferry-transfer[node]', or name it in FERRY_DAEMON"
            ) from None
        return found
    return str(ferry_node.program())


class LocalNode:
    """A daemon of this process, and a context manager; `client_dir` is what a Session in any process takes."""

    def __init__(self, host_devices: int = 2, name: str = "local", timeout: float = 10.0) -> None:
        command = program()
        self._owner = os.getpid()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._directory = tempfile.mkdtemp(prefix="ferry-")
        self.runtime_dir = os.path.join(self._directory, "run")
        self.client_dir = os.path.join(self.runtime_dir, "client")
        self._log = os.path.join(self._directory, "ferryd.log")
        try:
            self._start(command, host_devices, name)
            self._await(timeout)
        except BaseException:  # Ctrl-C too: nothing is left behind
            self.close()
            raise

    def _start(self, command: str, host_devices: int, name: str) -> None:
        config = os.path.join(self._directory, "node.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f"node: {{ name: {name}, runtime_dir: {self.runtime_dir} }}\n"
                f"devices: {{ host: {host_devices}, gpus: none }}\n"
                "drain: { timeout: 1s }\n"
            )
        # Of the environment only what is no setting of another daemon.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FERRY_")}
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [*_bound_to_us(), command, "--config", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the program: the daemon ends after it
            )
        atexit.register(self._close_at_exit)

    def session(self, **options: Any) -> Session:
        """A session with it; `options` are those of `Session`, and so is what it raises. UnavailableError if it is closed."""
        return Session(self.client_dir, **options)

    @property
    def environment(self) -> dict[str, str]:
        """What makes other processes take it: ``subprocess.run(..., env={**os.environ, **node.environment})``."""
        return {"FERRY_CLIENT_DIR": self.client_dir}

    @property
    def pid(self) -> int:
        """The daemon's process. ProcessLookupError if the node is closed."""
        if self._process is None:
            raise ProcessLookupError("the node is closed")
        return self._process.pid

    def log(self) -> str:
        """What the daemon has logged so far. FileNotFoundError if the node is closed."""
        with open(self._log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def close(self, timeout: float = 10.0) -> None:
        """Ends the daemon, also one that was stopped, and by force after `timeout` seconds, or on Ctrl-C; what is in flight has
        a second to end. Twice is once. Raises nothing else."""
        process, self._process = self._process, None
        if self._owner != os.getpid():
            return
        atexit.unregister(self._close_at_exit)
        try:
            if process is not None:
                _end(process, timeout)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _close_at_exit(self) -> None:
        close_all()  # so that the daemon has nothing to wait for
        self.close()

    def __enter__(self) -> LocalNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _await(self, timeout: float) -> None:
        assert self._process is not None
        end = time.monotonic() + timeout
        while True:
            ended = self._process.poll() is not None
            try:
                if not ended:
                    Session(self.client_dir, name="local-node", timeout=max(0.1, timeout)).close()
                    return
                error: Optional[FerryError] = None
            except UnavailableError as failed:
                error = failed
            if ended or time.monotonic() >= end:
                text = self.log()[-2000:] or str(error)
                raise UnavailableError(f"ferryd did not start: {text}", "NOT_READY")
            time.sleep(0.01)


def _end(process: subprocess.Popen[bytes], timeout: float) -> None:
    process.terminate()
    process.send_signal(signal.SIGCONT)  # one that was stopped would not hear of the other
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        pass
    finally:  # after Ctrl-C too
        process.kill()
        process.wait()


def local_node(host_devices: int = 2, name: str = "local", timeout: float = 10.0) -> LocalNode:
    """Starts a private daemon with `host_devices` devices and waits, `timeout` seconds at most, until it serves.

    Raises: FileNotFoundError if there is no ferryd; UnavailableError, with what the daemon has logged, if it does not serve;
    what ``Session`` does otherwise. The daemon is ended then, and its directory removed.
    """
    return LocalNode(host_devices, name, timeout)


def main(arguments: Optional[list[str]] = None) -> int:
    """The program: the exit status. Raises what `local_node` does."""
    parser = argparse.ArgumentParser(prog="python -m ferry.node", description="Starts a private daemon until Ctrl-C.")
    parser.add_argument("--host-devices", type=int, default=2, help="how many devices of host memory (2)")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with local_node(given.host_devices) as node:
        print(f"export FERRY_CLIENT_DIR={node.client_dir}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
