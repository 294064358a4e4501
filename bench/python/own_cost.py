# SPDX-License-Identifier: Apache-2.0
"""What Python itself costs a transfer, over the same calls of the C ABI: posts of 1,000, and firings of prepared ones.

In time of the processor, of all threads of this process, since the main thread has another one make what may wait for the
daemon: what others do on the machine, and what it waits for the daemon, is not in it. Beside it the time by the clock, which
has the wake-ups of that thread. Each round posts and receives the same batch three ways, one after the other: by columns
(`send_many`), one object each (`send` of a dict of tensors), and straight by the C ABI with structs that were made before.
Medians of the rounds; "own" is the difference to the C ABI, divided by 1,000, and its target holds for both times. Of prepared
ones a firing of Python's beside one of the C ABI. Host devices, one daemon, both ends in this process. Exit status 8 if a
target is missed.

    python bench/python/own_cost.py [--rounds 41]     # with the wheels of tools/wheel installed
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy

import ferry
from ferry import _abi, _columns

COUNT = 1000
BYTES = 64


class Time(NamedTuple):
    """us: of the processor, of all threads of this process; by the clock."""

    cpu: float
    clock: float


def timed(call: Callable[[], Any]) -> tuple[Time, Any]:
    begin = time.process_time_ns(), time.perf_counter_ns()
    made = call()
    clock, cpu = time.perf_counter_ns(), time.process_time_ns()
    return Time((cpu - begin[0]) / 1e3, (clock - begin[1]) / 1e3), made


def medians(times: Sequence[Time]) -> Time:
    return Time(statistics.median(one.cpu for one in times), statistics.median(one.clock for one in times))


def shown(us: Time) -> str:
    return f"{us.cpu:.2f} us of the processor, {us.clock:.2f} us by the clock"


class Ends:
    """A batch from host0 to host1: 1,000 rows of a tensor."""

    def __init__(self, session: ferry.Session) -> None:
        self.session = session
        self.source = session.empty((COUNT, BYTES), "uint8")
        self.target = session.empty((COUNT, BYTES), "uint8", device="host1")
        self.keys = numpy.array([b"step/%06d" % i for i in range(COUNT)])
        self.offsets = numpy.arange(COUNT, dtype="u8") * BYTES
        self.lengths = numpy.full(COUNT, BYTES, "u8")
        self.rows = [(f"{i:06}", self.source[i], self.target[i]) for i in range(COUNT)]
        self.tree = ({name: row for name, row, _ in self.rows}, {name: row for name, _, row in self.rows})
        columns = (self.keys, self.offsets, self.lengths)
        self.made = [_columns.Columns(tensor, remote, *columns) for tensor, remote in ((self.source, 1), (self.target, 0))]
        self.calls = [next(made.calls(COUNT)).rows for made in self.made]

    def by_columns(self) -> tuple[Any, Any]:
        how = {"keys": self.keys, "offsets": self.offsets, "lengths": self.lengths}
        return self.session.recv_many(self.target, frm=0, **how), self.session.send_many(self.source, to=1, **how)

    def by_objects(self) -> tuple[Any, Any]:
        return self.session.recv(into=self.tree[1], frm=0, key="step"), self.session.send(self.tree[0], to=1, key="step")

    def by_c(self) -> list[ctypes.c_void_p]:
        lib, posted = _abi.library(), []
        for call, device, rows in ((lib.ferry_cross_host_receive, 1, 1), (lib.ferry_cross_host_send, 0, 0)):
            handle = ctypes.c_void_p()
            status = call(self.session.handle, device, ctypes.addressof(self.calls[rows]), COUNT, None, ctypes.byref(handle))
            assert not status
            posted.append(handle)
        return posted


TARGETS = {"columns": 2.0, "objects": 10.0, "fire": 5.0}  # us


def posts(session: ferry.Session, rounds: int) -> dict[str, float]:
    """Own us a transfer."""
    lib, ends = _abi.library(), Ends(session)
    times: dict[str, list[Time]] = {"columns": [], "objects": [], "C ABI": []}
    for _ in range(rounds):
        for name, call in (("columns", ends.by_columns), ("objects", ends.by_objects)):
            took, futures = timed(call)
            for future in futures:
                future.result(30)
            times[name].append(took)
        took, handles = timed(ends.by_c)
        for handle in handles:
            assert not lib.ferry_batch_wait(handle, 30 * 10**9)
            lib.ferry_batch_free(handle)
        times["C ABI"].append(took)
    each = {name: Time(*(us / 2 / COUNT for us in medians(some))) for name, some in times.items()}
    plain = each.pop("C ABI")
    print(f"C ABI, structs made before, a transfer: {shown(plain)}")
    own: dict[str, float] = {}
    for name, whole in each.items():
        mine = Time(whole.cpu - plain.cpu, whole.clock - plain.clock)
        own[name] = max(mine)
        print(f"by {name}, a transfer: {shown(whole)}; own: {shown(mine)}")
    return own


def firings(session: ferry.Session, rounds: int) -> float:
    """us."""
    lib = _abi.library()
    tensor, into = session.empty(BYTES, "uint8"), session.empty(BYTES, "uint8", device="host1")
    out = session.prepare_send(tensor, to="host1", key="fired")
    back = session.prepare_recv(into=into, frm="host0", key="fired")
    ours: list[Time] = []
    plain: list[Time] = []
    fired = ctypes.c_uint64()
    for _ in range(rounds * 50):
        ours.append(timed(out.fire)[0])
        back.fire()
        back.wait()
        out.wait()
        took, status = timed(lambda: lib.ferry_prepared_fire(out._handles[0], ctypes.byref(fired)))
        assert not status
        plain.append(took)
        back.fire()
        back.wait()
        out.wait()
    whole, call = medians(ours), medians(plain)
    print(f"a prepared fire: {shown(whole)}; the call by ctypes alone: {shown(call)}")
    return whole.cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    given = parser.parse_args()
    with ferry.local_node() as node, node.session() as session:
        own = {**posts(session, given.rounds), "fire": firings(session, given.rounds)}
    return 8 if any(own[name] > target for name, target in TARGETS.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
