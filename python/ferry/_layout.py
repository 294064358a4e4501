# SPDX-License-Identifier: Apache-2.0
"""Which box of a tensor each rank has, what of it moves for another layout, and what a transfer takes for a box."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from ferry._memory import shape_of
from ferry._post import Ranges
from ferry._views import blocks_of, view_of
from ferry.errors import invalid

_MOST_RANGES = 20_000  # of one transfer: what a call holds


class Region(NamedTuple):
    """A box of a tensor: where it begins, and its size, in each dimension."""

    offset: tuple[int, ...]
    size: tuple[int, ...]

    def within(self, home: Region) -> Region:
        """The same box, counted from where `home` begins. Raises nothing."""
        return Region(tuple(begin - base for begin, base in zip(self.offset, home.offset, strict=True)), self.size)


class Layout:
    """Which part of a tensor each rank has, as torch.distributed.tensor places it. Arithmetic alone: no process group.

    shape: of the whole tensor. mesh: the ranks, nested lists of them for a mesh of several dimensions, or a DeviceMesh.
    placements: one for each dimension of the mesh: a ``Shard`` or ``Replicate`` of torch's, or the dimension that is sharded,
    or None. InvalidArgumentError if they do not fit each other, or are ``Partial``.
    """

    def __init__(self, shape: Any, mesh: Any, placements: Sequence[Any]) -> None:
        self.shape = shape_of(shape)
        mesh = getattr(mesh, "mesh", mesh)  # of a DeviceMesh
        mesh = mesh.tolist() if hasattr(mesh, "tolist") else mesh
        self.mesh_shape, self.ranks = _flat(mesh)
        self.placements = tuple(_dimension(placement, len(self.shape)) for placement in placements)
        if len(self.placements) != len(self.mesh_shape):
            raise invalid(f"a mesh of {len(self.mesh_shape)} dimensions with {len(self.placements)} placements", "placements")
        if len(set(self.ranks)) != len(self.ranks):
            raise invalid("a rank is in the mesh twice", "mesh")

    @classmethod
    def of(cls, tensor: Any) -> Layout:
        """Of a DTensor. InvalidArgumentError for placements that say not which bytes a rank has."""
        return cls(tuple(tensor.shape), tensor.device_mesh.mesh, tensor.placements)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def region(self, rank: int) -> Region:
        """What `rank` has, in elements. The last ranks of a dimension may have less than the others, or nothing.
        InvalidArgumentError for a rank that is not in the mesh."""
        if rank not in self.ranks:
            raise invalid(f"rank {rank} is not in the mesh of ranks {self.ranks}", "rank")
        place = self.ranks.index(rank)
        offset, size = [0] * len(self.shape), list(self.shape)
        for i, dimension in enumerate(self.placements):
            count = self.mesh_shape[i]
            coordinate = place // math.prod(self.mesh_shape[i + 1 :]) % count
            if dimension is None:
                continue
            each = -(-size[dimension] // count)
            begin = min(size[dimension], each * coordinate)
            offset[dimension] += begin
            size[dimension] = min(each, size[dimension] - begin)
        return Region(tuple(offset), tuple(size))

    def pieces(self, other: Layout) -> Iterator[tuple[int, int, Region]]:
        """(rank that has it, rank of `other` that needs it, what) of all that must move for `other`: the same at both ends. Of
        ranks that have the same, each is asked by some of the others. InvalidArgumentError for layouts of different shapes."""
        if self.shape != other.shape:
            raise invalid(f"a tensor of shape {self.shape} cannot become one of shape {other.shape}", "shape")
        holders: dict[Region, list[int]] = {}
        for rank in self.ranks:
            holders.setdefault(self.region(rank), []).append(rank)
        for i, needs in enumerate(other.ranks):
            wanted = other.region(needs)
            for region, ranks in holders.items():
                common = overlap(region, wanted)
                if common is not None:
                    yield ranks[i % len(ranks)], needs, common


def _flat(mesh: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if not isinstance(mesh, (list, tuple, range)):
        try:
            return (), (operator.index(mesh),)
        except TypeError:
            raise invalid(f"a mesh is nested lists of ranks, not {mesh!r}", "mesh") from None
    parts = [_flat(part) for part in mesh]
    if not parts or len({shape for shape, _ in parts}) != 1:
        raise invalid("a mesh is nested lists of ranks, of the same length in each dimension", "mesh")
    return (len(parts), *parts[0][0]), tuple(itertools.chain.from_iterable(ranks for _, ranks in parts))


def _dimension(placement: Any, dimensions: int) -> Optional[int]:
    if placement is None or getattr(placement, "is_replicate", bool)():
        return None
    made = placement if isinstance(placement, int) else getattr(placement, "dim", None)
    if made is None or getattr(placement, "is_partial", bool)() or getattr(placement, "split_factor", 1) != 1:
        raise invalid(f"{placement} says not which bytes a rank has: redistribute to Shard and Replicate first", "placements")
    if not -dimensions <= made < dimensions:
        raise invalid(f"a tensor of {dimensions} dimensions has no dimension {made}", "placements")
    return int(made % dimensions)


def overlap(a: Region, b: Region) -> Optional[Region]:
    """What is in both; None: nothing."""
    begin = [max(pair) for pair in zip(a.offset, b.offset, strict=True)]
    ends = [
        min(first + some, second + others)
        for first, some, second, others in zip(a.offset, a.size, b.offset, b.size, strict=True)
    ]
    size = tuple(end - start for start, end in zip(begin, ends, strict=True))
    return Region(tuple(begin), size) if all(one > 0 for one in size) else None


def slices(region: Region, home: Region) -> tuple[slice, ...]:
    """A region as what has `home` is indexed."""
    return tuple(slice(begin, begin + size) for begin, size in zip(*region.within(home), strict=True))


def piece(local: Any, home: Region, region: Region, copies: bool) -> Any:
    """Of a local tensor what `send` and `recv` take: a view, or its runs of bytes as ranges."""
    view: Any = local[slices(region, home)]
    if copies:
        return view.contiguous() if hasattr(view, "contiguous") else view.copy()
    try:
        blocks_of(view_of(view))
        return view
    except ValueError:  # not of one stride
        runs = list(_runs(view))
    if len(runs) > _MOST_RANGES:
        raise invalid(f"the part {region} of a tensor is {len(runs)} runs of bytes: send it in a contiguous copy", "tensor")
    return Ranges(runs)


def _runs(view: Any) -> Iterator[Any]:
    """The views of a view whose elements follow each other, in order."""
    try:
        if blocks_of(view_of(view))[2] == 1:
            yield view
            return
    except ValueError:
        pass
    for part in view:
        yield from _runs(part)
