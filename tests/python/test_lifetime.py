# SPDX-License-Identifier: Apache-2.0
"""What was moved is let go of with its last name, without the cyclic collector: GPU memory cannot wait for that."""

import gc
import weakref

import numpy as np
import pytest

import ferry
from ferry import _tree


class Array(np.ndarray):
    """Which a weak reference may be made to."""


def array(*shape):
    return np.ones(shape, "f4").view(Array)


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def arena_of(tensor):
    return weakref.ref(tensor._arena)


@pytest.mark.parametrize("kind", ["leaf", "tree"])
def test_what_was_sent_and_received_is_let_go_of(a, b, key, kind):
    leaf = array(4)
    seen = weakref.ref(leaf)
    tree = leaf if kind == "leaf" else {"x": [leaf, (leaf[:2], None)]}
    sent = a.send(tree, to=2, key=key)
    future = b.recv(tree, frm=0, key=key)
    got = future.result(20)
    sent.result(20)
    received = arena_of(got if kind == "leaf" else got["x"][0])
    del leaf, tree, sent, future
    assert seen() is None and received() is not None
    del got
    assert received() is None


@pytest.mark.parametrize("wait", ["result", "exception"])
def test_what_failed_is_let_go_of(b, key, wait):
    def fail():
        future = b.recv({"x": array(4)}, frm=0, key=key, deadline=0.05)
        try:  # not pytest.raises, which keeps this frame
            error = future.exception(20) if wait == "exception" else future.result(20)
            raise error.again()
        except ferry.DeadlineExceededError as failed:
            assert failed.keys == future.exception().keys == (f"{key}/x".encode(),)
        return arena_of(future._value["x"])

    assert fail()() is None


def test_what_was_prepared_or_refused_is_let_go_of(a, b, key):
    source = a.empty_like({"x": array(2), "y": [array(3)]})
    seen = arena_of(source["x"])
    out, into = a.prepare_send(source, to=2, key=key), b.prepare_recv(source, frm=0, key=key)
    received = arena_of(into.value["x"])
    out.release()
    into.release()
    del out, into
    assert received() is None
    with pytest.raises(ferry.InvalidArgumentError):
        a.send({**source, "z": object()}, to=2, key=key)
    a.explain(source["x"])
    del source
    assert seen() is None


def test_a_tree_that_was_looked_at_keeps_nothing():
    leaf = array(4)
    seen = weakref.ref(leaf)
    leaves, build = _tree.flatten({"a": (leaf,), "b": [leaf]})
    assert build([1, 2]) == {"a": (1,), "b": [2]}
    del leaf, leaves
    assert seen() is None
