# SPDX-License-Identifier: Apache-2.0
"""Boxes of tensors as the ends of transfers, found by arithmetic on where the whole tensor is: to have a framework slice it,
and to look at the slice, takes several times as long. What the adapters post in place of trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ferry._post import Item, Places
from ferry._tree import path_key
from ferry._views import View
from ferry.errors import InvalidArgumentError

Box = Optional[Sequence[int]]


def part_key(base: bytes, number: int) -> bytes:
    """Of part `number` of a request, alike at both ends."""
    return path_key(base, (str(number),))


def box_of(view: View, offset: Box, size: Box) -> View:
    """The box of a tensor that begins at `offset` and has `size`, both in elements; None: all of it. Of whole bytes."""
    if offset is None or size is None:
        return view
    strides = view.strides
    if strides is None:
        item, made = view.dtype.bits // 8, [0] * len(view.shape)
        for i in range(len(made) - 1, -1, -1):
            made[i], item = item, item * view.shape[i]
        strides = tuple(made)
    address = view.address + sum(map(int.__mul__, offset, strides))
    return View(address, tuple(size), strides, view.dtype, view.owner, ordinal=view.ordinal)


def end_of(places: Places, view: View, offset: Box = None, size: Box = None) -> Optional[Item]:
    """A box as the end of a transfer that has no key yet; None: it is in no memory that the daemon sees, or not of one
    stride."""
    if view.unpacked or view.dtype.bits < 8:
        if offset is not None:
            return None
        box = view
    else:
        box = box_of(view, offset, size)
    try:
        where = places.of(box)
    except InvalidArgumentError:
        return None
    return None if where is None else Item(b"", where, view.dtype, box.shape, view.owner)
