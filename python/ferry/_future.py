# SPDX-License-Identifier: Apache-2.0
"""What posting gives: something to wait for, in a thread, in asyncio, or by a callback."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

from ferry import _abi
from ferry._options import c_text, wait_timeout
from ferry._streams import on_stream, refuse_capture
from ferry._tree import shown
from ferry.errors import (
    FailedPreconditionError,
    FerryError,
    WaitTimeoutError,
    check,
    forked,
    invalid,
    of_this_end,
    take,
)

if TYPE_CHECKING:
    import concurrent.futures

log = logging.getLogger("ferry")
T = TypeVar("T")
# A wait returns to the interpreter this often, so that Ctrl-C and other signals are handled.
_SLICE_NS = 50_000_000


class _End:
    """Of the interpreter: whether it has begun."""

    begun = False


def interpreter_ends() -> None:
    """All sessions are about to be closed. A daemon thread that waits waits on, as it does in every other call that blocks,
    instead of printing that its session was closed."""
    _End.begun = True


def wait_in_slices(wait: Callable[[int], Any], timeout: Optional[float], what: Callable[[], str]) -> Optional[FerryError]:
    """`wait(nanoseconds)` until it says how it ended: None, or the error. WaitTimeoutError with `what()` after `timeout`
    seconds. That a slice has passed is never an end, even of what is over a moment later."""
    timeout = wait_timeout(timeout)
    end = None if timeout is None or timeout > 1e9 else time.monotonic_ns() + int(max(0.0, timeout) * 1e9)
    while True:
        error = take(wait(_SLICE_NS if end is None else min(_SLICE_NS, max(0, end - time.monotonic_ns()))))
        if error is None or error.code != "DEADLINE_EXCEEDED" or error.reason:
            if _End.begun and threading.current_thread().daemon:
                threading.Event().wait()
            return error
        if end is not None and time.monotonic_ns() >= end:
            raise WaitTimeoutError(what())


class Post:
    """A batch of the library's: transfers of one call, with their keys. Forgotten when nobody waits for it. `end`: the counter
    and value at which it is over. `ordinal`: of the GPU that it is on, -1 of a host device."""

    _getpid = staticmethod(os.getpid)  # of its own: at the interpreter's end it may go after its module's names

    def __init__(
        self, session: Any, handle: int, keys: Sequence[bytes], kept: Any, end: tuple[int, int], ordinal: int = -1
    ) -> None:
        self.session, self.handle, self.keys, self.kept, self.end, self.ordinal = session, handle, keys, kept, end, ordinal
        self._free, self._pid = _abi.library().ferry_batch_free, os.getpid()

    def __del__(self) -> None:
        if self._pid == self._getpid():  # in a child of fork nothing is touched
            self._free(self.handle)

    @property
    def first_id(self) -> int:
        return int(_abi.library().ferry_batch_first_id(self.handle))

    def first_route(self) -> str:
        return _abi.ROUTES[self.session.calls(_abi.library().ferry_transfer_route, self.session.handle, self.first_id)]

    def routes(self) -> list[str]:
        """Of its transfers."""
        if self.session._handle is None:
            raise FailedPreconditionError("the session is closed", "FIELD_INVALID")
        numbers = (ctypes.c_int * max(1, len(self.keys)))()
        self.session.calls(lambda: check(_abi.library().ferry_batch_routes(self.handle, numbers)), keep=self)
        return [_abi.ROUTES[number] for number in numbers[: len(self.keys)]]

    def over(self) -> bool:
        return bool(_abi.library().ferry_batch_over(self.handle))

    def failed_unheard(self) -> bool:
        """Whether it is over, and did not go well, by itself: not by the end of its session. Of a daemon that does not answer
        at once it is not known."""
        if self._pid != self._getpid() or self.session._handle is None or not self.over() or self._all_well():
            return False
        said: list[Optional[FerryError]] = []
        asked = self.session.calls.soon(lambda: said.append(take(_abi.library().ferry_batch_wait(self.handle, 0))), seconds=0.2)
        return asked and said != [None]

    def _all_well(self) -> bool:
        """Whether no transfer of its counter has ever failed, of which the daemon need not be asked."""
        if self.session._handle is None:
            return True  # nor can it be
        failures = ctypes.c_uint64()
        _abi.library().ferry_over_failures(self.session._handle, self.end[0], ctypes.byref(failures), None)
        return not failures.value

    def _wait(self, nanoseconds: int) -> Any:
        """ferry_batch_wait. How a transfer has failed it asks the daemon."""
        wait = _abi.library().ferry_batch_wait
        if self.over() and not self._all_well():
            return self.session.calls(wait, self.handle, 0, undo=_abi.library().ferry_status_free, keep=self)
        return wait(self.handle, nanoseconds)

    def wait(self, timeout: Optional[float], said: Optional[float]) -> Optional[FerryError]:
        """None if all went well, else the first failure, with ids and keys of all that failed. `said`: as the text has
        the timeout."""
        lib = _abi.library()

        def what() -> str:
            return (
                f"{len(self.keys)} transfers, the first of key {shown(self.keys[0])}, are not over after {said} s; they go on: "
                "wait again, or cancel() them. `ferryctl transfers` says what they wait for"
            )

        error = wait_in_slices(self._wait, timeout, what)
        if error is None:
            return None
        if not self.over():
            raise error  # of the wait, such as FORKED
        first = self.first_id
        failed = []
        for i in range(len(self.keys)):
            status = lib.ferry_batch_transfer_status(self.handle, i)
            if status:
                lib.ferry_status_free(status)
                failed.append(i)
        error.transfer_ids = tuple(first + i for i in failed)
        error.keys = tuple(self.keys[i] for i in failed)
        item = self.kept[failed[0]] if failed and isinstance(self.kept, list) else None  # of columns a tensor
        return error if item is None or item.dtype is None else of_this_end(error, item.dtype.name, item.shape)


class Future(Generic[T]):
    """Transfers that are under way, and what they bring: of a receive its tensors, of a send None.

    Wait by ``result()``, ``await``, or ``add_done_callback``. A future that is thrown away leaves its transfers going on.
    asyncio's ``gather``, ``wait_for``, ``shield`` and ``as_completed`` take it as it is; where a task is wanted, as by
    ``asyncio.wait``, give ``asyncio.ensure_future(future)``, in place of ``create_task``, which takes coroutines alone. For
    ``concurrent.futures.wait`` and ``as_completed``, and ``asyncio.wrap_future``, give ``future.as_concurrent()``.
    """

    _over = True  # of the class, for one that was never begun

    def __init__(self, posts: Sequence[Post], value: T, copied_bytes: int = 0) -> None:
        self._posts, self._value, self._copied_bytes = tuple(posts), value, copied_bytes
        self._error: Optional[FerryError] = None
        self._over = not posts
        self._lock = threading.Lock()
        self._callbacks: Optional[list[Callable[[Future[T]], object]]] = None
        self._pending = 0
        self._told = False  # that somebody has asked, or has ended it

    def __del__(self) -> None:
        if self._over or self._told or sys is None or sys.is_finalizing():
            return
        for post in self._posts:
            if post.failed_unheard():
                error = post.wait(0.0, 0.0)
                keys = ", ".join(shown(key) for key in error.keys[:4]) if error is not None else ""
                log.warning("transfers failed, and nobody asked their ferry.Future: keys %s: %s", keys, error)
                return

    def __reduce__(self) -> Any:
        raise TypeError("a ferry.Future is of the process that has posted: send what result() gives, such as .numpy() of it")

    def __repr__(self) -> str:
        state = "over" if self.done() else "under way"
        if self._error is not None:
            state = f"failed: {type(self._error).__name__}"
        return f"<ferry.Future {state}{transfers_shown([post.keys for post in self._posts])}>"

    @property
    def transfer_ids(self) -> tuple[int, ...]:
        """As ``ferryctl transfers`` and the logs have them."""
        return tuple(post.first_id + i for post in self._posts for i in range(len(post.keys)))

    @property
    def copied_bytes(self) -> int:
        """How many bytes the call has copied, since they are in no memory that the daemon sees: of a receive none.
        ``Session.explain`` says why, of each tensor."""
        return self._copied_bytes

    def done(self) -> bool:
        """True if all is over, well or not. Raises nothing."""
        return self._over or all(post.over() for post in self._posts)

    def exception(self, timeout: Optional[float] = None) -> Optional[FerryError]:
        """Waits; how it failed, or None. WaitTimeoutError if it is not over after `timeout` seconds, and goes on."""
        wait_timeout(timeout)
        if not self._over:
            end = None if timeout is None else time.monotonic() + timeout
            error: Optional[FerryError] = None
            for post in self._posts:
                left = None if end is None else max(0.0, end - time.monotonic())
                failed = post.wait(left, timeout)
                error = error or failed
            self._error, self._over = error, True
            for post in self._posts:
                post.session.kept.over(post.end)
        return self._error

    def result(self, timeout: Optional[float] = None) -> T:
        """Waits; what came, or raises how it failed. Ctrl-C ends the wait, and the transfers go on.

        Raises: WaitTimeoutError if it is not over after `timeout` seconds, and goes on; DeadlineExceededError if its own
        deadline came first; MismatchError, PeerClientGoneError, PoisonedError, CancelledError, AbortedError,
        DaemonLostError, each with the ids and keys of the transfers that failed; ForkedError in a child of fork.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error.again()  # its traceback has the caller's frame, and that this future: a cycle with its tensors
        return self._value

    def wait_stream(self, stream: Any = None) -> T:
        """Has a CUDA stream wait, instead of the host: what is queued behind this call sees the bytes that came, and may
        write to those that were sent. Returns what ``result`` would, at once. `stream`: torch's, what has ``__cuda_stream__``,
        a number (cudaStream_t), None: torch's current one of the GPU. It goes on when the transfers are over, well or not:
        ``exception`` says which.

        Raises: FailedPreconditionError while the stream is captured, or for None if no torch of this process has opened CUDA;
        InvalidArgumentError for what is no stream.
        """
        what = "a stream was to wait for a transfer"
        for post in self._posts:
            refuse_capture(what)
            on_stream(stream, post.ordinal, what, lambda there, post=post: check(_wait_batch(post.handle, there)))
        return self._value

    def cancel(self) -> None:
        """Asks what is not launched yet to end: CancelledError, at both ends."""
        self._told = True
        if self._posts:
            self._posts[0].session.calls(_cancel, self._posts)

    def poison(self, why: str) -> None:
        """The data will never be there, or never be taken: PoisonedError with `why`, at both ends."""
        said, self._told = c_text(why, "why"), True
        if self._posts:
            self._posts[0].session.calls(_poison, self._posts, said)

    def routes(self) -> tuple[str, ...]:
        """What each transfer took, or takes: "local", "mapped", "tcp", "ucx", "nccl"; "any" while it has none, and if the
        daemon has forgotten it. One call to the daemon for each 4,096 transfers of a post.

        Raises: FailedPreconditionError if the session is closed; DaemonLostError while the daemon is away, and of transfers
        of before it came back.
        """
        return tuple(route for post in self._posts for route in post.routes())

    def as_concurrent(self) -> concurrent.futures.Future[T]:
        """A future of ``concurrent.futures`` that ends as this one does, for what takes no other. Cancelling that one, before
        it is over, cancels the transfers. Raises what `add_done_callback` does."""
        import concurrent.futures

        made: concurrent.futures.Future[T] = concurrent.futures.Future()

        def over(_: Future[T]) -> None:
            if not made.set_running_or_notify_cancel():
                return
            error = self.exception()
            if error is None:
                made.set_result(self._value)
            else:
                made.set_exception(error.again())

        def cancelled(_: concurrent.futures.Future[T]) -> None:
            if made.cancelled():
                self._told = True
                cancel_soon(self._posts)

        made.add_done_callback(cancelled)
        self.add_done_callback(over)
        return made

    @property
    def _condition(self) -> Any:
        """What ``concurrent.futures`` looks for in a future of its own."""
        raise TypeError("concurrent.futures waits for futures of its own: give it ferry.Future.as_concurrent()")

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """Calls `callback(self)` once all is over, from a thread of the session's futures; at once if it is. It shall
        not block for long. What it raises is logged, as an error of logger ``ferry``, and disturbs nobody else. ForkedError
        in a child of fork; ResourceExhaustedError if that thread cannot be started."""
        if getattr(callback, "__module__", "") == "asyncio.tasks":  # of asyncio.wait, which would not hear of it
            raise TypeError("asyncio.wait waits for tasks and futures of its own: give it asyncio.ensure_future(future)")
        for post in () if self._over else self._posts:
            if post.session.waiter.forked():
                raise forked("future")
            post.session.waiter.start()  # first: what it refuses leaves nothing behind
        with self._lock:
            self._told = True
            if self._callbacks is not None and self._pending:
                self._callbacks.append(callback)
                return
            first = self._callbacks is None and not self._over
            if first:
                self._callbacks, self._pending = [callback], len(self._posts)
        if not first:
            self._call(callback)
            return
        for post in self._posts:
            post.session.waiter.add(post, self._one_over)

    def _one_over(self) -> None:
        with self._lock:
            self._pending -= 1
            if self._pending or self._callbacks is None:
                return
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                self._call(callback)
            except BaseException:  # such as sys.exit(), which would end the session's thread
                log.exception("a callback of a ferry.Future, %r, tried to end its thread", callback)

    def _call(self, callback: Callable[[Future[T]], object]) -> None:
        try:
            callback(self)
        except Exception:
            log.exception("a callback of a ferry.Future, %r, raised", callback)

    def __await__(self) -> Generator[Any, None, T]:
        """Cancelling the task that awaits cancels the transfers."""
        if not self.done():
            loop = asyncio.get_running_loop()
            there = loop.create_future()

            def wake() -> None:
                if not there.done():
                    there.set_result(None)

            def over(_: Future[T]) -> None:
                try:
                    loop.call_soon_threadsafe(wake)
                except RuntimeError:
                    pass  # the loop was closed: nobody awaits any more

            self.add_done_callback(over)
            try:
                yield from there
            except asyncio.CancelledError:
                self._told = True
                cancel_soon(self._posts)
                raise
        return self.result()


def id_to_continue(future: Future[Any], session: Any) -> int:
    """The first transfer's id, for a post of `session` that continues this one; 0: there is none."""
    if not future._posts:
        return 0
    if future._posts[0].session is not session:
        raise invalid("a post continues a future of its own session", "continues")
    return future._posts[0].first_id


def first_routes(futures: Sequence[Future[Any]]) -> list[str]:
    """What the first transfer of each call took, each route once: a call to the daemon for each, whose answer is short."""
    posts = [post for future in futures for post in future._posts]
    return sorted({post.first_route() for post in posts})


def joined(futures: Sequence[Future[Any]], value: T) -> Future[T]:
    """One future of what several post, with another value."""
    return Future([post for one in futures for post in one._posts], value, sum(one.copied_bytes for one in futures))


def _cancel(posts: Sequence[Post]) -> None:
    """All of them, whichever cannot be."""
    errors = [take(_abi.library().ferry_batch_cancel(post.handle)) for post in posts]
    for error in filter(None, errors):
        raise error


def _poison(posts: Sequence[Post], why: bytes) -> None:
    for post in posts:
        check(_abi.library().ferry_batch_poison(post.handle, why))


def cancel_soon(posts: Sequence[Post]) -> None:
    """Cancels what nobody will wait for, and waits a second at most for a daemon that may stand still."""
    if posts:
        with contextlib.suppress(FerryError):
            posts[0].session.calls.soon(_cancel, tuple(posts))


def _wait_batch(handle: int, stream: Any) -> Any:
    return _abi.library().ferry_stream_wait_batch(handle, stream)


def transfers_shown(keys: Sequence[Sequence[bytes]]) -> str:
    """For a repr: how many, and the first one's key."""
    count = sum(map(len, keys))
    return f", {count} transfer{'s' if count > 1 else ''} from key {shown(keys[0][0])}" if count else ", no transfers"
