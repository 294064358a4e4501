# SPDX-License-Identifier: Apache-2.0
"""New tensors that are like others: of the same shapes and types."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from ferry._devices import DeviceLike
from ferry._dtypes import DType, dtype_of
from ferry._memory import make_tensors, shape_of
from ferry._tree import ARRAYS, shown
from ferry._views import leaf_view, named
from ferry.errors import FerryError, invalid


class Like(NamedTuple):
    """What a new tensor is to be like."""

    shape: tuple[int, ...]
    dtype: DType
    ordinal: int


def leaf_like(key: bytes, leaf: Any) -> Like:
    """Of whatever leaf_view takes, and of what has a shape and a type and no bytes: jax.ShapeDtypeStruct, a meta tensor."""
    shape, kind = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    own = getattr(leaf, "__dict__", ())
    # By name alone: properties of PyTorch raise what they like.
    bare = not any(hasattr(type(leaf), name) or name in own for name in (*ARRAYS, "data_ptr"))
    if shape is not None and kind is not None and (bare or getattr(leaf, "is_meta", False)):
        try:
            return Like(shape_of(shape), dtype_of(kind), -1)
        except FerryError as error:
            raise named(error, key) from None
    if isinstance(leaf, int):
        said = f"{leaf!r} is no tensor: the first argument, like=, has what new tensors are like; a shape is shape="
        raise invalid(f"key {shown(key)}: {said}", "like")
    view = leaf_view(key, leaf)
    return Like(view.shape, view.dtype, view.ordinal)


def new_like(session: Any, tree: Any, device: Optional[DeviceLike]) -> Any:
    """Of `keyed`'s tree, those of one device in one arena: on `device`, or, if that is None, what is like a GPU's tensor on
    that GPU, and all else on the session's first device."""
    leaves, build = tree
    wanted = [leaf_like(key, leaf) for key, leaf in leaves]
    homes = [
        session.device_id(session.gpu_of(one.ordinal) if device is None and one.ordinal >= 0 else device) for one in wanted
    ]
    made: list[Any] = [None] * len(wanted)
    for home in set(homes):
        places = [i for i, one in enumerate(homes) if one == home]
        some = [(wanted[i].shape, wanted[i].dtype) for i in places]
        for i, tensor in zip(places, make_tensors(session, home, some), strict=True):
            made[i] = tensor
    return build(made)
