# SPDX-License-Identifier: Apache-2.0
"""Boxes of tensors as ends of transfers: what arithmetic finds is what a slice of NumPy's is."""

import itertools

import numpy
import pytest

import ferry
from ferry._parts import box_of, end_of
from ferry._post import Places, Strided
from ferry._pull import Part, Pull, ask
from ferry._source import Source
from ferry._views import blocks_of, view_of


def slices(offset, size):
    return tuple(slice(begin, begin + some) for begin, some in zip(offset, size, strict=True))


def parts_of(length):
    return [(begin, size) for begin in (0, 1) for size in range(1, length - begin + 1)]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_box_is_what_a_slice_is(dtype):
    whole = numpy.zeros((3, 4, 5), dtype)
    for array in (whole, whole.transpose(1, 0, 2), whole[:, 1:3], whole[::2]):
        for box in itertools.product(*map(parts_of, array.shape)):
            offset, size = zip(*box, strict=True)
            found, sliced = box_of(view_of(array), offset, size), view_of(array[slices(offset, size)])
            assert (found.address, found.shape, found.dtype) == (sliced.address, sliced.shape, sliced.dtype)
            assert found.nbytes == sliced.nbytes
            try:
                expected = blocks_of(sliced)
            except ferry.InvalidArgumentError:
                with pytest.raises(ferry.InvalidArgumentError):
                    blocks_of(found)
            else:
                assert blocks_of(found) == expected


def test_an_end_is_known_or_has_to_be_copied(a):
    places, array = Places(a), a.empty((4, 6)).numpy()
    assert end_of(places, view_of(array)).shape == (4, 6)
    assert isinstance(end_of(places, view_of(array), (0, 2), (4, 3)).where, Strided)
    cube = a.empty((2, 4, 6)).numpy()
    assert end_of(places, view_of(cube), (0, 1, 2), (2, 2, 3)) is None  # of several strides
    assert end_of(places, view_of(numpy.zeros(3))) is None


def test_a_route_is_asked_for_once_a_call(a, b, monkeypatch):
    """Which is a call to the daemon: of a weight update with one for each tensor half of the time went there."""
    source = Source(a)
    try:
        source.offer("many", [a.empty(4).numpy() for _ in range(50)])
        leaves, _ = ask(source.address, "many", 20)
        pull = Pull(b, source.address, "many", leaves)
        pull.wait(20)
        library, asked = ferry._abi.library(), []
        route = library.ferry_transfer_route
        monkeypatch.setattr(library, "ferry_transfer_route", lambda *given: asked.append(given) or route(*given))
        assert pull.routes() and len(asked) == 1
    finally:
        source.close()


def test_parts_of_every_kind_come_as_they_were_asked_for(a, b):
    """Whole, of one stride, of several, and such as are in no memory of the daemon's, in one request."""
    rng = numpy.random.default_rng(1)
    values = [rng.standard_normal((2, 4, 6)).astype("f4") for _ in range(3)]
    shared = a.empty((2, 4, 6)).numpy()
    shared[:] = values[0]
    turned = a.empty((2, 4, 6)).numpy()
    turned[:] = values[1]
    source = Source(a)
    try:
        source.offer("kinds", [shared, turned.transpose(2, 0, 1), values[2]])
        leaves, _ = ask(source.address, "kinds", 20)
        tensors = [shared, turned.transpose(2, 0, 1), values[2]]
        parts = [
            Part(0),
            Part(0, (0, 1, 0), (2, 2, 6)),
            Part(0, (0, 1, 2), (2, 2, 3)),
            Part(1),
            Part(1, (1, 0, 0), (3, 2, 2)),
            Part(2),
            Part(2, (0, 0, 3), (1, 4, 3)),
        ]
        pull = Pull(b, source.address, "kinds", [leaves[part.leaf] for part in parts], parts)
        for part, got in zip(parts, pull.wait(20), strict=True):
            whole = tensors[part.leaf]
            assert (got.numpy() == (whole if part.size is None else whole[slices(part.offset, part.size)])).all(), part
        assert pull.copied == 4
    finally:
        source.close()
