# SPDX-License-Identifier: Apache-2.0
"""A request to a source of another process: a connection of its own, on which each end says lines of JSON. The one that asks
says what it wants, and then `done`; the source answers the first. Either is told by the end of the connection that the other
has gone.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any, NamedTuple

from ferry import errors
from ferry.errors import FerryError, InternalError, PeerClientGoneError, UnavailableError, WaitTimeoutError

_CONNECT_TIMEOUT = 10.0
DEADLINE = 60.0


class Address(NamedTuple):
    """Of a source. The token is known only to whom the source's process has told it."""

    host: str
    port: int
    token: str


def keep_alive(connection: socket.socket) -> None:
    """A machine that has gone, which closes nothing, is noticed in seconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def line_of(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"


class Request:
    """`said` to a source, about what it has under `name`. UnavailableError if it cannot be reached within `timeout` seconds,
    PeerClientGoneError if it goes away before it is told."""

    def __init__(self, address: Address, name: str, said: dict[str, Any], timeout: float) -> None:
        self._whom, self._cut = f"the process that has {name!r}", False
        try:
            self._connection = socket.create_connection(address[:2], min(timeout, _CONNECT_TIMEOUT))
        except OSError as error:
            raise UnavailableError(
                f"{self._whom} cannot be reached at {address.host}:{address.port} ({error}): it has ended, or was started "
                "again since",
                "PEER_UNREACHABLE",
            ) from None
        try:
            keep_alive(self._connection)
            self._connection.sendall(line_of({"token": address.token, "name": name, **said}))
        except OSError as error:
            self._connection.close()
            raise self._lost(str(error)) from None

    def answer(self, end: float) -> dict[str, Any]:
        """Waits until `end` of the monotonic clock: WaitTimeoutError. PeerClientGoneError if the source goes away first; what
        it refuses is raised as what it has raised."""
        line = bytearray()
        while not line.endswith(b"\n"):
            try:
                self._connection.settimeout(max(0.001, end - time.monotonic()))
                data = self._connection.recv(1 << 16)
            except TimeoutError:
                raise WaitTimeoutError(f"{self._whom} did not answer: it is busy, stopped, or its machine is gone") from None
            except OSError as error:
                raise self._lost(str(error)) from None
            if not data:
                raise self._lost("its connection was closed")
            line += data
        said: dict[str, Any] = json.loads(bytes(line))
        if "error" in said:
            kind = getattr(errors, said["error"], InternalError)
            raise kind(f"{self._whom}: {said['message']}", said["reason"])
        return said

    def _lost(self, why: str) -> FerryError:
        why = "it was aborted here" if self._cut else why
        return PeerClientGoneError(f"{self._whom} went away before it answered ({why})", "PEER_CLIENT_GONE")

    def done(self) -> None:
        """All is there: what follows is no failure of this end."""
        with contextlib.suppress(OSError):
            self._connection.sendall(line_of({"done": True}))

    def cut(self) -> None:
        """From any thread: whoever waits for the answer gets PeerClientGoneError."""
        self._cut = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()
