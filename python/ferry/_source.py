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
import os
import secrets
import selectors
import socket
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ferry import _posting, errors
from ferry._dtypes import BY_NAME
from ferry._future import Future
from ferry._layout import Region, piece
from ferry._parts import end_of, part_key
from ferry._post import Copies, Item, Places, arena_of, items_of, parted
from ferry._presence import Taken
from ferry._request import Address, keep_alive, line_of
from ferry._session import Session
from ferry._views import View, view_of
from ferry.errors import FailedPreconditionError, FerryError, PeerClientGoneError

_MOST_REQUEST = 64 << 20


def open_session(name: str, client_dir: Optional[str] = None) -> Session:
    """An adapter's session, as a member of the job's domain on every device of the node, if $FERRY_DOMAIN_FILE names a
    domain. Not of the uid's own: in that programs post that have nothing to do with the adapter and do not join."""
    session = Session(client_dir, name=name)
    if os.environ.get("FERRY_DOMAIN_FILE"):
        session.join(name[:64])
    return session


class Leaf(NamedTuple):
    """A tensor that is offered: `device` is Ferry's of the source, `ordinal` the GPU's in its process, -1 of host memory."""

    shape: tuple[int, ...]
    dtype: str
    device: int
    ordinal: int


def first_host(session: Session) -> Optional[int]:
    return next((device.id for device in session.devices if device.kind == "host"), None)


def host_device(session: Session) -> int:
    """The node's first device of host memory."""
    found = first_host(session)
    if found is None:
        raise FailedPreconditionError(
            f"node {session.node} has no device of host memory, which tensors of the CPU need: `devices: {{ host: 1 }}` in its "
            "configuration",
            "FIELD_INVALID",
        )
    return found


def describe(session: Session, tensors: Sequence[Any]) -> list[Leaf]:
    """Where a send would take each tensor from."""
    places = Places(session)
    return [_leaf(places, view_of(tensor)) for tensor in tensors]


def _leaf(places: Places, view: View) -> Leaf:
    session = places.session
    try:
        where = places.of(view)
    except errors.InvalidArgumentError:  # strides of which no transfer is made: a contiguous copy is sent
        where = None
    if where is not None:
        device: Optional[int] = arena_of(where).device
    else:
        device = host_device(session) if view.ordinal < 0 else session.gpu_of(view.ordinal)
    if device is None:
        raise errors.invalid(f"a tensor is on CUDA device {view.ordinal}, which is none of the daemon's GPUs", "tensor")
    return Leaf(tuple(view.shape), view.dtype.name, device, view.ordinal)


class _Offer(NamedTuple):
    """`views`: of tensors of host memory what they are; None of a GPU's, whose owner is asked once more by who sends them, as
    it may have something to do in order with that one's stream."""

    tensors: list[Any]
    views: list[Optional[View]]
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
        views = [view_of(tensor) for tensor in tensors]
        places = Places(self.session)
        leaves = [_leaf(places, view) for view in views]
        known = [view if view.ordinal < 0 else None for view in views]
        with self._lock:
            self._offers[name] = _Offer(list(tensors), known, leaves, Taken(self._changed), info)
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
                self._taken, self._sends = None, []  # all is there: nothing is left to be cancelled
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
            self._connection.sendall(line_of(answer))
        except OSError:
            return False
        return "error" not in answer

    def _answer(self, said: dict[str, Any]) -> dict[str, Any]:
        self.name, self._who = str(said["name"]), str(said.get("who", ""))
        offer = self._source.find(self.name)
        if offer is None:
            raise errors.NotFoundError(f"{self.name!r} is not here: it was never made, or it was freed", "")
        self._taken = offer.taken
        session, key = self._source.session, str(said["key"]).encode()
        groups: dict[int, list[_Asked]] = {}
        for i, (leaf, offset, size) in enumerate(said["parts"]):
            whole = offer.leaves[leaf]
            nbytes = BY_NAME[whole.dtype].nbytes(whole.shape if size is None else size)
            groups.setdefault(said["to"][i], []).append(_Asked(part_key(key, i), leaf, offset, size, nbytes))
        ends = _Ends(session, offer)
        for to, some in groups.items():
            parts = (ends.of([asked for _, asked in part]) for part in parted([(asked.key, asked) for asked in some]))
            self._sends.append(_posting.send(session, parts, to, said["deadline"]))
        return {"copied": ends.copied}

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


class _Asked(NamedTuple):
    key: bytes
    leaf: int
    offset: Optional[Sequence[int]]
    size: Optional[Sequence[int]]
    nbytes: int


class _Ends:
    """The source's ends of the transfers of one request. `copied`: how many tensors were in no memory of the daemon's, or of
    several strides, and are sent from a copy."""

    def __init__(self, session: Session, offer: _Offer) -> None:
        self._session, self._offer, self._places = session, offer, Places(session)
        self.copied = 0

    def of(self, some: Sequence[_Asked]) -> tuple[list[Item], Copies]:
        """As `_post.items_of`."""
        ends: list[Item] = []
        others: list[tuple[bytes, Any]] = []
        for asked in some:
            view = self._offer.views[asked.leaf] or view_of(self._offer.tensors[asked.leaf])
            end = end_of(self._places, view, asked.offset, asked.size)
            if end is not None:
                ends.append(end._replace(key=asked.key))
            else:
                others.append((asked.key, self._other(view, asked)))
        device = self._session.device_id(first_host(self._session))
        items, copies = items_of(self._session, others, device, copies=True)
        return ends + items, copies

    def _other(self, view: View, asked: _Asked) -> Any:
        """The ranges of a box of several strides; of what the daemon does not see a contiguous copy."""
        tensor = self._offer.tensors[asked.leaf]
        whole = Region((0,) * len(view.shape), tuple(view.shape))
        box = whole if asked.offset is None or asked.size is None else Region(tuple(asked.offset), tuple(asked.size))
        try:
            shared = self._places.of(view) is not None
        except errors.InvalidArgumentError:
            shared = False
        self.copied += not shared
        return piece(tensor, whole, box, copies=not shared)
