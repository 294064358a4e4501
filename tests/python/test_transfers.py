# SPDX-License-Identifier: Apache-2.0
"""Trees, batches, columns, ranges and blocks, prepared transfers; between two nodes, and at one."""

import collections
import concurrent.futures
import logging
import os
from typing import NamedTuple

import numpy as np
import pytest
from conftest import Nodes

import ferry
from ferry import _post


class Pair(NamedTuple):
    first: object
    second: object


def test_a_state_dict_arrives_as_it_was(a, b, key):
    names = [f"model.layers.{i}.self_attn.a_projection_with_a_long_name_of_its_own.weight" for i in range(40)]
    state = {name: np.full((3, 5), i, "f4") for i, name in enumerate(names)}
    sent = a.send(state, to=2, key=key)
    got = b.recv(state, frm=0, key=key).result(20)
    sent.result(20)
    assert list(got) == names
    assert all((got[name].numpy() == state[name]).all() for name in names)
    assert len(sent.transfer_ids) == 40


def test_trees_keep_their_form_and_their_keys(a, b, key):
    tree = {"a": [np.int32(1), (np.int32(2), None)], "b": Pair(np.int32(3), {"c/d": np.int32(4)}), 5: np.int32(5)}
    sent = a.send(tree, to=3, key=key)
    like = {5: tree[5], "b": tree["b"], "a": tree["a"]}  # in any order
    got = b.recv(like, frm=0, key=key, device=3).result(20)
    sent.result(20)
    assert [int(leaf.numpy()) for leaf in (got["a"][0], got["a"][1][0], got["b"].first, got["b"].second["c/d"], got[5])] == [
        1, 2, 3, 4, 5,
    ]  # fmt: skip
    assert got["a"][1][1] is None and type(got["b"]) is Pair and isinstance(got["a"][1], tuple)
    assert a.send([], to=2, key=key).result(0) is None


@pytest.fixture
def parts(monkeypatch):
    """Trees of a few KiB go as large ones do."""
    monkeypatch.setattr(_post, "FIRST_BYTES", 1024)


def test_a_large_tree_goes_in_parts(a, b, key, parts):
    state = {str(i): np.full(256, i, "f4") for i in range(20)}
    assert [len(part) for part in _post.parted(list(state.items()))] == [1, 2, 4, 8, 5]
    sent = a.send(state, to=2, key=key)
    assert sent.copied_bytes == 20 * 1024
    got = b.recv(state, frm=0, key=key)
    assert all((tensor.numpy() == int(name)).all() for name, tensor in got.result(20).items())
    sent.result(20)
    assert len(sent.transfer_ids) == len(set(sent.transfer_ids)) == len(got.routes()) == 20
    again = a.empty_like(state)
    for name, tensor in again.items():
        tensor.numpy()[:] = 2 * int(name)
    with a.prepare_send(again, to=2, key=key) as out, b.prepare_recv(state, frm=0, key=key) as back:
        out.fire()
        back.fire()
        out.wait(timeout=20)
        back.wait(timeout=20)
        assert all((tensor.numpy() == 2 * int(name)).all() for name, tensor in back.value.items())


def test_a_tree_that_is_refused_is_cancelled_as_far_as_it_was_posted(a, b, key, parts):
    state = {str(i): np.full(256, i, "f4") for i in range(20)}
    with pytest.raises(ferry.InvalidArgumentError, match="no tensor"):
        b.send({**state, "19": object()}, to=3, key=key)
    # Those of the parts before were posted: whoever would take one is told at once, long before its deadline.
    for name in ("0", "14"):
        late = b.recv(state[name], frm=2, key=f"{key}/{name}", device=3, deadline=600)
        assert isinstance(late.exception(30), ferry.CancelledError)
    sent = b.send(state, to=3, key=key)  # of what was refused nothing is left
    got = b.recv(state, frm=2, key=key, device=3)
    assert all((tensor.numpy() == int(name)).all() for name, tensor in got.result(20).items())
    sent.result(20)


class State(collections.OrderedDict):
    """As torch's state_dict() is: with something beside its items."""


def test_a_dict_keeps_its_type(a, b, key):
    state = State(w=np.int32(1), part=collections.defaultdict(list, b=np.int32(2)))
    state._metadata = {"version": 1}
    sent = a.send(state, to=2, key=key)
    got = b.recv(state, frm=0, key=key).result(20)
    sent.result(20)
    assert type(got) is State and got._metadata == {"version": 1} and list(got) == ["w", "part"]
    assert type(got["part"]) is collections.defaultdict and got["part"].default_factory is list
    assert [int(got["w"].numpy()), int(got["part"]["b"].numpy())] == [1, 2] and state["w"] == 1
    assert type(a.empty_like(collections.OrderedDict(w=state["w"]))) is collections.OrderedDict


def test_a_future_says_how_many_bytes_were_copied(a, b, key, caplog):
    caplog.set_level(logging.DEBUG, "ferry")
    shared = a.empty(1000, "uint8")
    sends = [a.send(what, to=2, key=f"{key}/{i}") for i, what in enumerate((shared, {"x": shared, "y": np.zeros(9)}, b"12345"))]
    assert [one.copied_bytes for one in sends] == [0, 72, 5]
    assert [record.getMessage().split(";")[0] for record in caplog.records if record.name == "ferry"] == [
        f"send of key '{key}/{i}': {count} bytes were copied" for i, count in ((1, 72), (2, 5))
    ]
    got = b.recv({"x": shared, "y": np.zeros(9)}, frm=0, key=f"{key}/1")
    got.result(20)
    assert got.copied_bytes == 0
    for one in sends:
        one.cancel()


def test_two_leaves_with_one_key_are_refused(a, key):
    with pytest.raises(ferry.InvalidArgumentError, match="two leaves of the tree have the key 'k/a/b': rename one"):
        a.send({"a": {"b": b"1"}, "a/b": b"2"}, to=2, key="k")


def test_a_batch_is_as_long_as_it_is(a, b, key):
    count = 5000  # more than a call holds
    sent = a.send([np.int32(i) for i in range(count)], to=2, key=key)
    got = b.recv([np.int32(0)] * count, frm=0, key=key).result(30)
    sent.result(30)
    assert [int(one.numpy()) for one in got] == list(range(count))


@pytest.mark.parametrize("kind", ["bytes", "integers"])
def test_columns_go_without_an_object_each(a, b, key, kind):
    count = 5000
    source, target = a.empty((count, 16), "uint8"), b.empty((count, 16), "uint8")
    source.numpy()[:] = np.arange(count * 16).reshape(count, 16) % 251
    places = np.arange(count)
    keys = places + (hash(key) & 0xFFFFFF) * 65536 if kind == "integers" else np.array([f"{key}/{i}" for i in places], "S")
    sent = a.send_many(source, to=2, keys=keys, offsets=places * 16, lengths=np.full(count, 16))
    got = b.recv_many(target, frm=0, keys=keys[::-1], offsets=places * 16, lengths=np.full(count, 16)).result(30)
    sent.result(30)
    assert got is target and (target.numpy() == source.numpy()[::-1]).all()


def test_a_column_of_integers_has_the_keys_of_integers(a, b, key):
    tensor = a.empty(4, "uint8")
    tensor.memory[:] = b"abcd"
    number = int.from_bytes(os.urandom(7), "little")
    sent = a.send_many(tensor, to=2, keys=np.array([number]), offsets=np.array([1], "i4"), lengths=np.array([2], "u2"))
    got = b.recv(shape=2, dtype="uint8", frm=0, key=np.uint64(number)).result(20)
    assert bytes(got.memory) == b"bc" and sent.result(20) is None


def test_integer_keys_are_shown_as_the_numbers(a, key):
    number = int.from_bytes(os.urandom(4), "big")
    tensor, one = a.empty(4, "uint8"), {"offsets": [0], "lengths": [4]}
    for sent in (a.send(tensor, to=2, key=number), a.send_many(tensor, to=3, keys=[number], **one)):
        with pytest.raises(ferry.WaitTimeoutError, match=f"the first of key {number}, "):
            sent.result(0)
        sent.cancel()
        assert sent.exception(20).keys == (number.to_bytes(8, "big"),)
    number += 1
    for sent in (
        a.send(tensor, to=2, key=number, deadline=0.05),
        a.send_many(tensor, to=3, keys=[number], deadline=0.05, **one),
    ):
        with pytest.raises(ferry.DeadlineExceededError, match=f"the receive of key {number} at node-b") as failed:
            sent.result(20)
        assert failed.value.keys == (number.to_bytes(8, "big"),)


@pytest.mark.parametrize("kind", ["V", "rows"])
def test_a_column_of_keys_may_end_in_nul(a, b, key, kind):
    source = a.empty((3, 4), "uint8")
    source.numpy()[:] = np.arange(12).reshape(3, 4)
    keys = [key.encode()[:20].ljust(20) + bytes(end) for end in ([1, 0, 0], [0, 0, 0], [0, 1, 0])]
    rows = np.frombuffer(b"".join(keys), "u1").reshape(3, 23)
    column = rows if kind == "rows" else np.array(keys, "V23")
    sent = a.send_many(source, to=2, keys=column, offsets=[0, 4, 8], lengths=[4, 4, 4])
    for i, one in enumerate(keys):
        assert b.recv(shape=4, dtype="uint8", frm=0, key=one).result(20).numpy().tolist() == list(range(4 * i, 4 * i + 4))
    sent.result(20)
    late = a.send_many(source, to=2, keys=column, offsets=[0, 4, 8], lengths=[4, 4, 4], deadline=0.05)
    assert late.exception(20).keys == tuple(keys)


def test_threads_share_a_session(a, b, key):
    def work(rank):
        for step in range(50):
            sent = a.send(b"%02d" % rank, to=2, key=f"{key}/{rank}/{step}")
            got = b.recv(shape=2, dtype="uint8", frm=0, key=f"{key}/{rank}/{step}")
            got.add_done_callback(lambda future: called.append(future))
            assert bytes(got.result(20).memory) == b"%02d" % rank
            sent.result(20)

    called = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    b.close()
    assert len(called) == 200


def test_what_a_send_copied_stays_until_it_has_gone(a, b, key):
    """Copies are made in memory that is used again: not while somebody still reads it."""
    sizes = [3, 70_000, 1, 500_000, 2_000_000]
    for turn in range(3):
        sent = [a.send(np.full(size, turn * 10 + i, "u1"), to=2, key=f"{key}/{turn}/{i}") for i, size in enumerate(sizes * 6)]
        for i in reversed(range(len(sent))):
            size = sizes[i % len(sizes)]
            got = b.recv(shape=size, dtype="uint8", frm=0, key=f"{key}/{turn}/{i}").result(20)
            assert (got.numpy() == turn * 10 + i).all()
            sent[i].result(20)
    assert 1 <= len(a.stage._kept) <= 16
    for i in range(40):
        one = a.send(b"x", to=2, key=f"{key}/again/{i}")
        b.recv(shape=1, dtype="uint8", frm=0, key=f"{key}/again/{i}").result(20)
        one.result(20)
        del one
    assert len(a.stage._kept) <= 16


def test_columns_that_do_not_fit_are_refused(a):
    tensor = a.empty(100, "uint8")
    for keys, offsets, lengths, why in (
        ([0.5], [0], [1], "keys are a column of text, bytes"),
        (["\ud800"], [0], [1], "a text that has no form in UTF-8"),
        ([b"k"], [0, 1], [1], "columns of 1 keys, 2 offsets, 1 lengths"),
        ([b"k", b"l"], [0, 90], [1, 11], "row 1: 11 bytes from 90 are not inside a tensor of 100"),
        ([b"k"], [-1], [1], "offsets are a column of integers from 0"),
        ([b"k"], [0.5], [1], "offsets are a column of integers from 0"),
        ([b"k"], [2**64 - 1], [2], "not inside"),
        ([b"k" * 65], [0], [1], "S1 to S64"),
    ):
        with pytest.raises(ferry.InvalidArgumentError, match=why):
            a.send_many(tensor, to=2, keys=np.array(keys), offsets=np.array(offsets), lengths=np.array(lengths))
    with pytest.raises(ferry.InvalidArgumentError, match="a tensor that Session.empty has made"):
        a.send_many(np.zeros(4), to=2, keys=np.array([1]), offsets=np.array([0]), lengths=np.array([1]))


def test_ranges_and_blocks_are_laid_out_otherwise_at_the_other_end(a, b, key):
    pages = a.empty((16, 64), "uint8")
    pages.numpy()[:] = np.arange(16)[:, None]
    sent = a.send([ferry.Blocks(pages, [5, 0, 3]), ferry.Ranges([pages[7:9], pages[1]])], to=2, key=key)
    cache = b.empty((8, 64), "uint8")
    table = ferry.Blocks(cache, np.array([7, 2, 6], "u8"))
    got = b.recv(into=[table, ferry.Ranges([cache[0:2], cache[4]])], frm=0, key=key)
    got.result(20)
    sent.result(20)
    assert cache.numpy()[:, 0].tolist() == [7, 8, 0, 0, 1, 0, 3, 5]
    with pytest.raises(ferry.InvalidArgumentError, match="a block index is negative: -1"):
        a.send(ferry.Blocks(pages, [1, -1]), to=2, key=key)
    with pytest.raises(ferry.InvalidArgumentError, match="RANGE_INVALID"):
        a.send(ferry.Blocks(pages, [1 << 40]), to=2, key=key)


def test_prepared_transfers_are_fired_again_and_again(a, b, key):
    source = {"x": a.empty(8, "int64"), "y": a.empty(2, "int64")}
    with a.prepare_send(source, to=2, key=key) as out, b.prepare_recv(source, frm=0, key=key) as into:
        for step in range(1, 20):
            source["x"].numpy()[:] = step
            assert into.fire() == out.fire() == step
            into.wait(timeout=20)
            out.wait(step, timeout=20)
            assert (into.value["x"].numpy() == step).all()
        into.fire()
        with pytest.raises(ferry.FailedPreconditionError):
            into.fire()
        with pytest.raises(ferry.WaitTimeoutError, match="firing 20 is not over after 0 s; it goes on"):
            into.wait(timeout=0)
        out.release()
        with pytest.raises(ferry.CancelledError):
            into.wait(timeout=20)
        with pytest.raises(ferry.FerryError):
            out.fire()


def test_a_receiver_may_read_its_data_by_ranges_of_another_sharding(a, b, key):
    """Two senders have rows each, two receivers columns each."""
    whole = np.arange(64, dtype="f4").reshape(8, 8)
    shards = [a.empty((4, 8)) for _ in range(2)]
    futures = []
    for rank, shard in enumerate(shards):
        shard.numpy()[:] = whole[4 * rank : 4 * rank + 4]
        futures += [a.send(shard.numpy()[:, 4 * to : 4 * to + 4], to=2, key=f"{key}/{rank}/{to}") for to in range(2)]
    for to in range(2):
        mine = b.empty((8, 4))
        parts = {f"{frm}/{to}": mine[4 * frm : 4 * frm + 4] for frm in range(2)}
        futures += [b.recv(into=part, frm=0, key=f"{key}/{name}") for name, part in parts.items()]
        for future in futures[-2:]:
            future.result(20)
        assert (mine.numpy() == whole[:, 4 * to : 4 * to + 4]).all()
    for future in futures:
        future.result(20)


def test_routes_and_priorities_are_taken(a, b, key):
    sent = a.send(b"x", to=1, key=key, priority=50, route="local")
    got = a.recv(shape=1, dtype="uint8", frm=0, key=key, device=1, priority=-100, deadline=20)
    assert got.result(20).device == 1 and sent.result(20) is None and sent.routes() == ("local",)
    sent = a.send(b"x", to=2, key=key, route="tcp")
    b.recv(shape=1, dtype="uint8", frm=0, key=key, route="tcp").result(20)
    assert sent.result(20) is None and sent.routes() == ("tcp",)


def test_a_draining_daemon_takes_what_continues_something(key):
    nodes = Nodes(drain="60s")
    try:
        nodes.wait()
        with ferry.Session(nodes.a) as a, ferry.Session(nodes.b) as b:
            value = np.zeros(1, "f4")
            first = a.recv(shape=1, frm=2, key=f"{key}-first")
            nodes.processes[0].terminate()
            while True:  # until it drains
                try:
                    a.recv(shape=1, frm=2, key=f"{key}-other", deadline=0.001).exception(20)
                except ferry.UnavailableError as refused:
                    assert refused.reason == "DRAINING"
                    break
            second = a.send(value, to=2, key=f"{key}-second", continues=first)
            while True:  # until node b has heard of it: of a node that drains nothing else comes
                try:
                    b.recv(shape=1, frm=0, key=f"{key}-second").result(20)
                    break
                except ferry.UnavailableError as refused:
                    assert refused.reason == "DRAINING" and not second.done()
            second.result(20)
            b.send(value, to=0, key=f"{key}-first").result(20)
            first.result(20)
    finally:
        nodes.close()


def test_what_continues_a_future_of_another_session_is_refused(a, b, key):
    got = b.recv(shape=1, frm=0, key=key)
    with pytest.raises(ferry.InvalidArgumentError, match="its own session"):
        a.send(np.zeros(1, "f4"), to=2, key=key, continues=got)
    got.cancel()
    with pytest.raises(ferry.CancelledError):
        got.result(20)


def test_how_a_tree_would_be_sent_is_a_tree_of_texts(a):
    shared = a.empty((4, 6), "float32")
    array = np.zeros((4, 6), "f4")
    said = a.explain(
        {"in": shared, "out": [array, (b"bytes", None)], "column": shared.numpy()[:, 1:3]}
        | {"ranges": ferry.Ranges([shared[0], shared[2]]), "blocks": ferry.Blocks(shared, [3, 1])}
    )
    assert said.pop("out") == [
        "copied once: the 96 bytes are in no arena of this session (Session.empty makes one)",
        ("copied once: the 5 bytes are in no arena of this session (Session.empty makes one)", None),
    ]
    assert said == {
        "in": "zero-copy: bytes 0 to 96 of an arena of 256 on device 0",
        "column": "zero-copy: 4 blocks, one every 24 bytes, of an arena on device 0",
        "ranges": "zero-copy: 2 ranges, of 1 arenas on device 0",
        "blocks": "zero-copy: 2 blocks of 24 bytes by index, of an arena on device 0",
    }
    with pytest.raises(ferry.InvalidArgumentError, match="key 'layers/1': .*not contiguous"):
        a.explain({"layers": [array, array[:, :3]]})
    with pytest.raises(ferry.InvalidArgumentError, match="key 'rate': a float is no tensor"):
        a.explain({"rate": 0.5})


@pytest.mark.parametrize("none", [[], np.zeros(0, "u8"), np.zeros(0, "i4")], ids=["list", "uint64", "int32"])
def test_no_blocks_are_a_transfer_too(a, b, key, none):
    """As of a request that has no pages: the rest of its tree goes."""
    pages, cache = a.empty((8, 16), "uint8"), b.empty((8, 16), "uint8")
    pages.numpy()[:] = 7
    sent = a.send({"kv": ferry.Blocks(pages, none), "one": ferry.Blocks(pages, [1])}, to=2, key=key)
    b.recv(into={"kv": ferry.Blocks(cache, none), "one": ferry.Blocks(cache, [2])}, frm=0, key=key).result(20)
    sent.result(20)
    assert (cache.numpy() != 0).any(axis=1).tolist() == [i == 2 for i in range(8)]
    with (
        a.prepare_send(ferry.Blocks(pages, none), to=2, key=key) as out,
        b.prepare_recv(into=ferry.Blocks(cache, none), frm=0, key=key) as into,
    ):
        out.fire()
        into.fire()
        out.wait(timeout=20)
        into.wait(timeout=20)


def test_the_error_of_a_refused_column_has_the_keys_that_it_is_about(a, key):
    tensor = a.empty(100, "uint8")
    column = {"offsets": np.array([0, 90]), "lengths": np.array([1, 11])}
    with pytest.raises(ferry.InvalidArgumentError, match="key 'l': row 1: 11 bytes") as info:
        a.send_many(tensor, to=1, keys=np.array([b"k", b"l"]), **column)
    assert info.value.keys == (b"l",) and info.value.violations[0][0] == "offsets[1]"
    column = {"offsets": np.array([0, 1, 2]), "lengths": np.array([1, 1, 1])}
    with pytest.raises(ferry.InvalidArgumentError) as info:
        a.send_many(tensor, to=1, keys=np.array([b"k", b"", b"l"]), **column)
    assert info.value.keys == (b"",)
    waiting = a.send_many(tensor[:1], to=1, keys=np.array([7]), offsets=np.array([0]), lengths=np.array([1]))
    with pytest.raises(ferry.KeyInUseError, match="key 7") as info:
        a.send_many(tensor, to=1, keys=np.array([6, 7, 8]), **column)
    assert info.value.keys == ((7).to_bytes(8, "big"),)
    waiting.cancel()
