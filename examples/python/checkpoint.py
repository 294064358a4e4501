# SPDX-License-Identifier: Apache-2.0
"""A checkpoint to N readers: one process has the state dict, the others start without it and get it by key.

The writer's memory is there once, whoever reads it; a reader that dies is an error of its own transfers, and the others go on.

    python examples/python/checkpoint.py [--readers 3] [--megabytes 64]
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys

import ferry

TENSORS = 32


def names() -> list[str]:
    return [f"model.layers.{i}.mlp.weight" for i in range(TENSORS)]


async def write(readers: int, floats: int, version: str) -> None:
    with ferry.Session(name="writer") as session:
        state = session.empty_like({name: memoryview(bytes(4 * floats)).cast("f") for name in names()})
        for i, tensor in enumerate(state.values()):
            tensor.memory[:] = bytes([i]) * tensor.nbytes
        sends = [session.send(state, to="host1", key=f"{version}/{reader}", deadline=30) for reader in range(readers)]
        ends = await asyncio.gather(*sends, return_exceptions=True)
    for reader, end in enumerate(ends):
        if isinstance(end, ferry.FerryError):
            # In one piece: others write too.
            sys.stdout.write(f"reader {reader} has not got it: {end}\n")


def read(reader: int, floats: int, version: str) -> None:
    with ferry.Session(name=f"reader-{reader}") as session:
        like = session.empty_like({name: memoryview(bytes(4 * floats)).cast("f") for name in names()}, device="host1")
        state = session.recv(into=like, frm="host0", key=f"{version}/{reader}", deadline=30).result()
        assert all(bytes(tensor.memory) == bytes([i]) * tensor.nbytes for i, tensor in enumerate(state.values()))
        # In one piece: others write too.
        sys.stdout.write(f"reader {reader} has {version}: {sum(tensor.nbytes for tensor in state.values())} bytes\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--readers", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64)
    given = parser.parse_args()
    floats, version = given.megabytes * 1_000_000 // TENSORS // 4, "checkpoint-1200"
    spawn = multiprocessing.get_context("spawn")
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        readers = [spawn.Process(target=read, args=(reader, floats, version)) for reader in range(given.readers)]
        for reader in readers:
            reader.start()
        asyncio.run(write(given.readers, floats, version))
        for reader in readers:
            reader.join()
    return max(abs(reader.exitcode or 0) for reader in readers)


if __name__ == "__main__":
    sys.exit(main())
