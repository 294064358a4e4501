# SPDX-License-Identifier: Apache-2.0
"""What a call is told beside its tensors: the job's domain, times, priority and route, as ferry_post_options has them."""

from __future__ import annotations

import ctypes
import operator
import os
from typing import Any, Optional, Union

from ferry import _abi
from ferry.errors import invalid

DOMAIN_BYTES = 32


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
    else:
        made = domain.encode() if isinstance(domain, str) else bytes(domain)
    if len(made) > DOMAIN_BYTES:
        raise invalid(f"a domain has at most {DOMAIN_BYTES} bytes, not {len(made)}", "domain")
    return made


def seconds(given: Any, what: str, form: str) -> float:
    """A time that somebody gave as an argument, as a number; what is none is refused by the argument's name."""
    try:
        return float(given + 0)  # of text there is no sum, though it may be made a number
    except TypeError:
        raise invalid(f"a {what} is a time in {form}, not {given!r}", what) from None


def post_options(domain: bytes, deadline: Optional[float], priority: int, route: str) -> Any:
    """InvalidArgumentError for what is out of its bounds, by the argument's name. `domain` is to live as long as it."""
    if route not in _abi.ROUTES:
        raise invalid(f"no route is called {route!r}; known: {', '.join(_abi.ROUTES)}", "route")
    form = "seconds from now, at most a year"
    if deadline is not None and not 0 < seconds(deadline, "deadline", form) <= 365 * 86400:
        raise invalid(f"a deadline is a time in {form}, not {deadline}", "deadline")
    try:
        priority = operator.index(priority)
    except TypeError:
        raise invalid(f"a priority is an integer from -100 to 100, not {priority!r}", "options.priority") from None
    options = _abi.PostOptions(struct_size=ctypes.sizeof(_abi.PostOptions))
    if domain:
        options.domain = ctypes.cast(ctypes.c_char_p(domain), ctypes.c_void_p)
        options.domain_bytes = len(domain)
    options.deadline_ns = 0 if deadline is None else max(1, int(deadline * 1e9))
    options.priority, options.route = priority, _abi.ROUTES.index(route)
    return options
