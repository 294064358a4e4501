# SPDX-License-Identifier: Apache-2.0
"""Placements of torch.distributed.tensor as ranges: arithmetic, and what moves between two layouts. DTensors themselves:
tests/gpu/torch_tensors.py and tests/frameworks."""

import itertools
import types

import numpy
import pytest

import ferry
import ferry.torch
from ferry.torch import Layout, recv_shards, send_shards


class Placement:
    """As torch's: Shard(dim), Replicate(), Partial()."""

    def __init__(self, kind, dim=None):
        self.kind = kind
        if dim is not None:
            self.dim = dim

    def is_replicate(self):
        return self.kind == "R"

    def is_partial(self):
        return self.kind == "P"


def test_a_dimension_is_cut_as_torch_chunk_does():
    layout = Layout((10, 4), [0, 1, 2, 3], [0])
    assert [layout.region(rank) for rank in range(4)] == [
        ((0, 0), (3, 4)),
        ((3, 0), (3, 4)),
        ((6, 0), (3, 4)),
        ((9, 0), (1, 4)),
    ]
    layout = Layout((5,), [3, 1, 0, 2], [Placement("S", -1)])  # more ranks than thirds: the last has nothing
    assert [layout.region(rank) for rank in (3, 1, 0, 2)] == [((0,), (2,)), ((2,), (2,)), ((4,), (1,)), ((5,), (0,))]


def test_a_mesh_of_two_dimensions():
    mesh = [[0, 1, 2], [3, 4, 5]]
    assert Layout((4, 9), mesh, [0, 1]).region(5) == ((2, 6), (2, 3))
    assert Layout((4, 9), mesh, [Placement("R"), 1]).region(4) == ((0, 3), (4, 3))
    # One dimension cut twice: first by the mesh's first dimension.
    assert [Layout((12,), mesh, [0, 0]).region(rank).offset[0] for rank in range(6)] == [0, 2, 4, 6, 8, 10]
    device_mesh = types.SimpleNamespace(mesh=numpy.array(mesh))
    for other in (device_mesh, numpy.array(mesh), [range(3), range(3, 6)]):
        assert Layout((4, 9), other, [0, 1]) == Layout((4, 9), mesh, [0, 1])
    assert Layout((4, 9), mesh, [0, None]) == Layout((4, 9), mesh, [Placement("S", 0), Placement("R")])


@pytest.mark.parametrize(
    ("shape", "mesh", "placements", "said"),
    [
        ((4,), [0, 1], [Placement("P")], "redistribute"),
        ((4,), [0, 1], [1], "no dimension 1"),
        ((4,), [0, 1], [0, 0], "2 placements"),
        ((4,), [[0, 1], [2]], [0, 0], "nested lists"),
        ((4,), [0, 0], [0], "twice"),
        ((4,), "01", [0], "nested lists of ranks, not '01'"),
        ((4,), [0, 1.5], [0], "nested lists of ranks, not 1.5"),
    ],
)
def test_what_is_no_layout(shape, mesh, placements, said):
    with pytest.raises(ferry.InvalidArgumentError, match=said):
        Layout(shape, mesh, placements)
    with pytest.raises(ferry.InvalidArgumentError, match="not in the mesh"):
        Layout((4,), [0, 1], [0]).region(2)


MESHES = [([0, 1, 2], 1), ([[0, 1], [2, 3]], 2), ([7], 1)]


def layouts(shape):
    for mesh, dimensions in MESHES:
        for placements in itertools.product([None, *range(len(shape))], repeat=dimensions):
            yield Layout(shape, mesh, placements)


@pytest.mark.parametrize("shape", [(7,), (5, 6), (2, 3, 4)])
def test_every_element_comes_to_who_needs_it_once(shape):
    whole = numpy.arange(numpy.prod(shape)).reshape(shape)

    def part(region):
        return whole[tuple(slice(begin, begin + size) for begin, size in zip(*region, strict=True))]

    for have, need in itertools.product(layouts(shape), repeat=2):
        came = {rank: [] for rank in need.ranks}
        for source, needs, region in have.pieces(need):
            assert set(part(region).flat) <= set(part(have.region(source)).flat)
            came[needs] += list(part(region).flat)
        for rank, elements in came.items():
            assert sorted(elements) == sorted(part(need.region(rank)).flat), (vars(have), vars(need))


def test_replicas_share_the_work():
    have, need = Layout((8,), [0, 1], [None]), Layout((8,), [0, 1, 2, 3], [0])
    assert [(source, needs) for source, needs, _ in have.pieces(need)] == [(0, 0), (1, 1), (0, 2), (1, 3)]
    with pytest.raises(ferry.InvalidArgumentError, match="cannot become"):
        list(have.pieces(Layout((9,), [0], [0])))


@pytest.mark.parametrize("shared", ["a tensor", "an array of it", ""])
def test_from_rows_of_three_to_a_grid_of_four(a, b, key, shared):
    """Three senders at node a, four receivers at node b; parts of one stride, and such as are ranges."""
    shape = (5, 6, 4)
    whole = numpy.arange(120, dtype="int32").reshape(shape)
    have, need = Layout(shape, [0, 1, 2], [0]), Layout(shape, [[0, 1], [2, 3]], [1, 2])
    sent, got = [], []
    for rank in have.ranks:
        region = have.region(rank)
        part = whole[region.offset[0] : region.offset[0] + region.size[0]]
        if shared:
            local = a.empty(region.size, "int32")
            local.numpy()[:] = part
            local = local if shared == "a tensor" else local.numpy()
        else:
            local = part.copy()
        sent.append(send_shards(a, local, to=need, devices=[2, 2, 3, 3], key=key, layout=have, rank=rank))
    for rank in need.ranks:
        local = b.empty(need.region(rank).size, "int32", device=2 + rank // 2)
        local = local if shared == "a tensor" else local.numpy()
        got.append(recv_shards(b, local, frm=have, devices=[0, 0, 0], key=key, layout=need, rank=rank))
    for rank, future in zip(need.ranks, got, strict=True):
        region = need.region(rank)
        slices = tuple(slice(begin, begin + size) for begin, size in zip(*region, strict=True))
        assert (numpy.asarray(future.result(20)) == whole[slices]).all(), rank
    for future in sent:
        future.result(20)


def test_a_plain_tensor_needs_its_place(a, key):
    layout = Layout((4,), [0, 1], [0])
    with pytest.raises(ferry.InvalidArgumentError, match="layout="):
        send_shards(a, numpy.zeros(2), to=layout, devices=[0, 1], key=key)
    with pytest.raises(ferry.InvalidArgumentError, match=r"shape \(2,\), not \(3,\)"):
        send_shards(a, numpy.zeros(3), to=layout, devices=[0, 1], key=key, layout=layout, rank=0)


@pytest.mark.parametrize("given", [{0: 2}, [2]])
def test_a_rank_without_a_device_is_refused_before_anything_is_posted(a, key, given):
    have, need = Layout((4, 4), [0, 1], [0]), Layout((4, 4), [0, 1], [1])
    part = a.empty((2, 4)).numpy()
    for _ in range(2):
        with pytest.raises(ferry.InvalidArgumentError, match="none for rank 1") as refused:
            send_shards(a, part, to=need, devices=given, key=key, layout=have, rank=0)
        assert refused.value.violations[0][0] == "devices"
        with pytest.raises(ferry.InvalidArgumentError, match="none for rank 1"):
            recv_shards(a, part, frm=need, devices=given, key=key, layout=have, rank=0)


@pytest.mark.parametrize("end", ["send", "receive"])
def test_what_was_posted_is_cancelled_if_a_later_part_is_refused(a, b, key, end):
    """At both ends, as of every call: the other one is told at once, and waits for no deadline."""
    have, need = Layout((4, 4), [0, 1], [0]), Layout((4, 4), [0, 1], [1])
    rows, columns = a.empty((2, 4)).numpy(), b.empty((4, 2)).numpy()
    sender = {"to": need, "key": key, "layout": have, "rank": 0}
    taker = {"frm": have, "key": key, "layout": need, "rank": 0}
    if end == "send":
        with pytest.raises(ferry.NotFoundError):
            send_shards(a, rows, devices={0: 2, 1: "node-b/nothing"}, **sender)
        future = recv_shards(b, columns, devices=[0, 0], **taker)
    else:
        with pytest.raises(ferry.NotFoundError):
            recv_shards(b, columns, devices={0: 0, 1: "node-a/nothing"}, **taker)
        future = send_shards(a, rows, devices=[2, 2], **sender)
    try:
        assert isinstance(future._posts[0].wait(20, 20), ferry.CancelledError)
    finally:
        future.cancel()


def test_a_dtensor_by_itself_is_refused(a, key):
    class DTensor:
        device_mesh, placements = object(), ()

    with pytest.raises(ferry.InvalidArgumentError, match="send_shards"):
        a.send(DTensor(), to=2, key=key)
