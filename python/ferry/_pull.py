# SPDX-License-Identifier: Apache-2.0
"""The other end of a source: tensors that this process fetches from one."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ferry._dtypes import BY_NAME
from ferry._future import Future, first_routes
from ferry._memory import Tensor, make_tensors
from ferry._parts import part_key
from ferry._post import Item, Ranges, arena_of
from ferry._posting import receive
from ferry._request import DEADLINE, Address, Request
from ferry._session import Session
from ferry._source import Leaf, describe, host_device
from ferry.errors import FerryError, WaitTimeoutError


class Part(NamedTuple):
    """Of leaf `leaf` the box that begins at `offset` and has `size`; None: all of it."""

    leaf: int
    offset: Optional[tuple[int, ...]] = None
    size: Optional[tuple[int, ...]] = None


class Pull:
    """Tensors that are on their way from a source. Posted, and asked for, when it is made; `wait` then gives them.

    leaves: of each part, as the source has described it. into: tensors in memory that the daemon sees, one for each part, None:
    new ones, on `device`. ends: of each part where it is to come to, where that is known already (_parts.end_of). who: as the
    source and its errors call this end.
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
        ends: Optional[Sequence[Item]] = None,
        who: str = "",
        deadline: float = DEADLINE,
    ) -> None:
        self._futures: list[Future[Any]] = []
        self._request: Optional[Request] = None
        self.copied, self.began = 0, time.monotonic()
        parts = [Part(i) for i in range(len(leaves))] if parts is None else parts
        sizes = [leaf.shape if part.size is None else part.size for leaf, part in zip(leaves, parts, strict=True)]
        if into is None:
            home = host_device(session) if device is None else device
            wanted = [(tuple(size), BY_NAME[leaf.dtype]) for leaf, size in zip(leaves, sizes, strict=True)]
            into = make_tensors(session, home, wanted) if wanted else []
        self.tensors = list(into)
        self.nbytes = sum(BY_NAME[leaf.dtype].nbytes(size) for leaf, size in zip(leaves, sizes, strict=True))
        if not parts:
            return
        key = f"{name[:24]}/{secrets.token_hex(8)}"
        try:
            to = [arena_of(end.where).device for end in ends or ()] or [device_of(session, one) for one in self.tensors]
            said = {"who": who, "key": key, "to": to, "parts": parts, "deadline": deadline}
            self._answer_by = time.monotonic() + deadline
            self._request = Request(address, name, said, deadline)  # first, so that both ends post at the same time
            self._post(session, leaves, key, deadline, ends)
        except BaseException:
            self.end()
            raise

    def _post(
        self, session: Session, leaves: Sequence[Leaf], key: str, deadline: float, ends: Optional[Sequence[Item]]
    ) -> None:
        groups: dict[int, list[int]] = {}
        for i, leaf in enumerate(leaves):
            groups.setdefault(leaf.device, []).append(i)
        for frm, some in groups.items():
            if ends is None:
                into = {str(i): self.tensors[i] for i in some}
                self._futures.append(session.recv(into=into, frm=frm, key=key, deadline=deadline))
            else:
                items = [ends[i]._replace(key=part_key(key.encode(), i)) for i in some]
                self._futures.append(receive(session, items, frm, deadline))

    def wait(self, timeout: Optional[float] = None) -> list[Any]:
        """The tensors. Any failure ends it, at both ends; so does the timeout (WaitTimeoutError)."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            if self._request is not None:
                self.copied = self._request.answer(self._answer_by if end is None else min(end, self._answer_by))["copied"]
            for future in self._futures:
                future.result(None if end is None else max(0.0, end - time.monotonic()))
            if self._request is not None:
                self._request.done()
        finally:
            self.end()
        return self.tensors

    def over(self) -> bool:
        return all(future.done() for future in self._futures)

    def routes(self) -> list[str]:
        """What the bytes took, each once: of those that are posted together the first ones."""
        return first_routes(self._futures)

    def cancel(self) -> None:
        """From any thread: whoever waits gets CancelledError, or PeerClientGoneError if nothing was posted yet."""
        request = self._request
        for future in self._futures:
            with contextlib.suppress(FerryError):
                future.cancel()
        if request is not None:
            request.cut()

    def end(self) -> None:
        """Nobody waits for it any more: what is not over ends, at both ends. Twice is once."""
        for future in self._futures:
            if not future.done():
                with contextlib.suppress(FerryError):
                    future.cancel()
        request, self._request = self._request, None
        if request is not None:
            request.close()


def ask(address: Address, name: str, timeout: float) -> tuple[list[Leaf], Any]:
    """What an offer is made of, and its `info`; waits until it is made."""
    end = time.monotonic() + timeout
    with contextlib.closing(Request(address, name, {"ask": True}, timeout)) as request:
        try:
            said = request.answer(end)
        except WaitTimeoutError:
            raise WaitTimeoutError(f"the process that is to have {name!r} has not after {timeout} s") from None
    return [Leaf(tuple(shape), *rest) for shape, *rest in said["leaves"]], said["info"]


def device_of(session: Session, tensor: Any) -> int:
    """On which a receive into it is; ranges are all of one."""
    one = tensor.tensors[0] if isinstance(tensor, Ranges) else tensor
    return one.device if isinstance(one, Tensor) else describe(session, [one])[0].device
