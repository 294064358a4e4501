# SPDX-License-Identifier: Apache-2.0
"""Tensors that other processes fetch when they need them: what the adapters for Ray, vLLM and verl have in common.

Ferry's transfers have two ends, and whoever fetches must have the other process post its end. So a `Source` listens for
requests, each of a connection of its own: which tensors, to which device, under which key. The bytes go by Ferry alone. The
connection says what Ferry cannot know: that the source ended before it had posted anything, or that the taker did. Whichever
end goes away, the other one is told at once, and nothing is left behind. A source that was started again has another port and
another token, so that no request of before reaches it.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ferry import errors
from ferry._dtypes import BY_NAME
from ferry._future import Future
from ferry._memory import Tensor, make_tensors, view_of
from ferry._post import arena_of, place_of
from ferry._session import Session
from ferry.errors import (
    FailedPreconditionError,
    FerryError,
    InternalError,
    PeerClientGoneError,
    UnavailableError,
    WaitTimeoutError,
)

_MOST_REQUEST = 64 << 20
_CONNECT_TIMEOUT = 10.0
DEADLINE = 60.0


def open_session(name: str, client_dir: Optional[str] = None) -> Session:
    """An adapter's session, as a member of the job's domain on every device of the node, if $FERRY_DOMAIN_FILE names a
    domain. Not of the uid's own: in that programs post that have nothing to do with the adapter and do not join."""
    session = Session(client_dir, name=name)
    if os.environ.get("FERRY_DOMAIN_FILE"):
        session.join(name[:64])
    return session


class Address(NamedTuple):
    """Of a source. The token is known only to whom the source's process has told it."""

    host: str
    port: int
    token: str


class Leaf(NamedTuple):
    """A tensor that is offered: `device` is Ferry's of the source, `ordinal` the GPU's in its process, -1 of host memory."""

    shape: tuple[int, ...]
    dtype: str
    device: int
    ordinal: int


class Part(NamedTuple):
    """Of leaf `leaf` the box that begins at `offset` and has `size`; None: all of it."""

    leaf: int
    offset: Optional[tuple[int, ...]] = None
    size: Optional[tuple[int, ...]] = None


def host_device(session: Session) -> int:
    """The node's first device of host memory."""
    found = next((device.id for device in session.devices if device.kind == "host"), None)
    if found is None:
        raise FailedPreconditionError(
            f"node {session.node} has no device of host memory, which tensors of the CPU need: `devices: {{ host: 1 }}` in its "
            "configuration",
            "FIELD_INVALID",
        )
    return found


def describe(session: Session, tensors: Sequence[Any]) -> list[Leaf]:
    """Where a send would take each tensor from."""
    made = []
    for tensor in tensors:
        view = view_of(tensor)
        try:
            where = place_of(session, view)
        except errors.InvalidArgumentError:  # strides of which no transfer is made: a contiguous copy is sent
            where = None
        if where is not None:
            device: Optional[int] = arena_of(where).device
        else:
            device = host_device(session) if view.ordinal < 0 else session.gpu_of(view.ordinal)
        if device is None:
            raise errors.invalid(f"a tensor is on CUDA device {view.ordinal}, which is none of the daemon's GPUs", "tensor")
        made.append(Leaf(tuple(view.shape), view.dtype.name, device, view.ordinal))
    return made


class Taken:
    """How the takers of an offer have fared; `changed`, which is the source's, is notified."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.arrived: set[str] = set()
        self.failed: dict[str, FerryError] = {}

    def ended(self, who: str, error: Optional[FerryError]) -> None:
        with self.changed:
            if error is None:
                self.arrived.add(who)
                self.failed.pop(who, None)
            elif who not in self.arrived:
                self.failed[who] = error
            self.changed.notify_all()


class _Offer(NamedTuple):
    tensors: list[Any]
    leaves: list[Leaf]
    taken: Taken
    info: Any


class Source:
    """Serves what is offered, from a thread of its own."""

    def __init__(self, session: Session, host: str = "127.0.0.1") -> None:
        self.session = session
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()
        self._askers: set[_Asker] = set()
        self._changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family)
        self._listener.setblocking(False)
        self.address = Address(host, self._listener.getsockname()[1], secrets.token_hex(16))
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, name="ferry-source", daemon=True)
        self._thread.start()

    def offer(self, name: str, tensors: Sequence[Any], info: Any = None) -> list[Leaf]:
        """Keeps the tensors, as they are, until `withdraw`. Under a name that is known: in its place. `info`, which JSON can
        say, is for `ask`."""
        leaves = describe(self.session, tensors)
        with self._lock:
            self._offers[name] = _Offer(list(tensors), leaves, Taken(self._changed), info)
        with contextlib.suppress(OSError):
            self._wake.send(b"!")  # whoever waits for it
        return leaves

    def taken(self, name: str) -> Taken:
        with self._lock:
            return self._offers[name].taken

    def withdraw(self, name: str) -> None:
        """Whoever asks from now on is told that it is gone. What was asked for before still comes. Twice is once."""
        with self._lock:
            self._offers.pop(name, None)

    def abort(self, name: str) -> None:
        """Ends the sends of `name` that are not launched, at both ends."""
        for asker in list(self._askers):
            if asker.name == name:
                asker.cancel()

    def names(self) -> list[str]:
        with self._lock:
            return list(self._offers)

    def close(self) -> None:
        """Takers that wait are told at once. Twice is once."""
        with contextlib.suppress(OSError):
            self._wake.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def find(self, name: str) -> Optional[_Offer]:
        with self._lock:
            return self._offers.get(name)

    # ---- On the thread

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if self._woken.recv(4096):
                        for asker in list(self._askers):
                            asker.again()
                        continue
                    for asker in list(self._askers):
                        asker.gone()
                    self._selector.close()
                    self._listener.close()
                    self._woken.close()
                    return
                key.data()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            asker = _Asker(self, connection)
            self._askers.add(asker)
            self._selector.register(connection, selectors.EVENT_READ, asker.readable)

    def forget(self, asker: _Asker, connection: socket.socket) -> None:
        self._askers.discard(asker)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()


class _Asker:
    """One connection: a request, and then `done`, or its end."""

    def __init__(self, source: Source, connection: socket.socket) -> None:
        self._source, self._connection = source, connection
        self._read = bytearray()
        self._sends: list[Future[None]] = []
        self._taken: Optional[Taken] = None
        self.name, self._who = "", ""
        self._parked = b""  # a request for what is not there yet
        keep_alive(connection)
        connection.settimeout(5.0)  # of an answer, which is short

    def readable(self) -> None:
        try:
            data = self._connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data or len(self._read) + len(data) > _MOST_REQUEST:
            self.gone()
            return
        self._read += data
        if not data.endswith(b"\n"):
            return
        lines, self._read = bytes(self._read).splitlines(), bytearray()
        for line in lines:
            if not self._said(line):
                self.gone()
                return

    def again(self) -> None:
        line, self._parked = self._parked, b""
        if line and not self._said(line):
            self.gone()

    def _said(self, line: bytes) -> bool:
        """False: the connection is of no more use."""
        try:
            said = json.loads(line)
            if said.get("done") and self._taken is not None:
                self._taken.ended(self._who, None)
                self._taken = None
                return False
            if not hmac.compare_digest(str(said["token"]), self._source.address.token):
                return False
            if said.get("ask"):
                offer = self._source.find(str(said["name"]))
                if offer is None:
                    self._parked = line
                    return True
                answer = {"leaves": offer.leaves, "info": offer.info}
            else:
                answer = self._answer(said)
        except FerryError as error:
            answer = {"error": type(error).__name__, "reason": error.reason, "message": error.message}
        except Exception as error:
            answer = {"error": "InternalError", "reason": "", "message": f"{type(error).__name__}: {error}"}
        try:
            self._connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            return False
        return "error" not in answer

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        self.name, self._who = str(said["name"]), str(said.get("who", ""))
        offer = self._source.find(self.name)
        if offer is None:
            raise errors.NotFoundError(f"{self.name!r} is not here: it was never made, or it was freed", "")
        self._taken = offer.taken
        session = self._source.session
        groups: dict[int, dict[str, Any]] = {}
        copied = 0
        for i, (leaf, offset, size) in enumerate(said["parts"]):
            tensor, shared = part_of(session, offer.tensors[leaf], offset, size)
            copied += not shared
            groups.setdefault(said["to"][i], {})[str(i)] = tensor
        for to, some in groups.items():
            self._sends.append(
                session.send(some, to=to, key=said["key"], device=host_device_or_none(session), deadline=said["deadline"])
            )
        return {"copied": copied}

    def cancel(self) -> None:
        for send in self._sends:
            with contextlib.suppress(FerryError):
                send.cancel()

    def gone(self) -> None:
        """The other end has closed, or has died: what it will not take is not sent."""
        self.cancel()
        if self._taken is not None:
            self._taken.ended(
                self._who,
                PeerClientGoneError(f"{self._who or 'a taker'} went away before it had {self.name!r}", "PEER_CLIENT_GONE"),
            )
            self._taken = None
        self._source.forget(self, self._connection)


def _ranges() -> Any:
    from ferry._post import Ranges

    return Ranges


def host_device_or_none(session: Session) -> Optional[int]:
    return next((device.id for device in session.devices if device.kind == "host"), None)


def part_of(session: Session, tensor: Any, offset: Optional[Sequence[int]], size: Optional[Sequence[int]]) -> tuple[Any, bool]:
    """What `send` takes for a box of a tensor, None: for all of it, and whether it goes from where it is. What is in no memory
    of the daemon's is made contiguous."""
    from ferry.torch import Region, _piece

    if isinstance(tensor, Tensor) and offset is None:
        return tensor, True
    try:
        shared = place_of(session, view_of(tensor)) is not None
    except errors.InvalidArgumentError:  # strides of which no transfer is made
        shared = False
    if shared and (offset is None or size is None):
        return tensor, True
    whole = Region((0,) * len(tensor.shape), tuple(tensor.shape))
    box = whole if offset is None or size is None else Region(tuple(offset), tuple(size))
    return _piece(tensor, whole, box, copies=not shared), shared


def keep_alive(connection: socket.socket) -> None:
    """A machine that has gone, which closes nothing, is noticed in seconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


class Pull:
    """Tensors that are on their way from a source. Posted, and asked for, when it is made; `wait` then gives them.

    leaves: of each part, as the source has described it. into: tensors in memory that the daemon sees, one for each part, None:
    new ones, on `device`. homes: the device of each of `into`, where that is known already. who: as the source and its errors
    call this end.
    """

    def __init__(
        self,
        session: Session,
        address: Address,
        name: str,
        leaves: Sequence[Leaf],
        parts: Optional[Sequence[Part]] = None,
        *,
        device: Optional[int] = None,
        into: Optional[Sequence[Any]] = None,
        homes: Optional[Sequence[int]] = None,
        who: str = "",
        deadline: float = DEADLINE,
    ) -> None:
        self._name, self._address, self._who = name, address, who
        self._futures: list[Future[Any]] = []
        self._connection: Optional[socket.socket] = None
        self._cancelled = False
        self.copied, self.began = 0, time.monotonic()
        parts = [Part(i) for i in range(len(leaves))] if parts is None else parts
        sizes = [leaf.shape if part.size is None else part.size for leaf, part in zip(leaves, parts, strict=True)]
        if into is None:
            home = host_device(session) if device is None else device
            wanted = [(tuple(size), BY_NAME[leaf.dtype]) for leaf, size in zip(leaves, sizes, strict=True)]
            into = make_tensors(session, home, wanted) if wanted else []
        self.tensors = list(into)
        self.nbytes = sum(math.prod(size) * BY_NAME[leaf.dtype].bits // 8 for leaf, size in zip(leaves, sizes, strict=True))
        if not parts:
            return
        key = f"{name[:24]}/{secrets.token_hex(8)}"
        try:
            to = [device_of(session, tensor) for tensor in self.tensors] if homes is None else list(homes)
            self._ask(parts, to, key, deadline)  # first, so that both ends post at the same time
            self._post(session, leaves, key, deadline)
        except BaseException:
            self._end()
            raise

    def _post(self, session: Session, leaves: Sequence[Leaf], key: str, deadline: float) -> None:
        groups: dict[int, dict[str, Any]] = {}
        for i, (leaf, tensor) in enumerate(zip(leaves, self.tensors, strict=True)):
            groups.setdefault(leaf.device, {})[str(i)] = tensor
        for frm, some in groups.items():
            self._futures.append(session.recv(into=some, frm=frm, key=key, deadline=deadline))

    def _ask(self, parts: Sequence[Part], to: list[int], key: str, deadline: float) -> None:
        host, port, token = self._address
        try:
            self._connection = socket.create_connection((host, port), min(deadline, _CONNECT_TIMEOUT))
        except OSError as error:
            raise UnavailableError(
                f"the process that has {self._name!r} cannot be reached at {host}:{port} ({error}): it has ended, or was "
                "started again since",
                "PEER_UNREACHABLE",
            ) from None
        keep_alive(self._connection)
        request = {
            "token": token, "name": self._name, "who": self._who, "key": key, "to": to, "parts": parts, "deadline": deadline,
        }  # fmt: skip
        self._answer_by = time.monotonic() + deadline
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise self._lost(str(error)) from None

    def _lost(self, why: str) -> FerryError:
        return PeerClientGoneError(
            f"the process that has {self._name!r} went away before it sent it ({why})", "PEER_CLIENT_GONE"
        )

    def _hear(self, end: Optional[float]) -> None:
        """The source's answer: that it has posted its end, or why it does not."""
        assert self._connection is not None
        line = bytearray()
        while not line.endswith(b"\n"):
            left = (self._answer_by if end is None else min(end, self._answer_by)) - time.monotonic()
            try:
                self._connection.settimeout(max(0.001, left))
                data = self._connection.recv(1 << 16)
            except TimeoutError:
                raise WaitTimeoutError(
                    f"the process that has {self._name!r} did not answer: it is busy, stopped, or its machine is gone"
                ) from None
            except OSError as error:
                raise self._lost("it was aborted here" if self._cancelled else str(error)) from None
            if not data:
                raise self._lost("its connection was closed")
            line += data
        said = json.loads(bytes(line))
        if "error" in said:
            kind = getattr(errors, said["error"], InternalError)
            raise kind(f"the process that has {self._name!r}: {said['message']}", said["reason"])
        self.copied = said["copied"]

    def wait(self, timeout: Optional[float] = None) -> list[Any]:
        """The tensors. Any failure ends it, at both ends; so does the timeout (WaitTimeoutError)."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            if self._connection is not None:
                self._hear(end)
            for future in self._futures:
                future.result(None if end is None else max(0.0, end - time.monotonic()))
            self._said_done()
        finally:
            self._end()
        return self.tensors

    def over(self) -> bool:
        return all(future.done() for future in self._futures)

    def routes(self) -> list[str]:
        """What the bytes took, each once."""
        return sorted({route for future in self._futures for route in future.routes()})

    def cancel(self) -> None:
        """From any thread: whoever waits gets CancelledError, or PeerClientGoneError if nothing was posted yet."""
        self._cancelled = True
        for future in self._futures:
            with contextlib.suppress(FerryError):
                future.cancel()
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _said_done(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(b'{"done": true}\n')

    def _end(self) -> None:
        for future in self._futures:
            if not future.done():
                with contextlib.suppress(FerryError):
                    future.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def ask(address: Address, name: str, timeout: float) -> tuple[list[Leaf], Any]:
    """What an offer is made of, and its `info`; waits until it is made."""
    what = f"the process that is to have {name!r}"
    try:
        with socket.create_connection(address[:2], min(timeout, _CONNECT_TIMEOUT)) as connection:
            keep_alive(connection)
            connection.settimeout(timeout)
            connection.sendall(json.dumps({"token": address.token, "name": name, "ask": True}).encode() + b"\n")
            line = bytearray()
            while not line.endswith(b"\n"):
                data = connection.recv(1 << 16)
                if not data:
                    raise PeerClientGoneError(f"{what} went away before it had it", "PEER_CLIENT_GONE")
                line += data
    except TimeoutError:
        raise WaitTimeoutError(f"{what} has not after {timeout} s") from None
    except ConnectionResetError:
        raise PeerClientGoneError(f"{what} went away before it had it", "PEER_CLIENT_GONE") from None
    except OSError as error:
        raise UnavailableError(
            f"{what} cannot be reached at {address.host}:{address.port} ({error})", "PEER_UNREACHABLE"
        ) from None
    said = json.loads(bytes(line))
    return [Leaf(tuple(shape), *rest) for shape, *rest in said["leaves"]], said["info"]


class Presence:
    """Lets a source know that a taker of an offer lives: it is failed unless `done` is called before it goes away. Once it is
    made the source knows of it."""

    def __init__(self, address: Address, name: str, who: str, deadline: float = DEADLINE) -> None:
        self._connection: Optional[socket.socket] = None
        try:
            connection = self._connection = socket.create_connection(address[:2], min(deadline, _CONNECT_TIMEOUT))
            keep_alive(connection)
            request = {
                "token": address.token,
                "name": name,
                "who": who,
                "key": name,
                "to": [],
                "parts": [],
                "deadline": deadline,
            }
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = bytearray()
            while not answer.endswith(b"\n"):
                data = connection.recv(1 << 16)
                if not data:
                    raise ConnectionError("it has closed the connection")
                answer += data
        except OSError as error:
            self.close()
            raise UnavailableError(
                f"the process that has {name!r} cannot be reached at {address.host}:{address.port} ({error})",
                "PEER_UNREACHABLE",
            ) from None
        said = json.loads(bytes(answer))
        if "error" in said:
            self.close()
            kind = getattr(errors, said["error"], InternalError)
            raise kind(f"the process that has {name!r}: {said['message']}", said["reason"])

    def done(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.sendall(b'{"done": true}\n')

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Presence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def device_of(session: Session, tensor: Any) -> int:
    """On which a receive into it is."""
    if isinstance(tensor, Tensor):
        return tensor.device
    where = place_of(session, view_of(tensor)) if not isinstance(tensor, _ranges()) else None
    return arena_of(where).device if where is not None else described_device(session, tensor)


def described_device(session: Session, tensor: Any) -> int:
    """Of ranges, which are all of one device."""
    parts = getattr(tensor, "tensors", None)
    return describe(session, [parts[0] if parts else tensor])[0].device
