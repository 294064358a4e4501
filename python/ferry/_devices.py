# SPDX-License-Identifier: Apache-2.0
"""Devices, as the calls of a session name them."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional, Union

from ferry import _abi
from ferry.errors import NotFoundError, check, invalid


class Device(NamedTuple):
    """A device of the cluster. `id` is global; `kind` is "host" or "gpu", "" if its daemon was not heard of yet."""

    id: int
    kind: str
    name: str
    node: str
    local: bool


DeviceLike = Union[int, str, Device]
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
        said = f"a device is its number, its name or a ferry.Device, not {device!r}"
        raise invalid(said, argument)
    return number


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
