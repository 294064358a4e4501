# SPDX-License-Identifier: Apache-2.0
"""One thread a session that runs the callbacks of futures, started with the first of them.

libferry calls ``sem_post`` of the C library when a batch is over, so that no thread of the library ever needs the
interpreter, which may be at its end. This thread sleeps on the semaphore and asks which batch it was.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

from ferry import _abi
from ferry.errors import ResourceExhaustedError, check

log = logging.getLogger("ferry")
_libc = ctypes.CDLL(None, use_errno=True)
_SEM_BYTES = 32
_NONE = 2**64 - 1
# A callback that was set comes even when its batch is forgotten: semaphores stay.
_semaphores: list[Any] = []


def _nothing() -> None:
    """Instead of what somebody else has called."""


class Waiter:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots: Any = (ctypes.c_void_p * 64)()
        self._free = list(range(63, -1, -1))
        self._waiting: dict[int, tuple[Any, Callable[[], None]]] = {}
        self._thread: Optional[threading.Thread] = None
        self._closing = False
        self._pid = os.getpid()
        self._semaphore = ctypes.create_string_buffer(_SEM_BYTES)
        _semaphores.append(self._semaphore)
        _libc.sem_init(self._semaphore, 0, 0)

    def forked(self) -> bool:
        """True in a child of fork, where there is no thread to call anything."""
        return self._pid != os.getpid()

    def start(self) -> None:
        """Before `add`: so that there is a thread, once. ResourceExhaustedError if the process may have no more."""
        with self._lock:
            if self._thread is not None or self._closing:
                return
            thread = threading.Thread(target=self._run, name="ferry-futures", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                said = f"the thread that runs callbacks of futures cannot be started: {error}; see `ulimit -u` and pids.max"
                raise ResourceExhaustedError(said) from None
            self._thread = thread

    def add(self, post: Any, done: Callable[[], None]) -> None:
        """Calls `done` once, when the batch of `post`, which has a handle, is over."""
        lib = _abi.library()
        with self._lock:
            closed = self._closing
        if closed:  # with its session, so that all is over
            done()
            return
        with self._lock:
            if not self._free:
                more = (ctypes.c_void_p * (2 * len(self._slots)))(*self._slots)
                self._free = list(range(len(more) - 1, len(self._slots) - 1, -1))
                self._slots = more
            slot = self._free.pop()
            self._slots[slot] = post.handle
            self._waiting[slot] = (post, done)
        sem_post = ctypes.cast(_libc.sem_post, ctypes.c_void_p)
        try:
            check(lib.ferry_batch_on_over(post.handle, sem_post, ctypes.addressof(self._semaphore)))
        except Exception:
            self._take(slot)
            raise
        with self._lock:
            late = self._waiting.pop(slot, None) if self._closing else None
        if late is not None:
            done()

    def end(self) -> None:
        """Every batch is over: the thread runs what is left, and ends."""
        with self._lock:
            self._closing = True
        _libc.sem_post(self._semaphore)

    def join(self, until: float) -> bool:
        """Waits for the thread, which was told to end, until then at most. False: a callback goes on."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(0.0, until - time.monotonic()))
        return not thread.is_alive()

    def _take(self, slot: int) -> Callable[[], None]:
        with self._lock:
            taken = self._waiting.pop(slot, None)
            if taken is None:
                return _nothing
            self._slots[slot] = None
            self._free.append(slot)
            return taken[1]

    def _run(self) -> None:
        lib = _abi.library()
        while True:
            _libc.sem_wait(self._semaphore)
            while self._waiting:
                index = ctypes.c_size_t(_NONE)
                with self._lock:
                    slots = self._slots
                lib.ferry_status_free(lib.ferry_wait_any(slots, len(slots), 0, ctypes.byref(index)))
                if index.value == _NONE:
                    break
                _guarded(self._take(index.value))
            if self._closing:  # every batch is over
                with self._lock:
                    left, self._waiting = list(self._waiting.values()), {}
                for _, done in left:
                    _guarded(done)
                return


def _guarded(done: Callable[[], None]) -> None:
    """Whatever `done` raises, the thread goes on: all futures of the session need it."""
    try:
        done()
    except BaseException:
        log.exception("the end of a batch could not be told")
