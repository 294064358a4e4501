# SPDX-License-Identifier: Apache-2.0
"""Many transfers by columns: NumPy arrays become the C structs of a call without a Python object each."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from ferry import _abi
from ferry._memory import Tensor
from ferry._streams import Defined
from ferry._tree import KEY_BYTES
from ferry._views import named
from ferry.errors import invalid

_CALL_BYTES = 900_000


def struct_dtype(struct: Any) -> Any:
    """NumPy's dtype of a C struct of pointers and integers."""
    import numpy

    kinds = {ctypes.c_int: "i4", ctypes.c_int32: "i4", ctypes.c_uint32: "u4", ctypes.c_int64: "i8"}
    return numpy.dtype(
        {
            "names": [name for name, _ in struct._fields_],
            "formats": [kinds.get(kind, "u8") for _, kind in struct._fields_],
            "offsets": [getattr(struct, name).offset for name, _ in struct._fields_],
            "itemsize": ctypes.sizeof(struct),
        }
    )


class Keys(Sequence[bytes]):
    """The keys of a call, made into bytes only where somebody asks."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: Any) -> Any:
        one = self._column[index]
        return bytes(one) if isinstance(one, bytes) else one.tobytes()


class Call(NamedTuple):
    """What `ctypes.addressof` is asked of, and its keys."""

    rows: Any
    keys: Keys


class Columns:
    """ferry_transfer of each row. Columns of other lengths, keys that are too long and ranges outside are refused."""

    def __init__(
        self, tensor: Tensor, remote: int, keys: Any, offsets: Any, lengths: Any, defined: Optional[Defined] = None
    ) -> None:
        import numpy

        keys = _keys(keys)
        offsets, lengths = _unsigned(offsets, "offsets"), _unsigned(lengths, "lengths")
        if not len(keys) == len(offsets) == len(lengths):
            raise invalid(f"columns of {len(keys)} keys, {len(offsets)} offsets, {len(lengths)} lengths", "keys")
        outside = (offsets > tensor.nbytes) | (lengths > tensor.nbytes - offsets)
        if outside.any():
            row = int(numpy.flatnonzero(outside)[0])
            text = f"row {row}: {lengths[row]} bytes from {offsets[row]} are not inside a tensor of {tensor.nbytes}"
            raise named(invalid(text, f"offsets[{row}]"), Keys(keys)[row])
        ranges = numpy.empty(len(keys), struct_dtype(_abi.Range))
        ranges["arena"], ranges["length"] = tensor._arena.handle, lengths
        ranges["offset"] = offsets + numpy.uint64(tensor._offset)
        rows = numpy.zeros(len(keys), struct_dtype(_abi.Transfer))
        places: Any = numpy.arange(len(keys), dtype="u8")
        rows["remote_device"] = remote
        rows["key"] = places * numpy.uint64(keys.dtype.itemsize) + numpy.uint64(keys.ctypes.data)
        rows["key_bytes"] = numpy.char.str_len(keys) if keys.dtype.kind == "S" else keys.dtype.itemsize
        rows["ranges"] = places * numpy.uint64(ranges.itemsize) + numpy.uint64(ranges.ctypes.data)
        rows["range_count"] = 1
        if defined is not None:
            rows["has_defined_at"], rows["defined_timeline"], rows["defined_value"] = 1, defined.timeline, defined.value
        self._keys, self._ranges, self._rows = keys, ranges, rows

    def calls(self, most: int) -> Iterator[Call]:
        """In order, as many rows as a call holds."""
        each = min(most, _CALL_BYTES // (160 + self._keys.dtype.itemsize))
        for begin in range(0, len(self._rows), each):
            part = self._rows[begin : begin + each]
            raw = (ctypes.c_ubyte * part.nbytes).from_address(part.ctypes.data)
            yield Call(raw, Keys(self._keys[begin : begin + each]))


def _keys(given: Any) -> Any:
    """As bytes in a row: text as UTF-8; of type S, whose trailing NULs NumPy drops, of type V, or big-endian integers, as of a
    key that is an int. Rows of a uint8 matrix are keys of type V."""
    import numpy

    keys = _column(given, "keys")
    if keys.dtype == numpy.uint8 and keys.ndim == 2 and 1 <= keys.shape[1] <= KEY_BYTES:
        return numpy.ascontiguousarray(keys).view(f"V{keys.shape[1]}")[:, 0]
    if keys.dtype.kind in "iu":
        return numpy.ascontiguousarray(_unsigned(keys, "keys").astype(">u8")).view("V8")
    if keys.dtype.kind == "U":
        try:
            keys = numpy.char.encode(keys, "utf-8")
        except UnicodeEncodeError as error:
            raise invalid(f"keys have a text that has no form in UTF-8: {error.reason}", "keys") from None
    plain = keys.dtype.kind == "S" or (keys.dtype.kind == "V" and keys.dtype.names is None)
    if not plain or keys.ndim != 1 or not 1 <= keys.dtype.itemsize <= KEY_BYTES:
        raise invalid(
            f"keys are a column of text, bytes (S1 to S{KEY_BYTES}; V1 to V{KEY_BYTES}, or rows of uint8, where they may end "
            f"in NUL) or integers, not {keys.dtype}{keys.shape}",
            "keys",
        )
    return numpy.ascontiguousarray(keys)


def _column(given: Any, name: str) -> Any:
    import numpy

    try:
        return numpy.asarray(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"{name} are no column: {error}", name) from None


def _unsigned(column: Any, name: str) -> Any:
    column = _column(column, name)
    if column.ndim != 1 or column.dtype.kind not in "iu" or (column.dtype.kind == "i" and len(column) and column.min() < 0):
        raise invalid(f"{name} are a column of integers from 0, not {column.dtype}{column.shape}", name)
    return column.astype("u8", copy=False)
