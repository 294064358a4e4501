# SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each status code of Ferry (docs/errors.md), a few for reasons that programs branch on.

Each has the status as attributes, is the Python exception of the same meaning too (TimeoutError, ConnectionError,
ValueError, PermissionError, LookupError), and survives pickling.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Optional

from ferry import _abi


class FerryError(Exception):
    """A status of Ferry.

    code: gRPC's name of it, such as ``"DEADLINE_EXCEEDED"``.
    reason: of the closed list of docs/errors.md, ``""`` if there is none.
    message: for people.
    violations: (field, text) of each argument that is wrong.
    retry_after: seconds after which the same call is worth another try; None if waiting alone does not help.
    transfer_ids, keys: of the transfers that failed, as far as they are known.
    """

    code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        reason: str = "",
        violations: tuple[tuple[str, str], ...] = (),
        retry_after: Optional[float] = None,
        transfer_ids: tuple[int, ...] = (),
        keys: tuple[bytes, ...] = (),
    ) -> None:
        super().__init__(f"{self.code}{' ' + reason if reason else ''}: {message}")
        self.message = message
        self.reason = reason
        self.violations = violations
        self.retry_after = retry_after
        self.transfer_ids = transfer_ids
        self.keys = keys

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self),
            (self.message, self.reason, self.violations, self.retry_after, self.transfer_ids, self.keys),
        )

    def again(self) -> FerryError:
        """The same, without a traceback: to be raised in place of one that is kept. Raises nothing."""
        kind, arguments = self.__reduce__()
        made: FerryError = kind(*arguments)
        return made


class CancelledError(FerryError):
    """One end cancelled before the launch, or released a prepared batch."""

    code = "CANCELLED"


class InvalidArgumentError(FerryError, ValueError):
    """An argument is wrong: `violations` says which, and why."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(FerryError, TimeoutError):
    """The deadline came first. Reason ``WAITING_FOR_PEER``: the other half was not posted, and the text says what
    waits in its place. Such a transfer is over, unlike one of a WaitTimeoutError."""

    code = "DEADLINE_EXCEEDED"


class WaitTimeoutError(DeadlineExceededError):
    """The timeout of a wait passed. What is waited for goes on: wait again, or cancel it."""


class NotFoundError(FerryError, LookupError):
    """There is no such device, arena, transfer or batch."""

    code = "NOT_FOUND"


class AlreadyExistsError(FerryError):
    """A key or a request id is in use."""

    code = "ALREADY_EXISTS"


class KeyInUseError(AlreadyExistsError):
    """A second half on the same side of a key that still waits for its first."""


class NotAllowedError(FerryError, PermissionError):
    """Policy, or the mode of a socket, refuses."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(FerryError):
    """A quota, a queue or memory is full; `retry_after` if waiting helps."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(FerryError):
    """What is there does not fit the call."""

    code = "FAILED_PRECONDITION"


class MismatchError(FailedPreconditionError):
    """Both halves met and differ in bytes, type or shape. No byte was moved; the text has both values."""


class ForkedError(FailedPreconditionError):
    """A session of before a fork was used in the child."""


class AbortedError(FerryError):
    """It failed while it was under way; bytes of the destination are unspecified."""

    code = "ABORTED"


class PeerClientGoneError(AbortedError):
    """The process at the other end, or its session, ended."""


class PoisonedError(AbortedError):
    """The data will never be defined, or never taken; the text has the other end's reason."""


class OutOfRangeError(FerryError):
    """What was asked for is no longer kept."""

    code = "OUT_OF_RANGE"


class UnimplementedError(FerryError, NotImplementedError):
    """This daemon, device or package cannot do that."""

    code = "UNIMPLEMENTED"


class InternalError(FerryError):
    """A bug of Ferry, or an error of the system that it did not expect."""

    code = "INTERNAL"


class UnavailableError(FerryError, ConnectionError):
    """There is no daemon at the socket, or it, or its peer, cannot be reached now."""

    code = "UNAVAILABLE"


class DaemonLostError(UnavailableError):
    """The daemon went away, and all that was outstanding ended; the session attaches again by itself
    (`Session.wait_daemon`)."""


class UnauthenticatedError(FerryError):
    """The session is not known to the daemon."""

    code = "UNAUTHENTICATED"


_BY_CODE: dict[int, type[FerryError]] = {
    1: CancelledError,
    3: InvalidArgumentError,
    4: DeadlineExceededError,
    5: NotFoundError,
    6: AlreadyExistsError,
    7: NotAllowedError,
    8: ResourceExhaustedError,
    9: FailedPreconditionError,
    10: AbortedError,
    11: OutOfRangeError,
    12: UnimplementedError,
    13: InternalError,
    14: UnavailableError,
    16: UnauthenticatedError,
}
_BY_REASON: dict[str, type[FerryError]] = {
    "KEY_IN_USE": KeyInUseError,
    "TRANSFER_MISMATCH": MismatchError,
    "FORKED": ForkedError,
    "PEER_CLIENT_GONE": PeerClientGoneError,
    "POISONED": PoisonedError,
    "DAEMON_LOST": DaemonLostError,
}


# Of the three that a receive is told: not of routes, nor of what is prepared at one end only.
_DIFFERS = re.compile(r"the send has ([0-9]|type |shape )")


def for_python(reason: str, message: str) -> str:
    """The library's text, with what a program of this package does about it."""
    if reason == "DAEMON_LOST":
        return message.replace("ferry_session_wait", "Session.wait_daemon")
    if reason == "FORKED":
        return (
            f"{message}. In Python: start workers by multiprocessing.get_context('spawn') or ('forkserver'), or "
            "DataLoader(multiprocessing_context='spawn')"
        )
    if reason == "WAITING_FOR_PEER" and "in another domain" in message:
        return f"{message}; both sessions need the same domain= or $FERRY_DOMAIN_FILE, or the same user without either"
    if reason == "TRANSFER_MISMATCH" and _DIFFERS.search(message):
        return f"{message}; give recv the sender's dtype= and shape=, or like= a tensor such as the sender's"
    return message


def forked(what: str) -> ForkedError:
    """Of a child of fork that uses what is of before it, such as a session."""
    return ForkedError(
        for_python("FORKED", f"the {what} is of the process that forked this one, which alone can use it"), "FORKED"
    )


def of_this_end(error: FerryError, dtype: str, shape: tuple[int, ...]) -> FerryError:
    """Of a mismatch, also what this end has: where the bytes differ too, the library's text is of these alone."""
    if error.reason != "TRANSFER_MISMATCH" or not _DIFFERS.search(error.message):
        return error
    kind, (message, *rest) = error.__reduce__()
    made: FerryError = kind(f"{message}. This end has {dtype} of shape {shape}", *rest)
    return made


def take(status: Any, ids: tuple[int, ...] = (), keys: tuple[bytes, ...] = ()) -> Optional[FerryError]:
    """The exception of a ferry_status, which is freed; None for NULL."""
    if not status:
        return None
    lib = _abi.library()
    code = lib.ferry_status_code(status)
    reason = lib.ferry_status_reason(status).decode()
    message = for_python(reason, lib.ferry_status_message(status).decode(errors="replace"))
    violations = tuple(
        (
            lib.ferry_status_violation_field(status, i).decode(errors="replace"),
            lib.ferry_status_violation_text(status, i).decode(errors="replace"),
        )
        for i in range(lib.ferry_status_violations(status))
    )
    retry = lib.ferry_status_retry_after_ns(status)
    lib.ferry_status_free(status)
    kind = _BY_CODE.get(code, InternalError)
    special = _BY_REASON.get(reason)
    if special is not None and issubclass(special, kind):
        kind = special
    return kind(message, reason, violations, retry / 1e9 if retry else None, ids, keys)


_TRANSFER = re.compile(r"\b(?:sends|receives)\[(\d+)\]")


def refused(error: FerryError, keys: Sequence[bytes]) -> FerryError:
    """Of a post, which is all or nothing: with the keys of the transfers that it is about, where it says so, else of all."""
    named = {int(place) for field, _ in error.violations for place in _TRANSFER.findall(field)}
    named |= {int(place) for place in _TRANSFER.findall(error.message)}
    error.keys = tuple(keys[i] for i in sorted(named) if i < len(keys)) or tuple(keys[i] for i in range(len(keys)))
    return error


def check(status: Any) -> None:
    """Raises what a ferry_status says, which is freed; nothing for NULL."""
    error = take(status)
    if error is not None:
        raise error


def not_allowed(error: NotAllowedError) -> NotAllowedError:
    """Of a daemon's socket: who this is, and which settings let others in."""
    said = (
        f"{error.message}. This process is user {os.geteuid()} of groups {sorted({os.getegid(), *os.getgroups()})}; who may "
        "attach, the daemon's sockets.client.mode and sockets.client.group say, and each directory above the sockets must "
        "let this user through (`ls -ld` of them): join that group, or have the daemon's operator change the settings"
    )
    return NotAllowedError(said, error.reason, error.violations, error.retry_after)


def invalid(message: str, field: str) -> InvalidArgumentError:
    """A mistake that this package sees itself, in the form of the library's."""
    return InvalidArgumentError(message, "FIELD_INVALID", ((field, message),))
