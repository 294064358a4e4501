# SPDX-License-Identifier: Apache-2.0
"""Calls of the library that wait for the daemon, so that Ctrl-C ends them too while it stands still.

Python runs signal handlers on its main thread alone, between two of its own steps: what that thread calls of the library would
hold them up until it returns, which takes up to 30 s. So a thread of the session makes such a call in the main thread's
place, and that one waits in Python. If it is told to stop, by KeyboardInterrupt or what else a handler raises, the call goes
on, and what it then brings is undone: nothing is left that nobody has. `undone` waits for that. Every other thread makes its
calls itself.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Optional, TypeVar

T = TypeVar("T")
# A wait returns to the interpreter this often: a signal that another thread was given does not wake it.
_SLICE = 0.2
# How long what must not hang waits for a daemon that may stand still: a `with` that ends, a tensor that is let go of.
SOON = 1.0
_AT_ONCE = 0.2
# How often `undone` looks.
_LOOK = 0.005


class _Call:
    """`over` is locked until it is made. `claim`: whoever pops it first has what came, the caller or the thread."""

    __slots__ = ("arguments", "claim", "error", "function", "keep", "over", "result", "undo")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], undo: Any, keep: Any) -> None:
        self.function, self.arguments, self.undo, self.keep = function, arguments, undo, keep
        self.over, self.claim = threading.Lock(), [None]
        self.over.acquire()
        self.result: Any = None
        self.error: Optional[BaseException] = None

    def make(self) -> None:
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:
            self.error = error
        if not self.claimed():
            if self.undo is not None and self.error is None:
                with contextlib.suppress(Exception):  # such as of a session that was closed: nothing is left to be undone
                    self.undo(self.result)
            self.result = self.error = None
        # What they hold goes now, on this thread: whoever waits has what came.
        self.function, self.arguments, self.undo, self.keep = _nothing, (), None, None

    def claimed(self) -> bool:
        """True once, for the first who asks."""
        try:
            self.claim.pop()
        except IndexError:
            return False
        return True

    def taken(self) -> Any:
        """What came of it, once it is over."""
        result, error, self.result, self.error = self.result, self.error, None, None
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # a cycle of a traceback and its frame


def _nothing() -> None:
    """Of a call that is over."""


class _Thread:
    def __init__(self, calls: Calls) -> None:
        self._calls, self.call = calls, None  # type: tuple[Calls, Optional[_Call]]
        self.ready = threading.Lock()
        self.ready.acquire()
        self.thread = threading.Thread(target=self._run, name="ferry-calls", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            self.ready.acquire()
            call, self.call = self.call, None
            if call is None:  # the session is closed
                return
            call.make()
            self._calls.idle.append(self)
            call.over.release()
            del call


class Calls:
    """Of a session."""

    def __init__(self) -> None:
        self.idle: list[_Thread] = []
        self._threads: list[_Thread] = []
        self._left: list[_Call] = []  # the main thread went on without them; replaced as a whole, by that thread alone
        self._disposals: deque[tuple[Callable[[int], object], int, Any]] = deque()
        self._disposer = [None]  # whoever pops it disposes
        self._closed, self._pid = False, os.getpid()
        self._main = threading.main_thread().ident

    def __call__(
        self, function: Callable[..., T], *arguments: Any, undo: Optional[Callable[[T], object]] = None, keep: Any = None
    ) -> T:
        """``function(*arguments)``, and what that raises. If a signal's handler raises meanwhile, `undo` is given what it
        brings, on another thread; `keep` lives until then."""
        if threading.get_ident() != self._main:
            return function(*arguments)
        call = _Call(function, arguments, undo, keep)
        if not self._begin(call):
            return function(*arguments)
        try:
            while not call.over.acquire(timeout=_SLICE):
                pass
        except BaseException:
            if not self._leave(call) and undo is not None and call.error is None:  # it was over just then
                undoing = _Call(undo, (call.result,), None, keep)
                if self._begin(undoing):
                    self._leave(undoing)
            raise
        made: T = call.taken()
        return made

    def soon(self, function: Callable[..., object], *arguments: Any, keep: Any = None, seconds: float = SOON) -> bool:
        """``function(*arguments)``, and what that raises; the main thread waits so long at most. False: it goes on without it,
        and `keep` lives until it is over."""
        call = _Call(function, arguments, None, keep)
        if threading.get_ident() != self._main or not self._begin(call):
            function(*arguments)
            return True
        try:
            over = call.over.acquire(timeout=seconds)
        except BaseException:
            self._leave(call)
            raise
        if not over:
            self._leave(call)
            return False
        call.taken()
        return True

    def undone(self, until: float = math.inf) -> bool:
        """Waits, until that time of ``time.monotonic`` at most, for the calls that the main thread went on without, and for
        what undoes them. False: one is not over yet."""
        for call in self._left:
            while call.over.locked():  # and not taken here: what Ctrl-C ends holds nothing then
                if time.monotonic() >= until:
                    return False
                time.sleep(min(_LOOK, max(0.0, until - time.monotonic())))
        return True

    def dispose(self, free: Callable[[int], object], handle: int, keep: Any = None) -> None:
        """``free(handle)``, in this order, of what nobody has any more: where a daemon that stands still holds one up, the main
        thread does not wait for the others. `keep` lives until then."""
        if threading.get_ident() != self._main or self._closed or self._pid != os.getpid() or sys.is_finalizing():
            free(handle)
            return
        self._disposals.append((free, handle, keep))
        self.soon(self._dispose, seconds=_AT_ONCE)

    def _dispose(self) -> None:
        """Unless another thread does: it sees what was added meanwhile."""
        while self._disposals:
            try:
                self._disposer.pop()
            except IndexError:
                return
            try:
                while self._disposals:
                    free, handle, _keep = self._disposals.popleft()
                    free(handle)
            finally:
                self._disposer.append(None)

    def _leave(self, call: _Call) -> bool:
        """The main thread goes on without it. False: it is over."""
        if not call.claimed():
            return False
        self._left = [*(one for one in self._left if one.over.locked()), call]
        return True

    def _begin(self, call: _Call) -> bool:
        """False: there is no thread for it, and none is needed: the session is closed, or of before a fork; or Python ends."""
        if self._closed or self._pid != os.getpid() or sys.is_finalizing():
            return False
        try:
            thread = self.idle.pop()
        except IndexError:
            try:
                thread = _Thread(self)
            except RuntimeError:  # Python is at its end, or has no more threads
                return False
            self._threads.append(thread)
        thread.call = call
        thread.ready.release()
        return True

    def close(self, seconds: float = SOON) -> None:
        """Of a session that was not opened, or is over: its threads end, for which this waits so long at most."""
        self.end()
        self.join(time.monotonic() + seconds)

    def end(self) -> None:
        """Tells the threads that the session is over. Twice is once."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        for one in self._threads:
            try:
                one.ready.release()
            except RuntimeError:
                pass  # it was told twice

    def join(self, until: float) -> None:
        """Waits for the threads, which were told to end, until then at most."""
        if self._pid != os.getpid():
            return
        threads, self._threads = self._threads, []
        for one in threads:
            if one.thread is not threading.current_thread():
                one.thread.join(max(0.0, until - time.monotonic()))
