# SPDX-License-Identifier: Apache-2.0
"""Ferry for Python: tensors to another process or node, by key, through the node's daemon. docs/python.md.

import ferry
with ferry.Session() as session:
    session.send(array, to="node-b/host0", key="weights").result()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ferry._version import __version__

if TYPE_CHECKING:
    from ferry import errors as errors
    from ferry._devices import Device
    from ferry._future import Future
    from ferry._memory import Tensor
    from ferry._post import Blocks, Ranges
    from ferry._prepared import Prepared
    from ferry._session import Session
    from ferry.errors import (
        AbortedError,
        AlreadyExistsError,
        CancelledError,
        DaemonLostError,
        DeadlineExceededError,
        FailedPreconditionError,
        FerryError,
        ForkedError,
        InternalError,
        InvalidArgumentError,
        KeyInUseError,
        MismatchError,
        NotAllowedError,
        NotFoundError,
        OutOfRangeError,
        PeerClientGoneError,
        PoisonedError,
        ResourceExhaustedError,
        UnauthenticatedError,
        UnavailableError,
        UnimplementedError,
        WaitTimeoutError,
    )
    from ferry.node import LocalNode, local_node

_HOMES = {
    "Future": "_future",
    "Prepared": "_prepared",
    "Tensor": "_memory",
    "Blocks": "_post",
    "Ranges": "_post",
    "Device": "_devices",
    "Session": "_session",
    "LocalNode": "node",
    "local_node": "node",
}

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "Blocks",
    "CancelledError",
    "DaemonLostError",
    "DeadlineExceededError",
    "Device",
    "FailedPreconditionError",
    "FerryError",
    "ForkedError",
    "Future",
    "InternalError",
    "InvalidArgumentError",
    "KeyInUseError",
    "LocalNode",
    "MismatchError",
    "NotAllowedError",
    "NotFoundError",
    "OutOfRangeError",
    "PeerClientGoneError",
    "PoisonedError",
    "Prepared",
    "Ranges",
    "ResourceExhaustedError",
    "Session",
    "Tensor",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "WaitTimeoutError",
    "__version__",
    "local_node",
]


if not TYPE_CHECKING:  # to which a misspelled name is to be an error

    def __getattr__(name: str) -> Any:
        """What is asked for the first time: importing the package alone is a matter of milliseconds."""
        if name not in __all__ and name != "errors":
            raise AttributeError(f"module 'ferry' has no attribute {name!r}")
        from importlib import import_module

        home = import_module(f"ferry.{_HOMES.get(name, 'errors')}")
        value = home if name == "errors" else getattr(home, name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """What there is to be asked for, too."""
        return sorted({*(name for name in globals() if name.startswith("__")), *__all__, "errors"})
