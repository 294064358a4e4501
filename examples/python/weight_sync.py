# SPDX-License-Identifier: Apache-2.0
"""RL weight sync: trainers that have rows of each weight, engines that have columns, and no rank that gathers anything.

Each pair of a trainer and an engine moves only what the one has and the other needs: a block of the matrix, straight from
where it lies to where it belongs. Both ends prepare that once, and then each step is one `fire`.

    python examples/python/weight_sync.py [--steps 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy

import ferry

TRAINERS, ENGINES = 2, 3
SHAPES = {"embed": (1024, 96), "up": (256, 384), "down": (384, 96)}


def value(name: str, step: int) -> Any:
    rows, columns = SHAPES[name]
    return numpy.arange(rows * columns, dtype="f4").reshape(rows, columns) + 1e6 * step


def part(size: int, rank: int, ranks: int) -> slice:
    return slice(size * rank // ranks, size * (rank + 1) // ranks)


def trainer(rank: int, steps: int, end: Barrier) -> None:
    with ferry.Session(name=f"trainer-{rank}") as session:
        # What the optimizer writes to. A slice of its rows is sent from where it is.
        shard = {name: session.empty((rows // TRAINERS, columns)).numpy() for name, (rows, columns) in SHAPES.items()}
        pieces = {
            f"{name}/{rank}-{engine}": mine[:, part(mine.shape[1], engine, ENGINES)]
            for name, mine in shard.items()
            for engine in range(ENGINES)
        }
        with session.prepare_send(pieces, to="host1", key="weights", deadline=30) as weights:
            for step in range(steps):
                for name, mine in shard.items():
                    mine[:] = value(name, step)[part(SHAPES[name][0], rank, TRAINERS)]
                weights.fire()
                weights.wait()  # the engines have it: the next step may overwrite it
            end.wait(60)


def engine(rank: int, steps: int, end: Barrier) -> None:
    with ferry.Session(name=f"engine-{rank}") as session:
        shard = {}
        for name, (rows, columns) in SHAPES.items():
            mine = part(columns, rank, ENGINES)
            shard[name] = session.empty((rows, mine.stop - mine.start), device="host1").numpy()
        pieces = {
            f"{name}/{frm}-{rank}": mine[part(len(mine), frm, TRAINERS)]
            for name, mine in shard.items()
            for frm in range(TRAINERS)
        }
        with session.prepare_recv(into=pieces, frm="host0", key="weights", deadline=30) as weights:
            for step in range(steps):
                weights.fire()
                weights.wait()
                for name, mine in shard.items():
                    assert (mine == value(name, step)[:, part(SHAPES[name][1], rank, ENGINES)]).all()
            end.wait(60)  # all have done their steps: nobody ends while others still need its end
    # In one piece: others write too.
    sys.stdout.write(f"engine {rank}: {steps} steps, {sum(mine.nbytes for mine in shard.values())} bytes each\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3)
    steps = parser.parse_args().steps
    spawn = multiprocessing.get_context("spawn")  # a child of fork could not open a session
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        end = spawn.Barrier(TRAINERS + ENGINES)
        ranks = [spawn.Process(target=trainer, args=(rank, steps, end)) for rank in range(TRAINERS)]
        ranks += [spawn.Process(target=engine, args=(rank, steps, end)) for rank in range(ENGINES)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
    return max(abs(rank.exitcode or 0) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
