# SPDX-License-Identifier: Apache-2.0
"""What must hold of each row of the tables of the pages for newcomers, in the order of the rows: see page_rows.py."""

import os
import threading

import numpy

import ferry

KEYS, OFFSETS, LENGTHS = numpy.array(["a", "b"]), numpy.array([0, 8]), numpy.array([8, 16])
READERS = ["node-b/host0", "node-b/host1"]


def nothing(row, both):
    """What is prose, names or files."""


def session(row, both):
    os.environ["FERRY_CLIENT_DIR"] = os.environ["A"]
    with row.run() as made:
        assert made.node == "node-a"


def device(row, both):
    assert both.here.device_id(row.run()) == 2


def option(name, value):
    def check(row, both):
        assert row.run() == value
        assert f"{name}=" in row.left or name == "key" or name == "route"

    return check


def peer_dies(row, both):
    """Of a domain of its own: who waits for a device whose last member is gone is told so long as nobody joins."""
    assert isinstance(both.dies(), ferry.PeerClientGoneError)


def sends(make, **names):
    def check(row, both):
        tensor = make(both)
        with both.taken(tensor) as got:
            made = row.run(session=both.here, t=tensor, x=tensor, memory=tensor, **names)
            assert made is None or made.result(60) is None
        assert (numpy.asarray(got[0]) == numpy.asarray(tensor)).all()

    return check


def receives(row, both, tensor, **names):
    with both.given(tensor):
        made = row.run(session=both.there, **names)
    return made.result(60) if isinstance(made, ferry.Future) else made


def waits(row, both):
    """`future.result()`, `await future`; and where there is one, a callback."""
    for i, text in enumerate(list(row.spans)):
        called = threading.Event()
        future = both.here.send(numpy.arange(4.0), to=2, key=f"waits-{i}")
        got = both.there.recv(shape=4, dtype="float64", frm=0, key=f"waits-{i}")
        assert row.run(future=future, function=lambda _, called=called: called.set()) is None
        assert "callback" not in text or called.wait(20)
        got.result(60)


def readers(make):
    def check(row, both):
        tensor = make(both)
        got = [both.there.recv(shape=6, frm=0, key="step-7", device=reader) for reader in READERS]
        for future in row.run(session=both.here, t=tensor, x=tensor, readers=READERS):
            future.result(60)
        assert all((numpy.asarray(one.result(60)) == numpy.asarray(tensor)).all() for one in got)

    return check


def columns(row, both, memory):
    into = both.there.empty(24, "uint8")
    got = both.there.recv_many(into, frm=0, keys=KEYS, offsets=OFFSETS, lengths=LENGTHS)
    names = {"tensor": memory, "memory": memory, "keys": KEYS, "offsets": OFFSETS, "lengths": LENGTHS}
    row.run(session=both.here, **names).result(60)
    got.result(60)
    assert bytes(into.memory) == bytes(memory.memory)[:24]


def prepared(make):
    def check(row, both):
        tensor = make(both)
        out = row.run(session=both.here, t=tensor, memory=tensor)
        row.spans.remove("prepare_recv")  # whose arguments are those of recv
        into = both.there.prepare_recv(tensor, frm=0, key="step-7")
        into.fire()
        row.run(out=out)
        row.run(out=out)
        into.wait(timeout=60)
        assert (numpy.asarray(into.value) == numpy.asarray(tensor)).all()
        into.release()
        out.release()

    return check


# ---- torch.distributed


def torch_tensor(both):
    import torch

    return torch.from_dlpack(both.here.empty(6)).copy_(torch.arange(6.0))


def torch_receives(row, both):
    import torch

    tensor = torch.arange(6.0).reshape(2, 3)
    t = row.run(session=both.there, torch=torch)
    receives(row, both, tensor, t=t)
    assert torch.equal(t, tensor)
    assert torch.equal(torch.from_dlpack(receives(row, both, tensor, like=torch.zeros(2, 3))), tensor)


def torch_stream(row, both):
    """Of a GPU: tests/gpu. Without one it says so."""
    with both.taken(numpy.zeros(1)):
        future = both.here.send(numpy.zeros(1), to=2, key="step-7")
        try:
            row.run(future=future)
        except ferry.FailedPreconditionError as error:
            assert "result()" in str(error)


class DTensor:
    """As PyTorch's, of which Debian's has none yet: rows of the ranks 0 and 1, of which this is rank 0."""

    shape, placements = (4, 3), (0,)

    class device_mesh:
        mesh, get_rank = [0, 1], staticmethod(lambda: 0)

    def __init__(self, local):
        self._local = local

    def to_local(self):
        return self._local


def torch_shards(row, both):
    import torch

    import ferry.torch

    layout = ferry.torch.Layout((4, 3), [0], [0])  # of one rank, which has it all
    whole = both.there.empty((4, 3))
    mine = torch.from_dlpack(both.here.empty((2, 3))).copy_(torch.arange(6.0).reshape(2, 3))
    half = ferry.torch.recv_shards(
        both.there, whole, frm=ferry.torch.Layout((4, 3), [0, 1], [0]), devices=[0, 0], key="step-7", layout=layout, rank=0
    )
    row.run(session=both.here, dtensor=DTensor(mine), layout=layout, devices=[2]).result(60)
    ferry.torch.send_shards(
        both.here, mine, to=layout, devices=[2], key="step-7", layout=ferry.torch.Layout((4, 3), [0, 1], [0]), rank=1
    ).result(60)
    half.result(60)
    assert torch.equal(torch.from_dlpack(whole), torch.cat([mine, mine]))
    back = torch.from_dlpack(both.there.empty((2, 3)))
    sent = ferry.torch.send_shards(
        both.here,
        torch.from_dlpack(both.here.empty((4, 3))),
        to=ferry.torch.Layout((4, 3), [0, 1], [0]),
        devices={0: 2, 1: 3},
        key="step-7",
        layout=layout,
        rank=0,
    )
    row.run(session=both.there, dtensor=DTensor(back), layout=layout, devices=[0]).result(60)
    sent.cancel()


def torch_many(row, both):
    import torch

    t = torch.arange(3.0)
    with both.taken({"a": t, "b": [t, t]}) as got:
        row.run(session=both.here, t=t).result(60)
    assert torch.equal(torch.from_dlpack(got[0]["b"][1]), t)
    row.spans.remove("empty")
    memory = both.here.empty(24, "uint8")
    memory.numpy()[:] = range(24)
    columns(row, both, memory)


def torch_deadline(row, both):
    assert isinstance(row.run(session=both.there, like=numpy.zeros(3)).exception(60), ferry.DeadlineExceededError)


# ---- JAX


def jax_array(both):
    import jax

    return jax.numpy.arange(6.0)


def jax_both_ends(row, both):
    x = jax_array(both)
    spans, row.spans = row.spans, row.spans[:2]
    sent = row.run(session=both.here, x=x)
    assert (numpy.asarray(row.run(session=both.there, x=x * 0).result(60)) == numpy.asarray(x)).all()
    sent.result(60)
    assert spans[2:] == ["x"]


def jax_keyed(post):
    def check(row, both):
        import jax

        arrays = {"w": jax.numpy.ones((2, 3)), "b": [jax.numpy.arange(3)]}
        shapes = jax.eval_shape(lambda: arrays)
        if post == "send":
            got = both.there.recv(arrays, frm=0, key=7)
            row.run(session=both.here, arrays=arrays).result(60)
            got.result(60)
        else:
            sent = both.here.send(arrays, to=2, key=7)
            got = row.run(session=both.there, shapes=shapes)
            assert got["b"][0].numpy().tolist() == [0, 1, 2]
            sent.result(60)

    return check


def jax_shapes(row, both):
    import jax

    row.spans.remove("recv")
    tensor = jax.numpy.arange(6, dtype=jax.numpy.bfloat16).reshape(2, 3)
    for _ in range(2):
        assert (jax.numpy.asarray(receives(row, both, tensor, jax=jax)) == tensor).all()


def jax_tree(row, both):
    import jax

    assert row.run(jax=jax, tree={"b": [1, 2]}) == [1, 2]


def jax_seen(row, both):
    import jax

    tensor = both.here.empty(6)
    for _ in range(2):
        array = row.run(jax=jax, tensor=tensor)
        assert array.unsafe_buffer_pointer() == tensor.address and jax.jit(lambda one: one + 1)(array).sum() == 6


# ---- NIXL


def pages(both):
    memory = both.here.empty((64, 4096), "uint8")
    memory.numpy()[:] = numpy.arange(64)[:, None]
    return memory


def nixl_session(row, both):
    session(row, both)
    option("route", "tcp")(row, both)


def nixl_memory(row, both):
    assert row.run(session=both.here).shape == (64, 4096)


def nixl_lists(row, both):
    memory = pages(both)
    with both.taken(numpy.zeros((3, 4096), "u1")) as got:
        both.here.send(row.run(memory=memory), to=2, key="step-7").result(60)
    assert got[0].numpy()[:, 0].tolist() == [3, 7, 8]
    columns(row, both, memory)


def nixl_part(shape, first):
    def check(row, both):
        memory = pages(both)
        with both.taken(numpy.zeros(shape, "u1")) as got:
            future = row.run(session=both.here, memory=memory)
            future.result(60)
        assert future.copied_bytes == 0 and got[0].numpy()[:3, 0].tolist() == first

    return check


def nixl_both_ends(row, both):
    memory, there = pages(both), both.there.empty((64, 4096), "uint8")
    sent = row.run(session=both.here, memory=memory)
    row.run(session=both.there, memory=there).result(60)
    sent.result(60)
    assert bytes(there.memory) == bytes(memory.memory)


def nixl_release(row, both):
    row.run(out=both.here.prepare_send(pages(both), to=2, key="released"))


CHECKS = {
    "torch-distributed": [
        session,
        device,
        nothing,
        nothing,
        option("key", "step-7"),
        sends(torch_tensor),
        torch_receives,
        waits,
        torch_stream,
        torch_shards,
        torch_many,
        readers(torch_tensor),
        nothing,
        nothing,
        torch_deadline,
        peer_dies,
        nothing,
        prepared(torch_tensor),
    ],
    "jax": [
        session,
        jax_both_ends,
        nothing,
        jax_keyed("send"),
        jax_keyed("recv"),
        jax_shapes,
        jax_tree,
        jax_seen,
        readers(jax_array),
        nothing,
        nothing,
    ],
    "nixl": [
        nixl_session,
        device,
        nixl_memory,
        nixl_lists,
        nixl_part((64, 4), [0, 1, 2]),
        nixl_part((3, 4096), [5, 0, 3]),
        nixl_both_ends,
        nothing,
        waits,
        nothing,
        prepared(pages),
        nixl_release,
        peer_dies,
    ],
}
