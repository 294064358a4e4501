# SPDX-License-Identifier: Apache-2.0
"""A state dict of 300 tensors, 1 GB, from one node to another, against `ferryctl bench many-small` for the same bytes.

Both nodes are on this machine (examples/two-nodes), each end is a process of its own, with the tensors as rows of one that
`Session.empty` has made: nothing is copied. The two are measured in turn; medians. Exit status 8 if the ratio is below 0.95.

    python bench/python/state_dict.py --ferryctl build/release/bin/ferryctl [--rounds 7]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import ferry
from ferry.node import program

TENSORS, BYTES = 300, 1_000_000_000 // 300
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


@contextlib.contextmanager
def two_nodes() -> Iterator[list[str]]:
    """The runtime directories."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        directories = [os.path.join(folder, f"ferry-{name}") for name in "ab"]
        for name, directory in zip("ab", directories, strict=True):
            with open(os.path.join(ROOT, "examples", "two-nodes", f"node-{name}.yaml")) as file:
                text = file.read().replace(f"/tmp/ferry-{name}", directory)
            with open(directory + ".yaml", "w") as file:
                file.write(text + "devices: { host: 2, gpus: none }\n")
            with open(directory + ".log", "wb") as log:
                daemon = stack.enter_context(subprocess.Popen([program(), "--config", file.name], stdout=log, stderr=log))
            stack.callback(daemon.terminate)
        for directory in directories:
            while True:
                with contextlib.suppress(ferry.UnavailableError):
                    ferry.Session(os.path.join(directory, "client")).close()
                    break
        yield directories


def tensors(session: ferry.Session) -> dict[str, ferry.Tensor]:
    whole = session.empty((TENSORS, BYTES), "uint8")
    return {f"layer.{i}": whole[i] for i in range(TENSORS)}


def receive(directory: str, asked: Connection) -> None:
    with ferry.Session(os.path.join(directory, "client")) as session:
        into = tensors(session)
        while (step := asked.recv()) is not None:
            got = session.recv(into=into, frm=0, key=step)
            asked.send("posted")
            got.result(60)


def by_ferryctl(command: str, directories: list[str]) -> float:
    done = subprocess.run(
        [command, "--runtime-dir", directories[0], "--json", "bench", "many-small", "--peer-runtime-dir", directories[1]]
        + ["--size", str(BYTES), "--count", str(TENSORS), "--iterations", "5"],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["gb_per_second"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ferryctl", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    ours: list[float] = []
    theirs: list[float] = []
    with two_nodes() as directories, ferry.Session(os.path.join(directories[0], "client")) as session:
        ask, asked = multiprocessing.get_context("spawn").Pipe()
        receiver = multiprocessing.get_context("spawn").Process(target=receive, args=(directories[1], asked), daemon=True)
        receiver.start()
        state = tensors(session)
        for step in range(given.rounds * 5):
            ask.send(f"step-{step}")
            ask.recv()
            begin = time.perf_counter()
            session.send(state, to=2, key=f"step-{step}").result(60)
            ours.append(TENSORS * BYTES / 1e9 / (time.perf_counter() - begin))
            if step % 5 == 4:
                theirs.append(by_ferryctl(given.ferryctl, directories))
        ask.send(None)
        receiver.join()
    own, other = statistics.median(ours), statistics.median(theirs)
    print(f"state dict of {TENSORS} tensors, 1 GB: {own:.2f} GB/s; ferryctl bench: {other:.2f} GB/s; ratio {own / other:.2f}")
    return 0 if own >= 0.95 * other else 8


if __name__ == "__main__":
    sys.exit(main())
