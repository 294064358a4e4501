# SPDX-License-Identifier: Apache-2.0
"""Arrays of others, as they are: where their bytes are, on which device, of which type and strides. Of a GPU's they also bring
what their owner still has to do with them in order with the current stream (_streams)."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple, Optional

from ferry import _buffer, _cuda, _dlpack, _dtypes, _streams
from ferry._dtypes import DType, dtype_of
from ferry._memory import Tensor
from ferry._tree import shown
from ferry.errors import FerryError, UnimplementedError, invalid


class View(NamedTuple):
    """An array of somebody else: `strides` in bytes, None for row-major. `owner` keeps it. `unpacked`: one element of
    4 bits a byte, as ml_dtypes has them. `ordinal`: the GPU's in this process that it is on."""

    address: int
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    dtype: DType
    owner: Any
    unpacked: bool = False
    ordinal: int = -1

    @property
    def nbytes(self) -> int:
        """As it is sent."""
        return self.dtype.nbytes(self.shape)


def packed(view: View) -> Any:
    """The bytes of an unpacked view, two elements each, the first in the lower half: `unpacked` is the other way."""
    import numpy

    each = numpy.ascontiguousarray(view.owner).view("u1").reshape(-1) & 15
    if len(each) % 2:
        each = numpy.append(each, numpy.uint8(0))
    return each[0::2] | each[1::2] << 4


def view_of(array: Any) -> View:
    """A Tensor, a torch tensor of the CPU or a CUDA GPU, a NumPy array, anything else with ``__array_interface__``,
    ``__dlpack__`` or ``__cuda_array_interface__``, of host memory or a CUDA GPU, and bytes, memoryview and other contiguous
    buffers."""
    if isinstance(array, Tensor):
        return View(array.address, array.shape, None, array._dtype, array, ordinal=array._arena.ordinal)
    if getattr(array, "device_mesh", None) is not None and hasattr(array, "placements"):
        raise invalid(
            "a DTensor has its bytes in several processes: ferry.torch.send_shards and recv_shards move them, whatever the "
            "placements of the other end; or give its to_local()",
            "tensor",
        )
    if hasattr(array, "data_ptr") and (getattr(array, "is_cuda", False) or _is_torch(array)):
        return _torch_view(array)
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise _masked()
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):
        array = numpy.asarray(array)  # the interface of a scalar is that of memory which is gone at once
    interface = getattr(array, "__array_interface__", None)
    if interface is not None and isinstance(interface.get("data"), tuple):
        return _interface_view(array, interface)
    if hasattr(array, "__dlpack__"):
        return _dlpack_view(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    return _buffer_view(array) if interface is None else _cuda_interface_view(array, interface)


def leaf_view(key: bytes, leaf: Any) -> View:
    """view_of a tree's leaf, whose key is in what it raises."""
    try:
        return view_of(leaf)
    except FerryError as error:
        raise named(error, key) from None
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # of its owner: a tracer of JAX, an array that was deleted or donated
        said = f"key {shown(key)}: the bytes of a {type(leaf).__name__} cannot be seen: {type(error).__name__}: {error}"
        raise invalid(said, "tensor") from error


def named(error: FerryError, key: bytes) -> FerryError:
    """What is wrong with a leaf, with its key."""
    kind, (message, reason, violations, *_) = error.__reduce__()
    said = f"key {shown(key)}: {message}"
    made: FerryError = kind(said, reason, tuple((field, said) for field, _ in violations), None, (), (key,))
    return made


_torch_dtypes: dict[Any, DType] = {}
_numpy_dtypes: dict[Any, DType] = {}  # NumPy makes a type's name anew each time


def _masked() -> Exception:
    return invalid(
        "a masked array is two: its elements, and which of them count, and the mask would be lost: send .filled(value), or "
        "a dict of its .data and .mask",
        "tensor",
    )


def _interface_view(array: Any, interface: dict[str, Any]) -> View:
    numpy, kind = sys.modules.get("numpy"), getattr(array, "dtype", None)
    named = _numpy_dtypes.get(kind) if numpy is not None and isinstance(kind, numpy.dtype) else None
    if named is None:
        named = _interface_dtype(kind, interface["typestr"])
        if numpy is not None and isinstance(kind, numpy.dtype):
            _numpy_dtypes[kind] = named
    return View(interface["data"][0], tuple(interface["shape"]), interface.get("strides"), named, array, named.bits < 8)


def _dlpack_view(array: Any) -> View:
    if getattr(array, "requires_grad", False):
        array = array.detach()
    kind, ordinal = array.__dlpack_device__()
    if kind in _dlpack.OF_HOST:
        ordinal, said = -1, _dlpack.describe(array)
    elif kind in _dlpack.OF_CUDA:
        # Its owner has the current stream wait for what writes to it.
        with _streams.current_for_dlpack(ordinal) as stream:
            said = _dlpack.describe(array, stream=stream)
    else:
        raise UnimplementedError(
            f"the tensor is on DLPack device {int(kind)}:{ordinal}; this package takes tensors of host memory and of CUDA "
            "GPUs: copy it to one of these"
        )
    dtype = _dtypes.BY_DLPACK.get(said.dlpack)
    if dtype is None:
        raise invalid(f"elements of DLPack type {said.dlpack} have no type of Ferry: convert the tensor", "tensor")
    strides = None if said.strides is None else tuple(stride * dtype.bits // 8 for stride in said.strides)
    return View(said.address, said.shape, strides, dtype, (array, said.owner), ordinal=ordinal)


def _cuda_interface_view(array: Any, interface: dict[str, Any]) -> View:
    """Of Numba and others that have no DLPack. Its stream is None where its owner has nothing to do with it any more."""
    if interface.get("mask") is not None:
        raise _masked()
    dtype = _interface_dtype(getattr(array, "dtype", None), interface["typestr"])
    address, shape, strides = interface["data"][0] or 0, tuple(interface["shape"]), interface.get("strides")
    ordinal = _cuda.driver().ordinal_of(address) if address else 0  # an empty one has no address
    if ordinal is None:
        raise invalid(f"address {address:#x} of __cuda_array_interface__ is in no memory that CUDA knows", "tensor")
    _streams.follow(ordinal, interface.get("stream"))
    return View(address, shape, None if strides is None else tuple(strides), dtype, array, ordinal=ordinal)


def _interface_dtype(kind: Any, typestr: str) -> DType:
    named = _dtypes.BY_NAME.get(getattr(kind, "name", "")) or _dtypes.BY_TYPESTR.get(typestr)
    if named is None or typestr.startswith(">"):
        raise invalid(f"elements of {kind or typestr} have no type of Ferry: convert the array (.astype)", "tensor")
    return named


def _is_torch(array: Any) -> bool:
    """True of a tensor of torch's that is of the CPU, or has no bytes: of other devices it has DLPack."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor) or not hasattr(array, "is_conj"):
        return False
    kind: str = array.device.type
    return kind in ("cpu", "meta")


def _torch_view(tensor: Any) -> View:
    """Of torch, as it is: nothing waits for a stream."""
    if getattr(tensor, "is_meta", False):
        raise invalid("a meta tensor has a shape and a type, and no bytes: it may be given as like=", "tensor")
    if getattr(tensor, "is_quantized", False):
        raise invalid("a quantised tensor is more than its bytes: send its int_repr(), and its scale beside", "tensor")
    if tensor.is_conj() or tensor.is_neg():
        raise invalid("the tensor's bytes are not its values: .resolve_conj() or .resolve_neg() it first", "tensor")
    layout = tensor.layout
    if layout is not getattr(sys.modules.get("torch"), "strided", None) and "strided" not in str(layout):
        raise invalid(f"a tensor of layout {layout} is no bytes in a row: send what it is made of", "tensor")
    strides = None  # as of most
    if not tensor.is_contiguous():
        size = tensor.element_size()
        strides = tuple(stride * size for stride in tensor.stride())
    kind = tensor.dtype
    dtype = _torch_dtypes.get(kind) or _torch_dtypes.setdefault(kind, dtype_of(kind))
    address = tensor.data_ptr()
    if not address and tensor.numel():
        raise invalid(f"{_a(type(tensor).__name__)} has no memory of its own: send the tensors that it is made of", "tensor")
    return View(address, tuple(tensor.shape), strides, dtype, tensor, ordinal=tensor.get_device())


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiouAEIO' else 'a'} {kind}"


def _buffer_view(array: Any) -> View:
    try:
        buffer = _buffer.Buffer(array)
    except (TypeError, BufferError):
        raise invalid(
            f"{_a(type(array).__name__)} is no tensor: it has neither __array_interface__ nor __dlpack__ nor "
            "__cuda_array_interface__, nor is it a contiguous buffer; give a NumPy, torch or JAX array, a tensor of "
            "Session.empty, or bytes",
            "tensor",
        ) from None
    dtype = _dtypes.BY_FORMAT.get((buffer.format, buffer.itemsize))
    if dtype is None:
        raise invalid(f"elements of the format {buffer.format!r} have no type of Ferry: cast the memoryview", "tensor")
    return View(buffer.address, buffer.shape, None, dtype, buffer)


def blocks_of(view: View) -> tuple[int, int, int]:
    """A view as (bytes of a block, bytes from the start of one to the next, blocks): one block if its elements follow
    each other. FIELD_INVALID if it is neither that nor blocks of one stride."""
    item = view.dtype.bits // 8
    if view.strides is None or not math.prod(view.shape):
        return view.nbytes, view.nbytes, 1
    block, count, stride = item, 1, 0
    for size, step in reversed(list(zip(view.shape, view.strides, strict=True))):
        if size == 1:
            continue
        if count == 1 and step == block:
            block *= size
        elif count == 1 and step > block:
            count, stride = size, step
        elif count > 1 and step == count * stride:
            count *= size
        else:
            raise invalid(
                f"the elements of shape {view.shape}, strides {view.strides} bytes neither follow each other nor are "
                "blocks of one stride: make it contiguous (numpy.ascontiguousarray, .contiguous())",
                "tensor",
            )
    return block, stride or block, count
