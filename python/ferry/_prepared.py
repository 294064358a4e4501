# SPDX-License-Identifier: Apache-2.0
"""Prepared transfers: what is fired again and again."""

from __future__ import annotations

import ctypes
import logging
import operator
import os
import time
from collections.abc import Sequence
from typing import Any, Optional

from ferry import _abi
from ferry._future import transfers_shown, wait_in_slices
from ferry._options import wait_timeout
from ferry._streams import on_stream, refuse_capture
from ferry.errors import FailedPreconditionError, FerryError, check, forked, invalid, take

log = logging.getLogger("ferry")


class Prepared:
    """Transfers that are checked, matched and routed once and then fired any number of times, each by a store.

    Both ends are prepared. `value` is what ``recv`` would give: the same tensors each time. The bytes must be there, and
    free to be overwritten, from ``fire`` until ``wait`` returns. When one of the transfers ends, none is fired any more:
    every call then raises why.
    """

    _getpid = staticmethod(os.getpid)  # as a Post's

    def __init__(
        self, session: Any, handles: Sequence[int], keys: Sequence[Sequence[bytes]], kept: Any, value: Any, ordinal: int = -1
    ) -> None:
        lib = _abi.library()
        self._ordinal, self._keys = ordinal, tuple(keys)
        self._session, self._handles, self._kept, self.value = session, tuple(handles), kept, value
        self._fired = ctypes.c_uint64()
        self._firing = ctypes.byref(self._fired)
        self._fire, self._free, self._pid = lib.ferry_prepared_fire, lib.ferry_prepared_free, os.getpid()
        self._ended, self._calls = lib.ferry_prepared_ended, session.calls
        self._released = False

    def __reduce__(self) -> Any:
        raise TypeError("a ferry.Prepared is of the process that has prepared it: each end prepares where it runs")

    def __repr__(self) -> str:
        return f"<ferry.Prepared {'released' if self._released else 'prepared'}{transfers_shown(self._keys)}>"

    def _check_mine(self) -> None:
        """ForkedError in a child of fork, before anything there waits for a lock."""
        if self._pid != os.getpid():
            raise forked("prepared batch")

    def fire(self) -> int:
        """The next firing, at this end; its number, from 1. FailedPreconditionError while the last one is not over. That, and
        whether one of the transfers has ended, is looked at before any is fired; if one ends while they are being fired, those
        before it were fired."""
        self._check_mine()
        if len(self._handles) > 1:
            self._check_all(over=True)
        for i, handle in enumerate(self._handles):
            if self._ended(handle):  # and why, the daemon is asked
                status = self._calls(self._fire, handle, self._firing, undo=_abi.library().ferry_status_free, keep=self)
            else:
                status = self._fire(handle, self._firing)
            if status:
                error = take(status)
                assert error is not None
                raise _of_batch(error, handle, self._keys[i])
        return self._fired.value

    def _check_all(self, over: bool) -> None:
        """Raises why one of several batches cannot be fired, before any is: the tensors of all are of one step. `over`: their
        last firing must be, now."""
        lib = _abi.library()
        for handle, keys in zip(self._handles, self._keys, strict=True):
            error: Optional[FerryError] = None
            if self._ended(handle):
                error = take(self._calls(lib.ferry_prepared_status, handle, undo=lib.ferry_status_free, keep=self))
            elif over and lib.ferry_prepared_over(handle) < (fired := lib.ferry_prepared_fired(handle)):
                said = f"nothing was fired: firing {fired}{transfers_shown([keys])}, is not over"
                error = FailedPreconditionError(said, "FIELD_INVALID", (("prepared", said),))
            if error is not None:
                raise _of_batch(error, handle, keys)

    def fire_stream(self, stream: Any = None) -> int:
        """The next firing, when a CUDA stream gets there: behind the kernels queued so far. The firing before must be over
        by then. `stream` as of ``Future.wait_stream``. Raises what that does, and why the batch has ended. What it raises
        when the stream was told of some devices' tensors already leaves these fired alone: then release the batch."""
        what = "a stream was to fire"
        self._check_mine()
        refuse_capture(what)
        self._check_all(over=False)
        for handle in self._handles:
            on_stream(
                stream,
                self._ordinal,
                what,
                lambda there, handle=handle: check(_abi.library().ferry_stream_fire(handle, there, self._firing)),
            )
        return self._fired.value

    def wait_stream(self, stream: Any = None, firing: Optional[int] = None) -> Any:
        """Has a CUDA stream wait for firing `firing` (the last one if None), or the batch's end; `value`, at once. Raises what
        ``Future.wait_stream`` does."""
        what = "a stream was to wait for a firing"
        self._check_mine()
        refuse_capture(what)
        lib = _abi.library()
        for handle in self._handles:
            # A stream may have been told to fire what it has not fired yet.
            told = max(lib.ferry_prepared_fired(handle), self._fired.value)
            number = told if firing is None else _firing_number(firing)
            on_stream(
                stream,
                self._ordinal,
                what,
                lambda there, handle=handle, number=number: check(lib.ferry_stream_wait_prepared(handle, there, number)),
            )
        return self.value

    def wait(self, firing: Optional[int] = None, timeout: Optional[float] = None) -> None:
        """Waits until firing `firing` (the last one if None) is over; raises why the batch has ended, if it has.
        WaitTimeoutError after `timeout` seconds: the firing goes on."""
        self._check_mine()
        wait_timeout(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        # One that has ended while the others were fired is behind them.
        last = max(map(_abi.library().ferry_prepared_fired, self._handles), default=0) if firing is None else 0
        number = last if firing is None else _firing_number(firing)
        for i in range(len(self._handles)):
            self._wait_firing(i, number, None if end is None else max(0.0, end - time.monotonic()), timeout)

    def _wait_firing(self, begin: int, number: int, timeout: Optional[float], said: Optional[float]) -> None:
        """Of batch `begin`. One behind it that has ended before that firing ends the wait: nobody may ever fire this one."""
        wait, at = _abi.library().ferry_prepared_wait, begin

        def what() -> str:
            return (
                f"firing {number} is not over after {said} s; it goes on, and may wait for the other end to fire: wait again, "
                "or release it"
            )

        def wait_once(nanoseconds: int) -> Any:
            nonlocal at
            for at in range(begin, len(self._handles)):
                if self._ended(self._handles[at]):  # and why, the daemon is asked
                    undo = _abi.library().ferry_status_free
                    status = self._calls(wait, self._handles[at], number, 0, undo=undo, keep=self)
                    if status or at == begin:
                        return status
            at = begin
            return wait(self._handles[at], number, nanoseconds)

        error = wait_in_slices(wait_once, timeout, what)
        if error is not None:
            raise _of_batch(error, self._handles[at], self._keys[at])

    def release(self) -> None:
        """Ends it, with CancelledError at the other ends. When this returns its memory is not touched any more. Twice is
        once. After Ctrl-C it goes on without its caller, and keeps the memory until then."""
        if self._to_be_released():
            self._calls(self._release)

    def _to_be_released(self) -> bool:
        released, self._released = self._released, True
        return not released and self._pid == os.getpid()

    def _release(self) -> None:
        for handle in self._handles:
            check(_abi.library().ferry_prepared_release(handle))

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: object) -> None:
        if not release_soon(self):
            log.warning("the daemon does not answer: %r keeps its memory until it does", self)

    def __del__(self) -> None:
        if self._pid == self._getpid():  # in a child of fork nothing is touched
            for handle in self._handles:
                self._calls.dispose(self._free, handle, self._kept)


def release_soon(prepared: Prepared) -> bool:
    """As ``release``, but waits a second at most for a daemon that may stand still. False: it goes on, as after Ctrl-C."""
    return not prepared._to_be_released() or prepared._calls.soon(prepared._release)


def _firing_number(firing: Any) -> int:
    try:
        made = operator.index(firing)
    except TypeError:
        made = -1
    if not 0 <= made < 1 << 64:
        raise invalid(f"a firing is its number, from 1, not {firing!r}", "firing")
    return made


def _of_batch(error: FerryError, handle: int, keys: Sequence[bytes]) -> FerryError:
    """Of a prepared batch, which ends as a whole: with the ids and keys of all its transfers."""
    first = int(_abi.library().ferry_prepared_first_id(handle))
    error.transfer_ids, error.keys = tuple(first + i for i in range(len(keys))), tuple(keys)
    return error
