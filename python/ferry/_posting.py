# SPDX-License-Identifier: Apache-2.0
"""Posting, as sessions and adapters do it: what is coded becomes calls of the library, each told by a counter of its own."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from ferry import _abi, _columns
from ferry._future import Future, Post, cancel_soon, id_to_continue
from ferry._memory import Arena, Tensor
from ferry._options import post_options
from ferry._post import Copies, Item, arena_of, coded, post, split
from ferry._prepared import Prepared, release_soon
from ferry._streams import Defined
from ferry.errors import invalid

Parts = Iterable[tuple[Sequence[Item], Copies]]


def options_of(
    session: Any, deadline: Optional[float], priority: int = 0, route: str = "any", continues: Optional[Future[Any]] = None
) -> Any:
    """ferry_post_options of a post of `session`. InvalidArgumentError by the argument's name."""
    options = post_options(session.domain, deadline, priority, route)
    if continues is not None:
        if not isinstance(continues, Future):
            raise invalid(f"continues is a ferry.Future of this session, not {continues!r}", "continues")
        options.continues = id_to_continue(continues, session)
    return options


def send(session: Any, parts: Parts, to: int, deadline: float) -> Future[None]:
    """Sends what `parts` are, with their keys, to device `to`. Raises what Session.send does."""
    posts, copied = session._post("ferry_cross_host_send", parts, to, options_of(session, deadline))
    return Future(posts, None, copied)


def receive(session: Any, items: Sequence[Item], frm: int, deadline: float) -> Future[None]:
    """Receives what `items` are, with their keys, from device `frm`. Raises what Session.recv does."""
    parts = [(items, Copies([], 0))]
    return Future(session._post("ferry_cross_host_receive", parts, frm, options_of(session, deadline))[0], None)


def post_parts(session: Any, name: str, parts: Parts, there: int, options: Any, ordered: bool = True) -> tuple[list[Post], int]:
    """The posts of one tree, and how many bytes were copied for them. If anything of it is refused, what of it was posted
    is cancelled, at both ends: a half of a tree is of no use to anybody."""
    posts: list[Post] = []
    copied = 0
    try:
        for items, copies in parts:
            before = len(posts)
            for home, some in split(items, session.limits.batch_transfers):
                owner = home.session  # which is another one for the memory of ferry.torch.mem_pool
                made, kept = coded(some, there, _defined(owner, home) if ordered else None)
                posts.append(_posted(owner, name, home, made, [item.key for item in some], some, options, kept))
                if owner is session and not options.continues:  # the parts of one call are one thing
                    options.continues = posts[-1].first_id
            for arena in copies.arenas:
                session.stage.give(arena, [one.end for one in posts[before:]])
            copied += copies.nbytes
    except BaseException:
        cancel_soon(posts)
        raise
    return posts, copied


def post_columns(session: Any, name: str, tensor: Any, there: int, columns: Any, options: Any) -> list[Post]:
    """The posts of (keys, offsets, lengths), as `post_parts`."""
    keys, offsets, lengths = columns
    table = _columns.Columns(tensor, there, keys, offsets, lengths, _defined(session, tensor._arena))
    posts: list[Post] = []
    try:
        for rows, keys in table.calls(session.limits.batch_transfers):
            posts.append(_posted(session, name, tensor._arena, rows, keys, tensor, options, table))
            if not options.continues:  # the parts of one call are one thing
                options.continues = posts[-1].first_id
    except BaseException:
        cancel_soon(posts)
        raise
    return posts


def prepare(session: Any, name: str, items: Sequence[Item], there: int, options: Any, value: Any) -> Prepared:
    """A prepared batch of `items`, whose `value` it has."""
    lib = _abi.library()
    handles: list[int] = []
    keys: list[list[bytes]] = []
    ordinals = {arena_of(item.where).ordinal for item in items}
    try:
        for home, some in split(items, session.limits.batch_transfers):
            made, kept = coded(some, there)
            keys.append([item.key for item in some])
            given = (getattr(lib, name), home.session, home.device, made, keys[-1], ctypes.byref(options))
            handles.append(session.calls(post, *given, undo=lib.ferry_prepared_free, keep=(kept, some)))
    except BaseException:
        release_soon(Prepared(session, handles, keys, items, None))  # a half of a tree is of no use to anybody
        raise
    return Prepared(session, handles, keys, items, value, max(ordinals, default=-1))


def is_of(tensor: Any, session: Any) -> bool:
    """Whether it is a Tensor that `session` has made."""
    return isinstance(tensor, Tensor) and tensor._arena.session is session


def _posted(
    session: Any, name: str, home: Arena, made: Any, keys: Sequence[bytes], kept: Any, options: Any, meanwhile: Any
) -> Post:
    """One call, all or nothing. `meanwhile` lives as long as the library reads it."""
    given = (session, name, home, made, keys, kept, options)
    one: Post = session.calls(_post, *given, undo=_undone, keep=(meanwhile, options))
    return one


def _undone(one: Post) -> None:
    cancel_soon([one])


def _post(session: Any, name: str, home: Arena, made: Any, keys: Sequence[bytes], kept: Any, options: Any) -> Post:
    """Told by a counter of its own. Of a GPU `kept` is kept until it is over."""
    lib, counter = _abi.library(), session.counters.take(home.device)
    options.over_timeline = counter.number
    try:
        handle = post(getattr(lib, name), session, home.device, made, keys, ctypes.byref(options))
    except BaseException:
        session.counters.refused(counter)
        raise
    end = (lib.ferry_batch_timeline(handle), lib.ferry_batch_first_value(handle) + len(keys) - 1)
    session.counters.posted(counter, end[1])
    if home.ordinal >= 0:
        session.kept.add(end, kept)
    return Post(session, handle, keys, kept, end, home.ordinal)


def _defined(session: Any, home: Arena) -> Optional[Defined]:
    """Behind the current stream, if it is memory of a GPU."""
    made: Optional[Defined] = session.streams.define(home.ordinal) if home.ordinal >= 0 else None
    return made
