# SPDX-License-Identifier: Apache-2.0
"""10,000 scattered blocks of 4 KiB by index table, from one process's host memory to another's, beside NIXL in its best form:
the whole memory is one strided list at each end, prepared once, and a request of these is posted again and again.

Each end has its blocks in an order of its own, and what came is compared. Ferry's ends are sessions of one daemon: posted as
`ferry.Blocks`, and prepared. NIXL's are agents with the backend UCX; where NIXL is not installed Ferry is measured alone. They
take turns; medians of what the sending process waits for, and the quickest. Exit status 8 if posted blocks are less than ten
times as quick as NIXL's.

    python3 -m venv nixl && nixl/bin/pip install --no-deps nixl-cu13==1.5.1 numpy    # for this bench alone
    PYTHONPATH=python FERRY_LIBRARY=build/release/lib/libferry.so FERRY_DAEMON=build/release/bin/ferryd \\
      nixl/bin/python bench/python/scattered_blocks.py [--rounds 41]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy

import ferry

BLOCKS, BYTES, OF = 10_000, 4096, 20_000  # that many are moved, of that size, of that many


def order(seed: int) -> Any:
    return numpy.random.default_rng(seed).permutation(OF)[:BLOCKS].astype("u8")


def contents() -> Any:
    return numpy.random.default_rng(7).integers(0, 256, (OF, BYTES), "u1")


HERE, THERE = order(1), order(2)


class Agent:
    """Of NIXL, with the memory of this end."""

    def __init__(self, name: str, memory: Any) -> None:
        try:
            from nixl_cu13 import nixl_agent, nixl_agent_config
        except ImportError:
            from nixl import nixl_agent, nixl_agent_config
        self.agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
        self.memory, self.address = memory, memory.ctypes.data
        self.kept = self.agent.register_memory([(self.address, memory.nbytes, 0, "")], mem_type="DRAM")

    def whole(self, agent: str, address: int) -> Any:
        """All blocks of an end, in one strided descriptor."""
        strided = numpy.array([[address, BYTES, 0, BYTES, OF]], "u8")
        return self.agent.prep_xfer_dlist(agent, strided, mem_type="DRAM")


def has_nixl() -> bool:
    import importlib.util

    return any(importlib.util.find_spec(name) for name in ("nixl_cu13", "nixl"))


def receiver(directory: str, nixl: bool, asked: Connection) -> None:
    due = contents()[HERE]
    with ferry.Session(directory) as session:
        memory = session.empty((OF, BYTES), "uint8", device="host1")
        mine = memory.numpy()
        agent = Agent("receiver", numpy.zeros((OF, BYTES), "u1")) if nixl else None
        asked.send((agent.agent.get_agent_metadata(), agent.address) if agent else None)
        pair = session.prepare_recv(into=ferry.Blocks(memory, THERE), frm="host0", key="prepared")
        for call, step in iter(asked.recv, None):
            if call == "posted":
                session.recv(into=ferry.Blocks(memory, THERE), frm="host0", key=step).result(60)
            elif call == "prepared":
                pair.fire()
                pair.wait(timeout=60)
            elif call == "clear":
                for one in (mine, agent.memory) if agent else (mine,):
                    one[:] = 0
            elif call == "check":
                there = agent.memory if agent and step == "nixl" else mine
                assert (there[THERE] == due).all(), f"{step}: other bytes came"
            asked.send("over")
        pair.release()
    os._exit(0)  # NIXL 1.5.1 ends with a signal at the interpreter's end


class Sender:
    def __init__(self, directory: str, ask: Connection) -> None:
        self.ask, self.session, self.step = ask, ferry.Session(directory), 0
        self.memory = self.session.empty((OF, BYTES), "uint8", device="host0")
        self.memory.numpy()[:] = contents()
        self.ways: dict[str, Callable[[], None]] = {"posted": self.posted, "prepared": self.prepared}
        self.pair = self.session.prepare_send(ferry.Blocks(self.memory, HERE), to="host1", key="prepared")
        there = ask.recv()
        if there is not None:
            self.ways["nixl"] = self.nixl(*there)

    def asked(self, call: str, step: Any = 0) -> None:
        self.ask.send((call, step))

    def posted(self) -> None:
        self.step += 1
        self.asked("posted", self.step)
        self.session.send(ferry.Blocks(self.memory, HERE), to="host1", key=self.step).result(60)

    def prepared(self) -> None:
        self.asked("prepared")
        self.pair.fire()
        self.pair.wait(timeout=60)

    def nixl(self, metadata: bytes, address: int) -> Callable[[], None]:
        self.agent = Agent("sender", contents())
        peer = self.agent.agent.add_remote_agent(metadata)
        here, there = (indices.astype("i4") for indices in (HERE, THERE))
        lists = (self.agent.whole("", self.agent.address), here, self.agent.whole(peer, address), there)
        request = self.agent.agent.make_prepped_xfer("WRITE", *lists)

        def move() -> None:
            state = self.agent.agent.transfer(request)
            while state == "PROC":
                state = self.agent.agent.check_xfer_state(request)
            assert state == "DONE", state

        return move

    def once(self, way: str) -> float:
        begin = time.perf_counter()
        self.ways[way]()
        took = time.perf_counter() - begin
        if way != "nixl":
            self.ask.recv()
        return took

    def checked(self, way: str) -> None:
        for call in ("clear", "", "check"):
            if call:
                self.asked(call, way)
                self.ask.recv()
            else:
                self.once(way)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=41)
    given = parser.parse_args()
    nixl = has_nixl()
    with ferry.local_node() as node:
        directory = node.environment["FERRY_CLIENT_DIR"]
        context = multiprocessing.get_context("spawn")
        ask, asked = context.Pipe()
        other = context.Process(target=receiver, args=(directory, nixl, asked), daemon=True)
        other.start()
        sender = Sender(directory, ask)
        for way in sender.ways:
            sender.checked(way)
        times: dict[str, list[float]] = {way: [] for way in sender.ways}
        for _ in range(given.rounds):
            for way, taken in times.items():
                taken.append(sender.once(way))
        ask.send(None)
        other.join()
    beside = statistics.median(times["nixl"]) if nixl else 0.0
    print(f"{BLOCKS} scattered blocks of {BYTES} bytes, {os.cpu_count()} cores")
    for way, taken in times.items():
        half = statistics.median(taken)
        ratio = f"  {beside / half:6.2f} x NIXL" if nixl and way != "nixl" else ""
        print(
            f"{way:<9} {half * 1e3:8.2f} ms (quickest {min(taken) * 1e3:7.2f})  {BLOCKS * BYTES / 1e9 / half:6.2f} GB/s{ratio}"
        )
    sys.stdout.flush()
    os._exit(8 if beside and beside < 10 * statistics.median(times["posted"]) else 0)  # as above


if __name__ == "__main__":
    main()
