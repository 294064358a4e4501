# SPDX-License-Identifier: Apache-2.0
"""Arguments that do not do: each is an InvalidArgumentError that names it, and the key of the leaf that is meant."""

import dataclasses
import datetime

import numpy as np
import pytest

import ferry

CALLS = {
    "to=-1": ("to", lambda a, key: a.send(b"x", to=-1, key=key)),
    "to=2**64": ("to", lambda a, key: a.send(b"x", to=2**64, key=key)),
    "frm=None's type": ("frm", lambda a, key: a.recv(shape=1, frm=2.5, key=key)),
    "prepared frm=-1": ("frm", lambda a, key: a.prepare_recv(shape=1, frm=-1, key=key)),
    "many to=-1": ("to", lambda a, key: a.send_many(a.empty(4), to=-1, keys=[b"k"], offsets=[0], lengths=[1])),
    "device=-1": ("device", lambda a, key: a.empty(4, device=-1)),
    "name=5": ("name", lambda a, key: ferry.Session(name=5)),
    "a NUL in name": ("name", lambda a, key: ferry.Session(name="x\0y")),
    "join(5)": ("name", lambda a, key: a.join(5)),
    "timeout=inf": ("timeout", lambda a, key: ferry.Session(timeout=float("inf"))),
    "timeout=nan": ("timeout", lambda a, key: ferry.Session(timeout=float("nan"))),
    "timeout=-1": ("timeout", lambda a, key: ferry.Session(timeout=-1)),
    "client_dir=5": ("client_dir", lambda a, key: ferry.Session(5)),
    "client_dir=''": ("client_dir", lambda a, key: ferry.Session("")),
    "domain=5": ("domain", lambda a, key: ferry.Session(domain=5)),
    "domain=''": ("domain", lambda a, key: ferry.Session(domain="")),
    "domain=surrogate": ("domain", lambda a, key: ferry.Session(domain="\ud800")),
    "wait_daemon": ("timeout", lambda a, key: a.wait_daemon("x")),
    "result": ("timeout", lambda a, key: a.send([], to=2, key=key).result("5")),
    "exception": ("timeout", lambda a, key: a.send([], to=2, key=key).exception(datetime.timedelta(seconds=1))),
    "result(nan)": ("timeout", lambda a, key: a.send([], to=2, key=key).result(float("nan"))),
    "poison": ("why", lambda a, key: a.send([], to=2, key=key).poison(5)),
    "continues": ("continues", lambda a, key: a.send(b"x", to=2, key=key, continues=5)),
    "priority": ("priority", lambda a, key: a.send(b"x", to=2, key=key, priority=2**32)),
    "deadline=nan": ("deadline", lambda a, key: a.send(b"x", to=2, key=key, deadline=float("nan"))),
    "key=surrogate": ("key", lambda a, key: a.send(b"x", to=2, key="\ud800")),
    "leaf's surrogate": ("key", lambda a, key: a.send({"\ud800": b"x"}, to=2, key=key)),
    "blocks": ("indices", lambda a, key: a.send(ferry.Blocks(a.empty((4, 4)), 3), to=2, key=key)),
    "block_bytes": ("block_bytes", lambda a, key: a.send(ferry.Blocks(a.empty((4, 4)), [0], 2.5), to=2, key=key)),
    "ranges": ("tensors", lambda a, key: ferry.Ranges(5)),
    "big-endian": ("dtype", lambda a, key: a.empty(3, np.dtype(">f4"))),
    "shape=bytes": ("shape", lambda a, key: a.empty(b"44")),
    "columns": ("keys", lambda a, key: a.send_many(a.empty(4), to=2, keys=[[1], [1, 2]], offsets=[0], lengths=[1])),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_refused_by_its_name(nodes, a, key, monkeypatch, name):
    monkeypatch.setenv("FERRY_CLIENT_DIR", nodes.a)
    argument, call = CALLS[name]
    with pytest.raises(ferry.InvalidArgumentError) as failed:
        call(a, key)
    assert [field for field, _ in failed.value.violations] == [argument]


@pytest.mark.parametrize("shape", [np.array([2, 3]), np.array([2, 3], "u1"), [np.int64(2), 3], (2, 3)])
def test_shapes_of_all_kinds(a, shape):
    assert a.empty(shape).shape == (2, 3)
    assert a.empty(np.array(7)).shape == a.empty(np.int32(7)).shape == (7,)


def test_a_wait_without_end(a, b, key):
    got = b.recv(shape=1, dtype="uint8", frm=0, key=key)
    a.send(b"x", to=2, key=key)
    assert bytes(got.result(float("inf")).memory) == b"x"


class Deleted:
    """As a JAX array that was donated is, and a tracer."""

    dtype = np.dtype("f4")
    shape = (3,)

    def __dlpack_device__(self):
        raise RuntimeError("Array has been deleted")

    def __dlpack__(self, **_):
        raise AssertionError("not asked")


@pytest.mark.parametrize("leaf", [0.5, Deleted(), np.zeros((4, 4), "f4").T[1:], np.zeros(3, ">f4"), "text"], ids=repr)
def test_a_leaf_is_named_by_its_key(a, b, key, leaf):
    for call in (
        lambda: a.send({"x": np.zeros(3), "group": [b"x", leaf]}, to=2, key="k"),
        lambda: a.recv(into={"x": a.empty(3), "group": [leaf]}, frm=2, key="k"),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match=r"key 'k/group/[01]'"):
            call()


@dataclasses.dataclass(frozen=True)
class State:
    weights: object
    name: str = dataclasses.field(default="of the form", metadata={"static": True})
    step: object = dataclasses.field(default=None, metadata={"pytree_node": True})


def test_a_dataclass_is_a_tree(a, b, key):
    state = State({"w": np.full(3, 7, "f4")}, step=np.int32(5))
    sent = a.send(state, to=2, key=key)
    assert bytes(b.recv(shape=3, frm=0, key=f"{key}/weights/w").result(20).memory) == state.weights["w"].tobytes()
    got = b.recv(State(None, step=state.step), frm=0, key=key).result(20)
    sent.result(20)
    assert type(got) is State and got.name == "of the form" and int(got.step.numpy()) == 5 and got.weights is None


class Described:
    """As jax.ShapeDtypeStruct: a shape and a type, and no bytes."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = shape, np.dtype(dtype)


def test_what_has_a_shape_and_a_type_does_as_like(a, b, key):
    sent = a.send({"x": np.arange(6, dtype="i2").reshape(2, 3)}, to=2, key=key)
    got = b.recv({"x": Described((2, 3), "i2")}, frm=0, key=key).result(20)
    sent.result(20)
    assert got["x"].numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ferry.InvalidArgumentError, match=f"key '{key}/x': elements .* are big-endian"):
        b.recv({"x": Described((2, 3), ">i2")}, frm=0, key=key)
    with pytest.raises(ferry.InvalidArgumentError, match="a Described is no tensor"):
        a.send(Described((2, 3), "i2"), to=2, key=key)


def test_explain_refuses_what_send_refuses(a):
    for tensor in (np.zeros((4, 6))[:, :3], np.zeros((4, 6)).T):
        with pytest.raises(ferry.InvalidArgumentError, match=r"contiguous \(numpy.ascontiguousarray"):
            a.explain(tensor)


class TorchDevice:
    """As torch.device."""

    def __init__(self, kind, index=None):
        self.type, self.index = kind, index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


def test_devices_by_the_names_of_frameworks(a):
    several = "'cpu' may be several devices of this node, which has host0, host1: name one of these"
    for name in ("cpu", TorchDevice("cpu")):
        with pytest.raises(ferry.InvalidArgumentError, match=several) as info:
            a.empty(4, device=name)
        assert info.value.violations[0][0] == "device"
    with pytest.raises(ferry.InvalidArgumentError, match=several) as info:
        a.send(b"four", to="cpu", key="k")
    assert info.value.violations[0][0] == "to"
    for name in ("cuda", "cuda:0", TorchDevice("cuda", 0), TorchDevice("mps")):
        with pytest.raises(ferry.NotFoundError, match="is no device of this node's daemon, which has host0, host1"):
            a.empty(4, device=name)
    with ferry.local_node(host_devices=1) as node, node.session() as session:
        for name in ("cpu", "cpu:0", TorchDevice("cpu")):
            assert session.empty(4, device=name).device == session.devices[0].id


def test_a_gpu_by_the_name_that_pytorch_has_for_it():
    from ferry._devices import Device, of_framework

    devices = [Device(5, "gpu", "gpu0", "n", True), Device(6, "gpu", "gpu1", "n", True), Device(7, "host", "host0", "n", True)]
    assert of_framework("cuda", 1, 6, devices, "cuda:1", "device") == 6
    assert of_framework("cuda", -1, None, devices[1:], "cuda", "device") == 6
    assert of_framework("cpu", -1, None, devices, "cpu", "device") == 7
    with pytest.raises(ferry.InvalidArgumentError, match="which has gpu0, gpu1, host0"):
        of_framework("cuda", -1, None, devices, "cuda", "device")
    with pytest.raises(ferry.NotFoundError, match="'cuda:2' is no device"):
        of_framework("cuda", 2, None, devices[:1], "cuda:2", "device")
