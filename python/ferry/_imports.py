# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs that Ferry did not make: found in ferry_cuda_malloc's, or imported, each allocation once, and kept.

An allocation may be gone, and another one be where it was, without a word to anybody. So each import remembers which one
it is: by the driver's id of a buffer, or by the handle of a mapping, which it holds so that nothing else gets it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, NamedTuple, Optional

from ferry import _abi, _cuda
from ferry._memory import Arena
from ferry._views import View
from ferry.errors import FailedPreconditionError, FerryError, ResourceExhaustedError, UnavailableError, check, take

_MOST_MAPPINGS = 250  # of one import
# What is no fault of the memory, and may be otherwise the next time.
_PASSING = (ResourceExhaustedError, UnavailableError, FailedPreconditionError)
Pieces = list[tuple[Arena, int, int]]


class Imported:
    """An arena of the library's over memory of somebody else: `address` is where it begins."""

    _getpid = staticmethod(os.getpid)  # as an Arena's

    def __init__(self, session: Any, handle: int, address: int) -> None:
        self.handle, self.address = handle, address
        self._free, self._pid, self._dispose = _abi.library().ferry_arena_free, os.getpid(), session.calls.dispose

    def __del__(self) -> None:
        if self._pid == self._getpid():
            self._dispose(self._free, self.handle)


class Segment(NamedTuple):
    """An allocation of cudaMalloc (`handle` None), or one mapping of an expandable segment. `arena` None: it cannot be
    imported, and `why`."""

    base: int
    nbytes: int
    handle: Optional[int]
    buffer: int
    arena: Optional[Imported]
    why: str


class Imports:
    """Of a session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._segments: dict[int, Segment] = {}
        self._swept = 64  # how many there may be before those that are gone are looked for

    def place(self, session: Any, view: View, reach: int) -> tuple[Optional[Pieces], str]:
        """Where the `reach` bytes of a view are, and how they are shared; or None and why they cannot be. Raises what
        is no fault of the memory, as of a daemon that is away: UnavailableError, ResourceExhaustedError,
        FailedPreconditionError."""
        device = session.gpu_of(view.ordinal)
        if device is None:
            return None, f"CUDA device {view.ordinal} is none of the GPUs of this node's daemon"
        with self._lock, _cuda.driver().current(view.ordinal):
            found = self._find(session, device, view.address, reach)
        pieces: Pieces = []
        at, end = view.address, view.address + reach
        for segment in found:
            if segment.arena is None:
                return None, segment.why
            length = min(end, segment.base + segment.nbytes) - at
            offset = at - segment.arena.address
            if pieces and pieces[-1][0].keeps is segment.arena:
                arena, first, before = pieces[-1]
                pieces[-1] = (arena, first, before + length)
            else:
                # Not kept by the session's own list, which would keep the session.
                arena = Arena(session, segment.arena.handle, device, 0, keeps=segment.arena)
                arena.nbytes = _abi.library().ferry_arena_bytes(segment.arena.handle)
                pieces.append((arena, offset, length))
            at += length
        how = "an expandable segment" if found[0].handle is not None else "a segment of cudaMalloc"
        return pieces, f"{how} of PyTorch, or of another allocator, imported once and kept"

    def clear(self) -> None:
        """Gives all back."""
        with self._lock:
            for segment in self._segments.values():
                self._drop(segment)
            self._segments.clear()

    # With the lock, and a context that is current.

    def _find(self, session: Any, device: int, address: int, reach: int) -> list[Segment]:
        found: list[Segment] = []
        missing: list[Segment] = []
        try:
            self._look(address, reach, found, missing)
            if missing:
                self._import(session, device, missing)
        except BaseException:  # of a daemon that is away, or Ctrl-C: what is not remembered holds no mapping
            for segment in missing:
                if segment.base not in self._segments:
                    self._drop(segment)
            raise
        return [self._segments.get(segment.base, segment) for segment in found]

    def _look(self, address: int, reach: int, found: list[Segment], missing: list[Segment]) -> None:
        driver = _cuda.driver()
        at = address
        while at < address + reach:
            base, nbytes = driver.range_of(at)
            segment = self._segments.get(base)
            if segment is not None and not self._same(segment, nbytes):
                self._drop(self._segments.pop(base))
                segment = None
            if segment is None:
                segment = Segment(base, nbytes, driver.mapped_handle(base), driver.buffer_id(base), None, "")
                missing.append(segment)
            found.append(segment)
            at = base + nbytes

    def _import(self, session: Any, device: int, missing: list[Segment]) -> None:
        """Mappings in a row are one arena, as many as it may have."""
        if len(self._segments) + len(missing) > self._swept:
            for gone in [one for one in self._segments.values() if not self._same(one)]:
                self._drop(self._segments.pop(gone.base))
            self._swept = 2 * (len(self._segments) + len(missing)) + 64
        begin = 0
        for i in range(1, len(missing) + 1):
            before = missing[i - 1]
            joined = i < len(missing) and i - begin < _MOST_MAPPINGS and before.handle is not None
            if joined and missing[i].handle is not None and missing[i].base == before.base + before.nbytes:
                continue
            some = missing[begin:i]
            begin = i
            arena, error = session.calls(_imported, session, device, some[0].base, sum(one.nbytes for one in some))
            if isinstance(error, _PASSING):
                raise error
            for one in some:
                self._segments[one.base] = one._replace(arena=arena, why=str(error))

    def _same(self, segment: Segment, nbytes: Optional[int] = None) -> bool:
        """True if what is there now is what was imported."""
        driver = _cuda.driver()
        if nbytes is not None and nbytes != segment.nbytes:
            return False
        handle = driver.mapped_handle(segment.base)
        if handle is not None:
            driver.release(handle)
        if handle != segment.handle:
            return False
        return handle is not None or driver.buffer_id(segment.base) == segment.buffer

    def _drop(self, segment: Segment) -> None:
        if segment.handle is not None:
            _cuda.driver().release(segment.handle)


def cuda_session() -> int:
    """The library's own session, of ferry_cuda_malloc, which the first call opens. UnavailableError if no daemon listens."""
    handle = ctypes.c_void_p()
    check(_abi.library().ferry_cuda_session(ctypes.byref(handle)))
    assert handle.value is not None
    return handle.value


def _imported(session: Any, device: int, base: int, nbytes: int) -> tuple[Optional[Imported], Optional[FerryError]]:
    handle = ctypes.c_void_p()
    error = take(_abi.library().ferry_arena_import_cuda(session.handle, device, base, nbytes, ctypes.byref(handle)))
    return None if handle.value is None else Imported(session, handle.value, base), error


class PoolPlaces:
    """Where tensors of one call are in memory of ferry_cuda_malloc."""

    def __init__(self, session: Any) -> None:
        self._lib, self._session = _abi.library(), session
        self._offset = ctypes.c_uint64()
        self._told = ctypes.byref(self._offset)
        self._pool: Any = None
        self._arenas: dict[int, Arena] = {}

    def find(self, view: View, reach: int) -> Optional[Pieces]:
        """None if it is in none of it, or if that is another daemon's."""
        handle = self._lib.ferry_cuda_arena(view.address, self._told)
        if not handle:
            return None
        arena = self._arenas.get(handle)
        if arena is None:
            if self._pool is None:
                self._pool = self._session._pool()
            if self._pool is None:
                return None
            device, nbytes = self._lib.ferry_arena_device(handle), self._lib.ferry_arena_bytes(handle)
            place = view.address - self._offset.value, view.ordinal
            # The memory stays as long as the tensors in it, which their items keep.
            arena = self._arenas[handle] = Arena(self._pool, handle, device, nbytes, keeps=view.owner, place=place)
        begin = self._offset.value
        return [(arena, begin, reach)] if begin + reach <= arena.nbytes else None
