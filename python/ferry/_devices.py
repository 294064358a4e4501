# SPDX-License-Identifier: Apache-2.0
"""Devices, as the calls of a session name them."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional, Protocol, Union

from ferry import _abi
from ferry.errors import NotFoundError, check, invalid


class Device(NamedTuple):
    """A device of the cluster. `id` is global; `kind` is "host" or "gpu", "" if its daemon was not heard of yet."""

    id: int
    kind: str
    name: str
    node: str
    local: bool


class FrameworkDevice(Protocol):
    """A device of this process as PyTorch has it: ``torch.device("cuda", 0)``."""

    @property
    def type(self) -> str: ...

    @property
    def index(self) -> Optional[int]: ...


DeviceLike = Union[int, str, Device, FrameworkDevice]
_KINDS = {0: "", 1: "host", 2: "gpu"}


def of_node(said: Any, node: str) -> Device:
    """A ferry_device of this node's daemon."""
    return Device(said.global_device_id, _KINDS.get(said.kind, ""), said.name.decode(), node, True)


def number_of(device: Any, argument: str) -> Optional[int]:
    """The global id of what is no name; None of one. `argument`: as the caller has it."""
    if isinstance(device, Device):
        return device.id
    if isinstance(device, str):
        return None
    try:
        number = operator.index(device)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 64:
        said = f"a device is its number, its name, a ferry.Device or a torch.device, not {device!r}"
        raise invalid(said, argument)
    return number


def as_framework(device: Any) -> Optional[tuple[str, int]]:
    """("cpu" or "cuda", which one, -1: it is not said) of ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and torch.device; None of what is
    called otherwise."""
    if not isinstance(device, str) and isinstance(getattr(device, "type", None), str) and hasattr(device, "index"):
        index = device.index
        return device.type, -1 if index is None or device.type == "cpu" else index
    kind, colon, number = str(device).partition(":")
    if not isinstance(device, str) or kind not in ("cpu", "cuda") or (colon and not number.isdecimal()):
        return None
    return kind, int(number) if colon and kind == "cuda" else -1


def of_framework(kind: str, ordinal: int, gpu: Optional[int], devices: Sequence[Device], shown: str, argument: str) -> int:
    """The global id of one of a node's `devices`, which a framework calls `shown`: of "cpu" its only host device; of "cuda"
    `gpu`, as GPU `ordinal` is called, or if no ordinal is given its only GPU. InvalidArgumentError if it could be several,
    NotFoundError if it is none."""
    names = ", ".join(device.name for device in devices)
    wanted = {"cpu": "host", "cuda": "gpu" if ordinal < 0 else ""}.get(kind)
    some = [device.id for device in devices if device.kind == wanted] if gpu is None else [gpu]
    if len(some) == 1:
        return some[0]
    if some:
        raise invalid(f"{shown!r} may be several devices of this node, which has {names}: name one of these", argument)
    said = f"{shown!r} is no device of this node's daemon, which has {names}: name one of these"
    raise NotFoundError(said, "DEVICE_UNKNOWN", ((argument, said),))


def unknown(name: str, known: Iterable[str], argument: str) -> NotFoundError:
    said = (
        f"no device is called {name!r} here; known: {', '.join(sorted(known)) or 'none'}. One of another node is known once "
        "its daemon was heard of; its number always works"
    )
    return NotFoundError(said, "DEVICE_UNKNOWN", ((argument, said),))


def of_cluster(session: int) -> tuple[Device, ...]:
    """The devices that the daemon knows now. `session`: ferry_session*. UnavailableError while the daemon is away."""
    lib, listed = _abi.library(), ctypes.c_void_p()
    check(lib.ferry_cluster_devices(session, ctypes.byref(listed)))
    try:
        found = [lib.ferry_device_list_at(listed, i) for i in range(lib.ferry_device_list_size(listed))]
        return tuple(of_node(one, one.node.decode())._replace(local=bool(one.local)) for one in found)
    finally:
        lib.ferry_device_list_free(listed)
