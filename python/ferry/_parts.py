# SPDX-License-Identifier: Apache-2.0
"""Boxes of tensors as the ends of transfers, found by arithmetic on where the whole tensor is: to have a framework slice it,
and to look at the slice, takes several times as long. What the adapters post in place of trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Optional

from ferry import _abi
from ferry._future import Future
from ferry._post import Copies, Item, Places
from ferry._session import Session
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


def nbytes_of(shape: Sequence[int], bits: int) -> int:
    return (math.prod(shape) * bits + 7) // 8


def routes_of(futures: Sequence[Future[Any]]) -> list[str]:
    """What the first transfer of each call took, each route once. To ask of each transfer is a call to the daemon for each."""
    lib = _abi.library()
    posts = [post for future in futures for post in future._posts]
    return sorted({_abi.ROUTES[lib.ferry_transfer_route(post.session.handle, post.first_id)] for post in posts})


def receive(session: Session, items: Sequence[Item], frm: int, deadline: float) -> Future[None]:
    """Receives what `end_of` gave, with keys."""
    options = session._options(deadline, 0, "any")
    return Future(session._post("ferry_cross_host_receive", [(list(items), Copies([], 0))], frm, options)[0], None)
