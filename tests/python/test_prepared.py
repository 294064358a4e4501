# SPDX-License-Identifier: Apache-2.0
"""Prepared transfers of several batches of the library's, as those of tensors on two devices are."""

import time

import pytest

import ferry
from ferry import _abi


@pytest.fixture
def ends(a, b, key):
    """The sender of "x" and "y", of two devices, and a receiver of each."""
    tree = {"x": a.empty(4, "uint8", device=0), "y": a.empty(4, "uint8", device=1)}
    out = a.prepare_send(tree, to=2, key=key)
    assert len(out._handles) == 2
    return out, [b.prepare_recv(shape=4, dtype="uint8", frm=i, key=f"{key}/{name}") for i, name in enumerate("xy")]


def fired(prepared):
    return [_abi.library().ferry_prepared_fired(handle) for handle in prepared._handles]


def ended(prepared, which):
    """Waits until this end knows."""
    end = time.monotonic() + 20
    while not _abi.library().ferry_prepared_ended(prepared._handles[which]):
        assert time.monotonic() < end


def test_all_of_them_are_fired_or_none(ends, key):
    out, (x, y) = ends
    for number in (1, 2):
        out.value["x"].memory[:] = out.value["y"].memory[:] = bytes([number] * 4)
        assert out.fire() == number
        x.fire()
        x.wait(timeout=20)
        ferry.errors.check(_abi.library().ferry_prepared_wait(out._handles[0], number, 20 * 10**9))
        with pytest.raises(ferry.FailedPreconditionError, match=f"firing {number}.* is not over") as info:
            out.fire()
        assert info.value.keys == (f"{key}/y".encode(),) and info.value.transfer_ids
        assert fired(out) == [number, number]
        y.fire()
        y.wait(timeout=20)
        out.wait(timeout=20)
        assert bytes(x.value.memory) == bytes(y.value.memory) == bytes([number] * 4)


@pytest.mark.parametrize("released", [0, 1])
def test_none_is_fired_when_one_has_ended(ends, key, released):
    out, receivers = ends
    receivers[released].release()
    ended(out, released)
    with pytest.raises(ferry.CancelledError) as info:
        out.fire()
    assert info.value.keys == (f"{key}/{'xy'[released]}".encode(),)
    assert fired(out) == [0, 0]


def test_a_wait_ends_with_any_of_them(ends, key):
    """Also where the other end of the first one never fires."""
    out, (x, y) = ends
    out.fire()
    x.fire()
    y.fire()
    out.wait(timeout=20)
    out.fire()
    y.release()
    with pytest.raises(ferry.CancelledError) as info:
        out.wait(timeout=30)
    assert info.value.keys == (f"{key}/y".encode(),)
    out.wait(firing=1, timeout=20)  # which went well
