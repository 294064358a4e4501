# SPDX-License-Identifier: Apache-2.0
"""What vllm_transfer.py and verl_transfer.py have in common: weights that tell their step, a daemon, and workers, which are
asked by pipes what their framework asks by Ray or HTTP."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

import ferry

SHAPES = {"embed": (512, 96), "up": (256, 384), "down": (384, 96), "gate": (96, 384)}
spawn = multiprocessing.get_context("spawn")  # a child of fork could not open a session


def value(name: str, step: int) -> Any:
    rows, columns = SHAPES[name]
    return torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) + 1000 * step


def device_of(cuda: bool, place: int) -> Any:
    """The GPU of the process at a place, if it is to have one."""
    if not cuda:
        return torch.device("cpu")
    torch.cuda.set_device(place % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def serve(kind: Any, place: int, cuda: bool, pipe: Connection) -> None:
    """In a worker's process: makes a `kind`, says so, and calls of it what it is asked, until there is no more."""
    one = kind(place, device_of(cuda, place))
    pipe.send(None)
    for call, given in iter(pipe.recv, None):
        try:
            said = getattr(one, call)(*given)
        except Exception as error:
            said = error
        pipe.send(said)
    one.close()


class Workers:
    """`count` processes of a kind, at places from `first` on."""

    def __init__(self, kind: Any, first: int, count: int, cuda: bool) -> None:
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        for i in range(count):
            mine, theirs = spawn.Pipe()
            self.pipes.append(mine)
            self.processes.append(spawn.Process(target=serve, args=(kind, first + i, cuda, theirs), daemon=True))
            self.processes[-1].start()
            theirs.close()  # so that the end of the process is an end of the pipe
        self.answers()  # all have imported their framework, which may take longer than the deadline of a call

    def ask(self, call: str, each: Sequence[tuple[Any, ...]]) -> None:
        for pipe, given in zip(self.pipes, each, strict=True):
            pipe.send((call, given))

    def answers(self) -> list[Any]:
        said = [pipe.recv() for pipe in self.pipes]
        for one in said:
            if isinstance(one, Exception):
                raise one
        return said

    def all(self, call: str, *given: Any) -> list[Any]:
        self.ask(call, [given] * len(self.pipes))
        return self.answers()

    def end(self) -> int:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()
        return int(max(abs(process.exitcode) for process in self.processes))


def main(what: str, run: Callable[[bool], int]) -> int:
    """`run`, told whether weights are on GPUs: with a daemon of its own if they are not."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--cuda", action="store_true", help="weights on GPUs; the daemon is that of $FERRY_CLIENT_DIR")
    if parser.parse_args().cuda:
        return run(True)
    with ferry.local_node() as node:
        os.environ.update(node.environment)
        return run(False)
