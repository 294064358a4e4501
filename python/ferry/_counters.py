# SPDX-License-Identifier: Apache-2.0
"""Which 'over' counter a call is told by. A counter goes on in the order of posting: what waits holds up the news of all
that was posted after it with the same one. So each call has one that nothing waits at, as long as there are any.
"""

from __future__ import annotations

import threading

from ferry import _abi

MOST = 63  # 0 leaves it to the library


class Counter:
    """`last`: the value at which all that was posted with it is over. `taken`: calls that are just being made."""

    __slots__ = ("last", "number", "taken")

    def __init__(self, number: int) -> None:
        self.number, self.last, self.taken = number, 0, 0


class Counters:
    """Of a session. A counter is bound to the device of its first use; each of `devices` is left one at least."""

    def __init__(self, session: int, devices: int) -> None:
        self._session, self._devices = session, devices
        self._lock = threading.Lock()
        self._of: dict[int, list[Counter]] = {}
        self._made = 0
        self._over = _abi.library().ferry_over_value

    def take(self, device: int) -> Counter:
        """One that nothing waits at; if there is none, the one that was taken the longest ago. Give it back by `posted`
        or `refused`."""
        with self._lock:
            mine = self._of.setdefault(device, [])
            free = next((i for i, one in enumerate(mine) if not one.taken and self._value(one) >= one.last), None)
            if free is None and (not mine or MOST - self._made > self._devices - len(self._of)):
                self._made += 1
                free = len(mine)
                mine.append(Counter(self._made if self._made <= MOST else 0))
            counter = mine.pop(free or 0)
            mine.append(counter)
            counter.taken += 1
            return counter

    def _value(self, counter: Counter) -> int:
        return int(self._over(self._session, counter.number))

    def posted(self, counter: Counter, last: int) -> None:
        with self._lock:
            counter.taken -= 1
            counter.last = max(counter.last, last)

    def refused(self, counter: Counter) -> None:
        with self._lock:
            counter.taken -= 1
