# SPDX-License-Identifier: Apache-2.0
"""Trees of tensors: dicts, lists, tuples, named tuples and dataclasses, however deep; every leaf has a key from its path.

The key of a leaf is KEY/PATH, the parts of the path joined by "/"; of a tree that is a leaf it is KEY. Beyond the 64
bytes of a key the end is replaced by a hash of the whole, alike at both ends.
"""

from __future__ import annotations

import copy
import hashlib
import operator
from collections.abc import Callable
from typing import Any, Union

from ferry._options import text
from ferry.errors import invalid

Key = Union[str, bytes, int]
KEY_BYTES = 64
ARRAYS = ("__array_interface__", "__dlpack__", "__cuda_array_interface__")


def key_of(key: Key) -> bytes:
    """A transfer's key: text as UTF-8, an integer as 8 bytes in big-endian order, which lists and errors show as the number."""
    if isinstance(key, str):
        made = text(key, "key")
    elif isinstance(key, (bytes, bytearray, memoryview)):
        made = bytes(key)
    else:
        try:
            made = operator.index(key).to_bytes(8, "big")
        except (TypeError, OverflowError):
            raise invalid(f"a key is text, bytes, or an integer from 0 and below 2^64, not {key!r}", "key") from None
    if not 1 <= len(made) <= KEY_BYTES:
        raise invalid(f"a key has 1 to {KEY_BYTES} bytes, not {len(made)}", "key")
    return made


def shown(key: bytes) -> str:
    """A key for people, as the daemon's lists and errors have it, but for text that is not ASCII."""
    try:
        made = key.decode()
        if made.isprintable():
            return f"'{made}'"
    except UnicodeDecodeError:
        pass
    return str(int.from_bytes(key, "big")) if len(key) == 8 else f"0x{key.hex()}"


def path_key(key: bytes, path: tuple[str, ...]) -> bytes:
    try:
        whole = b"/".join([key, *(part.encode() for part in path)])
    except UnicodeEncodeError as error:
        said = f"the tree's leaf {'/'.join(path)!r} has a name that has no form in UTF-8: {error.reason}"
        raise invalid(said, "key") from None
    if len(whole) <= KEY_BYTES:
        return whole
    digest = hashlib.blake2b(whole, digest_size=10).hexdigest().encode()
    return whole[: KEY_BYTES - 1 - len(digest)] + b"~" + digest


Path = tuple[str, ...]
Build = Callable[[list[Any]], Any]


def flatten(tree: Any) -> tuple[list[tuple[Path, Any]], Build]:
    """The leaves with their paths, and what makes the tree of other leaves. None is no leaf. Neither keeps the other, nor
    itself: a leaf lives as long as the list has it, without the cyclic collector."""
    leaves: list[tuple[Path, Any]] = []
    return leaves, _walk(tree, (), leaves)


def _walk(node: Any, path: Path, leaves: list[tuple[Path, Any]]) -> Build:
    """Appends the leaves of `node`. No function inside: one that calls itself is a cycle, with all that it has seen."""
    if node is None:
        return lambda values: None
    if isinstance(node, dict):
        return _dict_of(node, {name: _walk(child, (*path, str(name)), leaves) for name, child in node.items()})
    if isinstance(node, (list, tuple)):
        names = getattr(node, "_fields", None) or range(len(node))
        made = [_walk(child, (*path, str(name)), leaves) for name, child in zip(names, node, strict=True)]
        return _sequence_of(type(node), made)
    if hasattr(type(node), "__dataclass_fields__") and not any(hasattr(node, name) for name in ARRAYS):
        names = _fields_of(node)
        return _dataclass_of(node, {name: _walk(getattr(node, name), (*path, name), leaves) for name in names})
    place = len(leaves)
    leaves.append((path, node))
    return lambda values: values[place]


def _fields_of(node: Any) -> list[str]:
    """Those that hold tensors: not what JAX and Flax are told is part of the form."""
    import dataclasses

    kept = dataclasses.fields(node)
    return [one.name for one in kept if not one.metadata.get("static") and one.metadata.get("pytree_node", True)]


def _dataclass_of(node: Any, parts: dict[str, Build]) -> Build:
    def again(values: list[Any]) -> Any:
        like = copy.copy(node)
        for name, part in parts.items():
            object.__setattr__(like, name, part(values))  # frozen ones too
        return like

    return again


def _dict_of(node: Any, parts: dict[Any, Build]) -> Build:
    if type(node) is dict:
        return lambda values: {name: part(values) for name, part in parts.items()}

    def again(values: list[Any]) -> Any:
        like = copy.copy(node)  # OrderedDict, defaultdict, and what they know beside: what is in it is replaced
        for name, part in parts.items():
            like[name] = part(values)
        return like

    return again


def _sequence_of(kind: Any, parts: list[Build]) -> Build:
    if hasattr(kind, "_fields"):
        return lambda values: kind(*(part(values) for part in parts))
    return lambda values: kind(part(values) for part in parts)


def keyed(tree: Any, key: Key) -> tuple[list[tuple[bytes, Any]], Callable[[list[Any]], Any]]:
    """(key, leaf) of each leaf, and what makes the tree of other leaves."""
    base = key_of(key)
    if tree is None:
        raise invalid(f"key {shown(base)}: there is None to be sent, or to be received like it, in place of a tensor", "tensor")
    leaves, build = flatten(tree)
    made = [(path_key(base, path), leaf) for path, leaf in leaves]
    seen: set[bytes] = set()
    for name, _ in made:
        if name in seen:
            raise invalid(f"two leaves of the tree have the key {shown(name)}: rename one", "key")
        seen.add(name)
    return made, build
