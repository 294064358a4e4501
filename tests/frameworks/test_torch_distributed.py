# SPDX-License-Identifier: Apache-2.0
"""ferry.torch with a current PyTorch, on the CPU: DTensors of process groups of Gloo, each with a mesh of its own, and workers
of PyTorch's DataLoader. Tensors themselves: tests/python/test_torch.py, which the same stage runs."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.utils.data import DataLoader, Dataset

import ferry
import ferry.torch

SHAPE = (5, 6)


def whole():
    return torch.arange(30, dtype=torch.float32).reshape(SHAPE)


def group(meeting, rank, size):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)


def needed():
    """What the engines have: a grid, of which the trainers know the layout alone."""
    return ferry.torch.Layout(SHAPE, [[0, 1], [2, 3]], [Shard(0), Shard(1)])


def trainer(rank, meeting, size):
    group(meeting, rank, size)
    tensor = distribute_tensor(whole(), init_device_mesh("cpu", (size,)), [Shard(0)])
    assert ferry.torch.Layout.of(tensor) == ferry.torch.Layout(SHAPE, range(size), [0])
    with ferry.Session() as session:
        try:
            session.send(tensor, to="host1", key="whole")
        except ferry.InvalidArgumentError as error:
            assert "send_shards" in str(error), error
        ferry.torch.send_shards(session, tensor, to=needed(), devices=["host1"] * 4, key="weights").result(60)
        try:
            ferry.torch.Layout.of(DTensor.from_local(tensor.to_local(), tensor.device_mesh, [Partial()]))
        except ferry.InvalidArgumentError as error:
            assert "redistribute" in str(error), error
        else:
            raise AssertionError("Partial was taken")
    torch.distributed.destroy_process_group()


def engine(rank, meeting, size):
    group(meeting, rank, size)
    mesh = init_device_mesh("cpu", (2, 2))
    with ferry.Session() as session:
        local = torch.from_dlpack(session.empty(needed().region(rank).size, device="host1"))
        tensor = DTensor.from_local(
            local, mesh, [Shard(0), Shard(1)], run_check=False, shape=torch.Size(SHAPE), stride=whole().stride()
        )
        assert ferry.torch.Layout.of(tensor) == needed()
        have = ferry.torch.Layout(SHAPE, [0, 1, 2], [0])
        ferry.torch.recv_shards(session, tensor, frm=have, devices=["host0"] * 3, key="weights").result(60)
        assert torch.equal(tensor.full_tensor(), whole())
        assert torch.equal(tensor.redistribute(mesh, [Replicate(), Replicate()]).to_local(), whole())
    torch.distributed.destroy_process_group()


def test_a_dtensor_of_three_trainers_becomes_one_of_four_engines(node, tmp_path):
    """Rows of 2, 2 and 1 to a grid, in seven processes, of which neither group knows the other."""
    contexts = [
        torch.multiprocessing.spawn(function, (str(tmp_path / function.__name__), size), nprocs=size, join=False)
        for function, size in ((trainer, 3), (engine, 4))
    ]
    try:
        for context in contexts:
            while not context.join():
                pass
    finally:  # of one that failed the other group would wait
        for process in (process for context in contexts for process in context.processes):
            process.kill()


class Sends(Dataset):
    """Each item comes by Ferry, from the worker's own session."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        with ferry.Session() as session:
            sent = session.send(torch.full((3,), float(index)), to="host1", key=f"item-{os.getpid()}-{index}")
            got = session.recv(shape=3, frm="host0", key=f"item-{os.getpid()}-{index}", device="host1").result(60)
            sent.result(60)
            return torch.from_dlpack(got).clone()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_loader_that_are_started_anew_use_it(node, method):
    with node.session():
        loader = DataLoader(Sends(), batch_size=2, num_workers=1, multiprocessing_context=method)
        assert [one.tolist() for one in loader] == [[[0.0] * 3, [1.0] * 3]]


def test_forked_workers_of_a_loader_are_told_what_to_do(node):
    with node.session(), pytest.raises(ferry.ForkedError, match="DataLoader"):
        next(iter(DataLoader(Sends(), num_workers=1, multiprocessing_context="fork")))


@pytest.mark.parametrize("order", ["import ferry, torch", "import torch, ferry"])
def test_the_interpreter_ends_silently_with_transfers_in_flight(node, order):
    """Whichever was imported first, and whoever still has which tensor."""
    program = f"""
{order}
session = ferry.Session()
seen = torch.from_dlpack(session.empty((1024, 1024), device="host1"))
sent = session.send({{"a": torch.ones(1 << 18), "b": seen}}, to="host0", key="in flight {os.getpid()}")
got = session.recv(like=torch.ones(1 << 20), frm="host0", key="never")
got.add_done_callback(lambda future: None)
model = torch.nn.Linear(2, 2)
model.seen = seen
print(torch.from_dlpack(session.empty(4)) + 1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "tensor([1., 1., 1., 1.])\n", "")
