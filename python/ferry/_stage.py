# SPDX-License-Identifier: Apache-2.0
"""Memory into which a send copies what is in no arena. Small pieces are used again once nothing reads them any more: to show
the daemon a new one takes longer than to send what is in it. And what must live until its transfers are over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Optional

from ferry import _abi
from ferry._memory import Arena, make_arena

_LEAST, _MOST = 64 * 1024, 1024 * 1024  # bytes of a piece that is kept
_KEPT = 16


class Stage:
    """Of a session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # (arena, the counters and values at which nothing reads it any more), the oldest first.
        self._kept: list[tuple[Arena, Sequence[tuple[int, int]]]] = []

    def take(self, session: Any, device: int, nbytes: int, lane: Optional[int] = None) -> Arena:
        """`lane`: the stream that is to copy into it, of a GPU's memory. A piece is used again by the same stream alone, since
        an earlier copy may have been overtaken by the end of its transfer."""
        if nbytes > _MOST:
            return self._make(session, device, nbytes, lane)
        lib = _abi.library()
        with self._lock:
            for i, (arena, ends) in enumerate(self._kept):
                if arena.device != device or arena.nbytes < nbytes or arena.lane != lane:
                    continue
                if all(lib.ferry_over_value(session.handle, counter) >= value for counter, value in ends):
                    del self._kept[i]
                    arena.session = session
                    return arena
        return self._make(session, device, max(_LEAST, 1 << (nbytes - 1).bit_length()), lane)

    @staticmethod
    def _make(session: Any, device: int, nbytes: int, lane: Optional[int]) -> Arena:
        arena = make_arena(session, device, nbytes)
        arena.lane, arena.events = lane, []
        return arena

    def give(self, arena: Arena, ends: Sequence[tuple[int, int]]) -> None:
        """What `take` gave, and where the transfers from it are over."""
        if arena.nbytes > _MOST:
            return
        arena.session = None  # so that the session is not kept by its own memory
        with self._lock:
            self._kept.append((arena, ends))
            if len(self._kept) > _KEPT:
                del self._kept[0]

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


class Kept:
    """Of a session: GPU memory, of the application's tensors too, that transfers touch although nobody may hold them any more,
    as where a stream waits in place of the host. Given up when their future is over, and, of futures that nobody asked,
    as others come."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, int], Any] = {}  # by the counter and value at which they are over
        self._most = 16  # at which those that are over are looked for

    def add(self, end: tuple[int, int], what: Any) -> None:
        with self._lock:
            self._kept[end] = what
        if len(self._kept) >= self._most:
            self.sweep()
            self._most = 2 * len(self._kept) + 16

    def over(self, end: tuple[int, int]) -> None:
        with self._lock:
            old = self._kept.pop(end, None)
        del old  # without the lock: what goes with it may wait for a GPU

    def sweep(self) -> None:
        value = _abi.library().ferry_over_value
        with self._lock:
            ends = list(self._kept)
        for end in ends:
            if value(self._session, end[0]) >= end[1]:
                self.over(end)

    def clear(self) -> None:
        with self._lock:
            old, self._kept = self._kept, {}
        del old
