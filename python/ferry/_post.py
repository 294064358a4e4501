# SPDX-License-Identifier: Apache-2.0
"""From tensors and keys to the C structs of a call: where the bytes of each are, copied once if no arena has them."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional, Union

from ferry import _abi, _cuda, _streams
from ferry._dtypes import DType
from ferry._imports import PoolPlaces
from ferry._memory import ALIGNMENT, Arena, Tensor
from ferry._tree import flatten, shown
from ferry._views import View, blocks_of, leaf_view, named, packed, view_of
from ferry.errors import InvalidArgumentError, check, invalid, refused, take

_TRANSFER = struct.Struct("@QQQQQQQi4xQQiIQQ")
_RANGE = struct.Struct("@QQQ")
assert _TRANSFER.size == ctypes.sizeof(_abi.Transfer) and _RANGE.size == ctypes.sizeof(_abi.Range)
# A call holds 1 MiB as it is coded; these are at least what an entry, and a range or an index, come to.
_CALL_BYTES = 900_000
_ENTRY_BYTES, _PIECE_BYTES = 160, 32
FIRST_BYTES = 256 << 20  # bytes of a large tree's first part: a GPU moves them while the next part is made ready (`parted`)


class Ranges:
    """Tensors whose bytes, in this order, are one transfer. Their type and shape are not compared."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: Sequence[Any]) -> None:
        try:
            self.tensors = tuple(tensors)
        except TypeError:
            raise invalid(f"ranges are a sequence of tensors, not {tensors!r}", "tensors") from None


class Blocks:
    """Blocks of equal size picked by index, as in a paged KV cache: block i is the `block_bytes` from
    ``i * block_bytes`` of `tensor`; None: a row of its first dimension. Indices are integers below 2^64, in order."""

    __slots__ = ("block_bytes", "indices", "tensor")

    def __init__(self, tensor: Any, indices: Iterable[int], block_bytes: Optional[int] = None) -> None:
        self.tensor, self.indices, self.block_bytes = tensor, indices, block_bytes


class Strided(NamedTuple):
    """Bytes of an arena as `count` blocks, their starts `stride` bytes apart."""

    arena: Arena
    offset: int
    block: int
    stride: int
    blocks: int


class Table(NamedTuple):
    arena: Arena
    offset: int
    block: int
    indices: Any  # of ctypes


Where = Union[list[tuple[Arena, int, int]], Strided, Table]


class Item(NamedTuple):
    """One end of one transfer: its key, where its bytes are, its type and shape (None: not compared). `owner` keeps them,
    if they are in memory of somebody else."""

    key: bytes
    where: Where
    dtype: Optional[DType]
    shape: Optional[tuple[int, ...]]
    owner: Any = None

    @property
    def coded_bytes(self) -> int:
        if isinstance(self.where, list):
            return _ENTRY_BYTES + _PIECE_BYTES * len(self.where)
        return _ENTRY_BYTES + (3 * len(self.where.indices) if isinstance(self.where, Table) else 0)


def arena_of(where: Where) -> Arena:
    return where[0][0] if isinstance(where, list) else where.arena


class Places:
    """Finds where the tensors of one call lie; what is the same for all of them is asked once."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self._pool: Optional[PoolPlaces] = None

    def of(self, view: View) -> Optional[Where]:
        """Where a view lies in the session's arenas; None if in none of them, or not as it is sent."""
        return self.find(view)[0]

    def find(self, view: View) -> tuple[Optional[Where], str]:
        """The same; and of memory of a GPU that the session did not make what it is, or why it cannot be shared."""
        if view.unpacked:
            return None, ""
        block, stride, count = blocks_of(view)
        owner, session = view.owner, self.session
        reach = stride * (count - 1) + block
        arena = owner._arena if isinstance(owner, Tensor) else session.arenas.find(view.address, reach)
        how = ""
        if arena is not None and arena.session is session:
            pieces = [(arena, view.address - arena.address, reach)]
        elif view.ordinal < 0 or isinstance(owner, Tensor) or not view.nbytes:
            return None, ""
        else:
            found, how = self._of_gpu(view, reach)
            if found is None:
                return None, how
            pieces = found
        if count == 1 or stride == block:
            return pieces, how
        if len(pieces) != 1:
            return None, "its blocks are in several allocations: make it contiguous"
        return Strided(pieces[0][0], pieces[0][1], block, stride, count), how

    def _of_gpu(self, view: View, reach: int) -> tuple[Optional[list[tuple[Arena, int, int]]], str]:
        if self._pool is None:
            _streams.refuse_capture("a tensor of a GPU was to be sent or received")
            self._pool = PoolPlaces(self.session)
        pool = self._pool.find(view, reach)
        if pool is not None:
            return pool, "an allocation of ferry.torch.mem_pool"
        place: tuple[Optional[list[tuple[Arena, int, int]]], str] = self.session.imports.place(self.session, view, reach)
        return place


def place_of(session: Any, view: View) -> Optional[Where]:
    """Places.of, of one view."""
    return Places(session).of(view)


def explained(session: Any, tree: Any) -> Any:
    """What Session.explain says: of each leaf."""
    places, (leaves, build) = Places(session), flatten(tree)
    return build([_explained(places, path, leaf) for path, leaf in leaves])


def _explained(places: Places, path: tuple[str, ...], leaf: Any) -> str:
    if isinstance(leaf, (Ranges, Blocks)):
        where = items_of(places.session, [(b"explain", leaf)], 0, copies=False)[0][0].where
        return _zero_copy(where, "")
    try:
        view = view_of(leaf)
        where_or_none, how = places.find(view)
        if where_or_none is None:
            _contiguous(view, "the tensor")
    except InvalidArgumentError as error:
        raise (named(error, "/".join(path).encode(errors="replace")) if path else error) from None
    if where_or_none is not None:
        return _zero_copy(where_or_none, f" ({how})" if how else "")
    if view.ordinal >= 0:
        return f"copied once, on the GPU: {how or 'it is in no memory that the daemon sees'}"
    return f"copied once: the {view.nbytes} bytes are in no arena of this session (Session.empty makes one)"


def _zero_copy(where: Where, how: str) -> str:
    device = arena_of(where).device
    if isinstance(where, Strided):
        return f"zero-copy: {where.blocks} blocks, one every {where.stride} bytes, of an arena on device {device}{how}"
    if isinstance(where, Table):
        return f"zero-copy: {len(where.indices)} blocks of {where.block} bytes by index, of an arena on device {device}{how}"
    if len(where) > 1:
        return f"zero-copy: {len(where)} ranges, of {len({id(one[0]) for one in where})} arenas on device {device}{how}"
    arena, offset, length = where[0]
    return f"zero-copy: bytes {offset} to {offset + length} of an arena of {arena.nbytes} on device {arena.device}{how}"


def _table(places: Places, blocks: Blocks, view: View) -> Table:
    where = places.of(view)
    if not isinstance(where, list):
        raise invalid("blocks are picked from a contiguous tensor in an arena: see Session.empty", "tensor")
    if len(where) != 1:
        raise invalid(
            f"blocks are picked from one arena, and the tensor is in {len(where)}: see ferry.torch.mem_pool", "tensor"
        )
    arena, offset, nbytes = where[0]
    size = nbytes // view.shape[0] if view.shape and view.shape[0] else 0
    if blocks.block_bytes is not None:
        try:
            size = operator.index(blocks.block_bytes)
        except TypeError:
            raise invalid(f"block_bytes is an integer, not {blocks.block_bytes!r}", "block_bytes") from None
    if not 1 <= size < 1 << 63:
        raise invalid(f"blocks need block_bytes from 1 and below 2^63, or a tensor with rows: {size} do not do", "block_bytes")
    return Table(arena, offset, size, _indices(blocks.indices, size, nbytes))


def _indices(given: Any, size: int, nbytes: int) -> Any:
    """As the library takes them, each of a block that lies in the `nbytes` of the tensor: the library itself knows the arena
    alone, in which other tensors are too."""
    if getattr(given, "ndim", 1) != 1:
        raise invalid(f"block indices are integers in one row, not of shape {tuple(given.shape)}", "indices")
    name = str(getattr(given, "dtype", "")).rpartition(".")[2]
    if name == "bool":
        raise _mask()
    if name == "uint64" and hasattr(given, "flags") and given.flags.c_contiguous and given.dtype.isnative:
        made = (ctypes.c_uint64 * len(given)).from_buffer_copy(given)
        first, last = 0, int(given.max(initial=0))
    else:
        try:
            given = given.tolist() if hasattr(given, "tolist") else list(given)
            first, last = min(given, default=0), max(given, default=0)
            made = (ctypes.c_uint64 * len(given))(*given)
        except TypeError:
            raise invalid("block indices are integers in one row", "indices") from None
        if bool in set(map(type, given)):
            raise _mask()
    if first < 0:
        raise invalid(f"a block index is negative: {first}", "indices")
    if len(given) and (last + 1) * size > nbytes:
        beyond = f"block {last} is not inside the tensor, which has {nbytes // size} blocks of {size} bytes"
        raise InvalidArgumentError(beyond, "RANGE_INVALID", (("indices", beyond),))  # as the library says of an arena
    return made


def _mask() -> InvalidArgumentError:
    return invalid(
        "block indices are integers, not a mask of bools: give numpy.flatnonzero(mask), or mask.nonzero()", "indices"
    )


class Copies(NamedTuple):
    """What a call had to copy: into which arenas of the stage, and how many bytes."""

    arenas: list[Arena]
    nbytes: int


def parted(leaves: Sequence[tuple[bytes, Any]]) -> Iterable[Sequence[tuple[bytes, Any]]]:
    """The leaves of a large tree in parts, each of twice the bytes of the one before: the first ones move while the others are
    looked at, which takes some 15 us a tensor of a GPU."""
    begin, nbytes, enough = 0, 0, FIRST_BYTES
    for i, (_, leaf) in enumerate(leaves, 1):
        nbytes += _bytes_of(leaf)
        if nbytes >= enough:
            yield leaves[begin:i]
            begin, nbytes, enough = i, 0, 2 * enough
    if begin < len(leaves):
        yield leaves[begin:]


def _bytes_of(leaf: Any) -> int:
    """As it says itself, if it does: sparse tensors of PyTorch raise, and whatever is refused is so with its key, later."""
    try:
        nbytes = leaf.nbytes
    except Exception:
        return 0
    return nbytes if isinstance(nbytes, int) else 0


def _contiguous(view: View, what: str) -> None:
    """As what is copied must be."""
    if not view.unpacked and blocks_of(view)[2] != 1:
        raise invalid(
            f"{what} is not contiguous and in no arena: make it contiguous (numpy.ascontiguousarray, .contiguous()), or make "
            "it by Session.empty",
            "tensor",
        )


def items_of(
    session: Any, leaves: Sequence[tuple[bytes, Any]], device: int, copies: bool, argument: str = "into"
) -> tuple[list[Item], Copies]:
    """What each (key, leaf) is. A leaf that is in no arena is copied if `copies`, else refused: into one on `device`, or on its
    own GPU, of the session's stage, which are given too."""
    places = Places(session)
    items: list[Optional[Item]] = []
    staged: list[tuple[int, bytes, View]] = []
    for key, leaf in leaves:
        if type(leaf) is Tensor and leaf._arena.session is session:  # the many, made quick
            items.append(Item(key, [(leaf._arena, leaf._offset, leaf.nbytes)], leaf._dtype, leaf.shape))
        elif isinstance(leaf, Ranges):
            pieces: list[tuple[Arena, int, int]] = []
            for part in leaf.tensors:
                where = places.of(leaf_view(key, part))
                if not isinstance(where, list):
                    raise invalid("ranges are contiguous tensors in arenas: see Session.empty", "tensors")
                pieces += where
            if len({(arena.session, arena.device) for arena, _, _ in pieces}) != 1:
                raise invalid("ranges of one transfer are on one device, in memory of one session, and at least one", "tensors")
            items.append(Item(key, pieces, None, None, leaf))
        elif isinstance(leaf, Blocks):
            items.append(Item(key, _table(places, leaf, leaf_view(key, leaf.tensor)), None, None, leaf))
        else:
            view = leaf_view(key, leaf)
            try:
                found, why = places.find(view)
            except InvalidArgumentError as error:
                raise named(error, key) from None
            if found is not None:
                items.append(Item(key, found, view.dtype, view.shape, view.owner))
                continue
            if isinstance(leaf, Tensor) and leaf._arena.session.is_gpu(leaf.device):
                raise invalid(f"the tensor of key {shown(key)} is a GPU's, of another session: use that one", "tensor")
            if not copies:
                raise invalid(
                    f"the memory of key {shown(key)} is in no arena of this session, and "
                    + ("only a send copies" if argument == "into" else "what is prepared is not copied")
                    + f": make it by Session.empty{', or have it made by like= or shape=' if argument == 'into' else ''}"
                    + (f". {why}" if why else ""),
                    argument,
                )
            _contiguous(view, f"the tensor of key {shown(key)}")
            staged.append((len(items), key, view))
            items.append(None)
    return _copies(session, device, staged, items)


def _copies(
    session: Any, device: int, staged: list[tuple[int, bytes, View]], items: list[Optional[Item]]
) -> tuple[list[Item], Copies]:
    arenas = []
    for ordinal in sorted({view.ordinal for _, _, view in staged}):
        some = [entry for entry in staged if entry[2].ordinal == ordinal]
        where = device if ordinal < 0 else session.gpu_of(ordinal)
        if where is None:
            raise invalid(
                f"the tensor of key {shown(some[0][1])} is on CUDA device {ordinal}, which is none of the GPUs of this node's "
                "daemon: `ferryctl devices` lists them",
                "tensor",
            )
        arenas.append(_copy(session, where, ordinal, some, items))
    return [item for item in items if item is not None], Copies(arenas, sum(view.nbytes for _, _, view in staged))


def _copy(session: Any, device: int, ordinal: int, staged: list[tuple[int, bytes, View]], items: list[Optional[Item]]) -> Arena:
    """Of host memory now, of a GPU's by its current stream."""
    total = sum(-(-view.nbytes // ALIGNMENT) * ALIGNMENT for _, _, view in staged)
    lane = None if ordinal < 0 else _streams.current_handle(ordinal)
    arena: Arena = session.stage.take(session, device, max(1, total), lane)
    offset = 0
    for place, key, view in staged:
        if view.nbytes and lane is None:
            halves = packed(view) if view.unpacked else None
            source = view.address if halves is None else halves.ctypes.data
            check(_abi.library().ferry_arena_write(arena.handle, offset, source, view.nbytes))
        elif view.nbytes and lane is not None:
            with _cuda.driver().current(ordinal):
                _cuda.driver().copy(arena.address + offset, view.address, view.nbytes, lane)
        items[place] = Item(key, [(arena, offset, view.nbytes)], view.dtype, view.shape, view.owner)
        offset += -(-view.nbytes // ALIGNMENT) * ALIGNMENT
    if lane is not None:
        with _cuda.driver().current(ordinal):
            arena.events = _cuda.driver().event(lane, arena.events or ())
    return arena


def split(items: Sequence[Item], most: int) -> Iterable[tuple[Arena, list[Item]]]:
    """(an arena, items) of each call: those of one device of one session together, as many as a call holds."""
    by_home: dict[tuple[Any, int], list[Item]] = {}
    for item in items:
        where = item.where
        arena = where[0][0] if isinstance(where, list) else where.arena  # as arena_of, for the many
        by_home.setdefault((arena.session, arena.device), []).append(item)
    for all_of_it in by_home.values():
        home = arena_of(all_of_it[0].where)
        begin, size = 0, 0
        for i, item in enumerate(all_of_it):
            if i > begin and (i - begin == most or size + item.coded_bytes > _CALL_BYTES):
                yield home, all_of_it[begin:i]
                begin, size = i, 0
            size += item.coded_bytes
        yield home, all_of_it[begin:]


def coded(items: Sequence[Item], remote: int, defined: Optional[_streams.Defined] = None) -> tuple[Any, list[Any]]:
    """The array of ferry_transfer, and what must live as long as it. `defined`: when the bytes may be touched; None: now."""
    when = (0, 0, 0) if defined is None else (1, defined.timeline, defined.value)
    keys = ctypes.create_string_buffer(b"".join(item.key for item in items))
    flat = [piece for item in items if isinstance(item.where, list) for piece in item.where]
    ranges = ctypes.create_string_buffer(max(1, _RANGE.size * len(flat)))
    for i, (arena, offset, length) in enumerate(flat):
        _RANGE.pack_into(ranges, i * _RANGE.size, arena.handle, offset, length)
    sizes = [size for item in items if item.shape for size in item.shape]
    dims = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    made = ctypes.create_string_buffer(_TRANSFER.size * len(items))
    kept: list[Any] = [keys, ranges, dims]
    key_at, range_at, dim_at = ctypes.addressof(keys), ctypes.addressof(ranges), ctypes.addressof(dims)
    for i, (key, where, dtype, shape, _) in enumerate(items):
        pieces = range_place = strided = blocks = 0
        if isinstance(where, list):
            pieces, range_place = len(where), range_at
            range_at += pieces * _RANGE.size
        else:
            one = _piece(where)
            kept.append(one)
            strided, blocks = (ctypes.addressof(one), 0) if isinstance(where, Strided) else (0, ctypes.addressof(one))
        dim_count = len(shape) if shape else 0
        _TRANSFER.pack_into(
            made, i * _TRANSFER.size, remote, key_at, len(key), range_place, pieces, strided, blocks,
            dtype.number if dtype else 0, dim_at if shape is not None else 0, dim_count, *when, 0,
        )  # fmt: skip
        key_at += len(key)
        dim_at += 8 * dim_count
    return made, kept


def _piece(where: Union[Strided, Table]) -> Any:
    if isinstance(where, Strided):
        return _abi.StridedRange(where.arena.handle, where.offset, where.block, where.stride, where.blocks)
    indices = ctypes.addressof(where.indices) if len(where.indices) else None  # which the library wants of none
    return _abi.BlockTable(where.arena.handle, where.offset, where.block, indices, len(where.indices))


def post(call: Any, session: Any, device: int, made: Any, keys: Sequence[bytes], options: Any) -> int:
    """The handle that one of the library's posting functions gives for the transfers of `keys`."""
    handle = ctypes.c_void_p()
    error = take(call(session.handle, device, ctypes.addressof(made), len(keys), options, ctypes.byref(handle)))
    if error is not None:
        raise refused(error, keys)
    assert handle.value is not None
    return handle.value
