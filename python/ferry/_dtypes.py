# SPDX-License-Identifier: Apache-2.0
"""Element types: Ferry's number, bits, and the names that NumPy, ml_dtypes, torch and DLPack have for them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from ferry.errors import invalid


class DType(NamedTuple):
    """An element type. `typestr` is that of the array interface, "" where NumPy itself has none; `dlpack` is
    (code, bits), or None."""

    name: str
    number: int
    bits: int
    typestr: str
    dlpack: Optional[tuple[int, int]]

    def nbytes(self, shape: Iterable[int]) -> int:
        """Of so many elements, as they are sent: of less than a byte each, they follow each other."""
        return (math.prod(shape) * self.bits + 7) // 8


ALL = (
    DType("bool", 1, 8, "|b1", (6, 8)),
    DType("int8", 2, 8, "|i1", (0, 8)),
    DType("int16", 3, 16, "<i2", (0, 16)),
    DType("int32", 4, 32, "<i4", (0, 32)),
    DType("int64", 5, 64, "<i8", (0, 64)),
    DType("uint8", 6, 8, "|u1", (1, 8)),
    DType("uint16", 7, 16, "<u2", (1, 16)),
    DType("uint32", 8, 32, "<u4", (1, 32)),
    DType("uint64", 9, 64, "<u8", (1, 64)),
    DType("float16", 10, 16, "<f2", (2, 16)),
    DType("bfloat16", 11, 16, "", (4, 16)),
    DType("float32", 12, 32, "<f4", (2, 32)),
    DType("float64", 13, 64, "<f8", (2, 64)),
    DType("complex64", 14, 64, "<c8", (5, 64)),
    DType("complex128", 15, 128, "<c16", (5, 128)),
    DType("float8_e4m3fn", 16, 8, "", (10, 8)),
    DType("float8_e5m2", 17, 8, "", (12, 8)),
    DType("float8_e8m0fnu", 18, 8, "", (14, 8)),
    # Two elements a byte, the first in the lower half; ml_dtypes has one a byte.
    DType("float4_e2m1fn", 19, 4, "", None),
)
BY_NAME = {dtype.name: dtype for dtype in ALL}
BY_TYPESTR = {dtype.typestr: dtype for dtype in ALL if dtype.typestr}
_BY_CODE = {typestr[1:]: dtype for typestr, dtype in BY_TYPESTR.items()}  # such as "f4"
BY_DLPACK = {dtype.dlpack: dtype for dtype in ALL if dtype.dlpack}
_FORMATS = {"?": "bool", "e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128", "c": "uint8"}
_FORMATS |= {code: "int" for code in "bhilqn"} | {code: "uint" for code in "BHILQN"}
# Of the buffer protocol, in native order.
BY_FORMAT = {
    (code, size): BY_NAME[name if name not in ("int", "uint") else f"{name}{8 * size}"]
    for code, name in _FORMATS.items()
    for size in (1, 2, 4, 8, 16)
    if (BY_NAME[name].bits == 8 * size if name not in ("int", "uint") else size <= 8)
}
_ALIASES = {"half": "float16", "single": "float32", "double": "float64"}
_SCALARS: dict[Any, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def dtype_of(value: Any) -> DType:
    """Of a name ("bfloat16", "torch.bfloat16"), a NumPy or ml_dtypes dtype or scalar type, a torch dtype or a JAX one."""
    if isinstance(value, DType):
        return value
    if getattr(value, "byteorder", "=") == ">":
        raise invalid(f"elements of {value!r} are big-endian: Ferry has little-endian ones (.newbyteorder('<'))", "dtype")
    if isinstance(value, str):
        name = value
    elif isinstance(value, type) and value in _SCALARS:
        name = _SCALARS[value]
    elif isinstance(value, type):
        name = value.__name__
    else:
        name = getattr(value, "name", None) or str(value)
    name = name.rpartition(".")[2]
    found = BY_NAME.get(_ALIASES.get(name, name)) or BY_TYPESTR.get(name) or _BY_CODE.get(name)
    if found is None:
        hint = ": NumPy has 64 bits by this name, PyTorch 32" if name in ("float", "int") else ""
        if type(value).__module__ == "torch":
            hint = ", the bytes of whose tensors .view(torch.uint8) has, if they are whole"
        raise invalid(f"no element type is called {name!r}{hint}; known: {', '.join(BY_NAME)}", "dtype")
    return found


def numpy_dtype(dtype: DType) -> Any:
    """NumPy's dtype, by ml_dtypes where NumPy has none: ImportError if that is not installed."""
    import numpy

    if dtype.typestr:
        return numpy.dtype(dtype.typestr)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(f"NumPy has no {dtype.name}: pip install ml_dtypes") from None
    return numpy.dtype(getattr(ml_dtypes, dtype.name))
