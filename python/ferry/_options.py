# SPDX-License-Identifier: Apache-2.0
"""What a call is told beside its tensors: the job's domain, times, priority and route, as ferry_post_options has them."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import time
from typing import Any, Optional, Union

from ferry import _abi
from ferry.errors import invalid

DOMAIN_BYTES = 32
YEAR = 365 * 86400


def domain_of(domain: Union[str, bytes, None]) -> bytes:
    """`domain`, else what the file that $FERRY_DOMAIN_FILE names holds, without the end of its line; b"": the uid's."""
    if domain is None:
        path = os.environ.get("FERRY_DOMAIN_FILE")
        if not path:
            return b""
        try:
            with open(path, "rb") as file:
                made = file.read(4096).rstrip(b"\r\n")
        except OSError as error:
            raise invalid(f"FERRY_DOMAIN_FILE: {error}", "domain") from None
        if not made:
            raise invalid(f"FERRY_DOMAIN_FILE: {path} is empty; it holds the job's secret name", "domain")
    elif isinstance(domain, str):
        made = text(domain, "domain")
    elif isinstance(domain, (bytes, bytearray, memoryview)):
        made = bytes(domain)
    else:
        raise invalid(f"a domain is text or bytes, not {domain!r}", "domain")
    if not made:
        raise invalid("the domain is empty; it is the job's secret name, or None for the user's own", "domain")
    if len(made) > DOMAIN_BYTES:
        raise invalid(f"a domain has at most {DOMAIN_BYTES} bytes, not {len(made)}", "domain")
    return made


def text(given: Any, what: str) -> bytes:
    """Text that somebody gave as the argument `what`, as UTF-8; what is none is refused by the argument's name."""
    if not isinstance(given, str):
        raise invalid(f"{what} is text, not {given!r}", what)
    try:
        return given.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{what} {given!r} is no text that has a form in UTF-8: {error.reason}", what) from None


def c_text(given: Any, what: str) -> bytes:
    """The same, for what the library reads to the first NUL."""
    made = text(given, what)
    if b"\0" in made:
        raise invalid(f"{what} {given!r} has a NUL character", what)
    return made


def seconds(given: Any, what: str, form: str) -> float:
    """A time that somebody gave as an argument, as a number, which may be infinite; what is none is refused by the argument's
    name."""
    try:
        made = float(given + 0)  # of text there is no sum, though it may be made a number
    except (TypeError, OverflowError):
        made = math.nan
    if math.isnan(made):
        raise invalid(f"a {what} is a time in {form}, not {given!r}", what)
    return made


def wait_timeout(given: Any) -> Optional[float]:
    """Of a wait: None and what is infinite are for ever."""
    return None if given is None else seconds(given, "timeout", "seconds")


def wait_end(given: Any) -> float:
    """When a wait of so many seconds, that begins now, ends: a time of ``time.monotonic``."""
    timeout = wait_timeout(given)
    return math.inf if timeout is None else time.monotonic() + timeout


def session_options(client_dir: Any, name: Any, timeout: Any, reattach: bool) -> Any:
    """ferry_session_options. InvalidArgumentError by the argument's name."""
    options = _abi.SessionOptions(struct_size=ctypes.sizeof(_abi.SessionOptions))
    if client_dir is not None:
        try:
            options.client_dir = os.fsencode(client_dir)
        except (TypeError, UnicodeEncodeError, ValueError):
            raise invalid(f"client_dir is a path, not {client_dir!r}", "client_dir") from None
        if not options.client_dir or b"\0" in os.fsencode(client_dir):
            raise invalid(f"client_dir {client_dir!r} is no path to the daemon's client sockets", "client_dir")
    options.name = None if name is None else c_text(name, "name")
    form = "seconds, at most a year"
    if not 0 <= seconds(timeout, "timeout", form) <= YEAR:
        raise invalid(f"a timeout is a time in {form}, not {timeout!r}", "timeout")
    options.timeout_ns = max(1, int(timeout * 1e9))
    options.no_reattach = not reattach
    return options


def post_options(domain: bytes, deadline: Optional[float], priority: int, route: str) -> Any:
    """InvalidArgumentError for what is out of its bounds, by the argument's name. `domain` is to live as long as it."""
    if route not in _abi.ROUTES:
        raise invalid(f"no route is called {route!r}; known: {', '.join(_abi.ROUTES)}", "route")
    form = "seconds from now, at most a year"
    if deadline is not None and not 0 < seconds(deadline, "deadline", form) <= YEAR:
        raise invalid(f"a deadline is a time in {form}, not {deadline}", "deadline")
    given = priority
    try:
        priority = operator.index(priority)
    except TypeError:
        priority = 101
    if not -100 <= priority <= 100:
        raise invalid(f"a priority is an integer from -100 to 100, not {given!r}", "priority")
    options = _abi.PostOptions(struct_size=ctypes.sizeof(_abi.PostOptions))
    if domain:
        options.domain = ctypes.cast(ctypes.c_char_p(domain), ctypes.c_void_p)
        options.domain_bytes = len(domain)
    options.deadline_ns = 0 if deadline is None else max(1, int(deadline * 1e9))
    options.priority, options.route = priority, _abi.ROUTES.index(route)
    return options
