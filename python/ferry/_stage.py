# SPDX-License-Identifier: Apache-2.0
"""Memory into which a send copies what is in no arena. Small pieces are used again once nothing reads them any more: to show
the daemon a new one takes longer than to send what is in it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

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

    def take(self, session: Any, device: int, nbytes: int) -> Arena:
        if nbytes > _MOST:
            return make_arena(session, device, nbytes)
        lib = _abi.library()
        with self._lock:
            for i, (arena, ends) in enumerate(self._kept):
                if arena.device != device or arena.nbytes < nbytes:
                    continue
                if all(lib.ferry_over_value(session.handle, counter) >= value for counter, value in ends):
                    del self._kept[i]
                    arena.session = session
                    return arena
        return make_arena(session, device, max(_LEAST, 1 << (nbytes - 1).bit_length()))

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
