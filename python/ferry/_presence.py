# SPDX-License-Identifier: Apache-2.0
"""Who takes an offer of a source, and lives: at the source what became of each, and the taker's own end of it."""

from __future__ import annotations

import threading
import time
from typing import Optional

from ferry._request import DEADLINE, Address, Request
from ferry.errors import FerryError


class Taken:
    """How the takers of an offer have fared; `changed`, which is the source's, is notified."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.arrived: set[str] = set()
        self.failed: dict[str, FerryError] = {}

    def ended(self, who: str, error: Optional[FerryError]) -> None:
        with self.changed:
            if error is None:
                self.arrived.add(who)
                self.failed.pop(who, None)
            elif who not in self.arrived:
                self.failed[who] = error
            self.changed.notify_all()


class Presence:
    """Lets a source know that a taker of an offer lives: it is failed unless `done` is called before it goes away. Once it is
    made the source knows of it."""

    def __init__(self, address: Address, name: str, who: str, deadline: float = DEADLINE) -> None:
        end = time.monotonic() + deadline
        said = {"who": who, "key": name, "to": [], "parts": [], "deadline": deadline}
        self._request = Request(address, name, said, deadline)
        try:
            self._request.answer(end)
        except BaseException:
            self.close()
            raise

    def done(self) -> None:
        self._request.done()

    def close(self) -> None:
        """Twice is once."""
        self._request.close()

    def __enter__(self) -> Presence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
