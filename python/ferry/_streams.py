# SPDX-License-Identifier: Apache-2.0
"""Order with CUDA's streams: what is posted begins behind what the current stream was told so far, and streams wait for what is
over. The current stream is PyTorch's, where PyTorch has opened CUDA in this process, else the default stream of the GPU.
Nothing here makes the host wait, but where libferry does (docs/gpus.md).

Each stream has a 'defined' counter of its own, since one only grows; beyond 63 streams the others share the last, by way
of a stream that waits for each of them in turn.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

from ferry import _abi, _cuda
from ferry.errors import FailedPreconditionError, check, invalid

_OWN = 63  # the counters 0 to 62 are streams' own
_LEGACY = 1  # the default stream, which is 0 too, where 0 says nothing


class Defined(NamedTuple):
    """A counter, and the value from which the bytes may be touched."""

    timeline: int
    value: int


def torch_cuda() -> Any:
    """torch, if this process has it and it has opened CUDA; else None: then nothing is queued to any stream of its."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def refuse_capture(what: str) -> None:
    torch = torch_cuda()
    if torch is not None and torch.cuda.is_current_stream_capturing():
        raise FailedPreconditionError(
            f"{what} while the current stream is captured into a CUDA graph: the graph would repeat this one transfer. "
            "Post before or after the capture; what is to be repeated is prepared (prepare_send, prepare_recv), and fired "
            "between replays"
        )


def current_handle(ordinal: int) -> int:
    """Of the current stream of a GPU, 0 being the default one."""
    torch = torch_cuda()
    return 0 if torch is None else int(torch.cuda.current_stream(ordinal).cuda_stream)


@contextlib.contextmanager
def _current(ordinal: int) -> Iterator[int]:
    """The current stream of a GPU, which is the thread's current one meanwhile."""
    torch = torch_cuda()
    with _cuda.driver().current(ordinal) if torch is None else torch.cuda.device(ordinal):
        yield current_handle(ordinal)


@contextlib.contextmanager
def current_for_dlpack(ordinal: int) -> Iterator[int]:
    """The current stream, by the number that DLPack has for it. The GPU is the thread's current one meanwhile: PyTorch
    exports no tensor of another one."""
    refuse_capture("a tensor of a GPU was to be sent or received")
    with _current(ordinal) as stream:
        yield stream or _LEGACY


def follow(ordinal: int, stream: Optional[int]) -> None:
    """Has the current stream of a GPU wait for another one of it; None: for nothing."""
    if stream is None:
        return
    refuse_capture("a tensor of a GPU was to be sent or received")
    with _current(ordinal) as here:
        if stream != (here or _LEGACY):
            _cuda.driver().follow(here, stream)


class Streams:
    """Of a session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._timelines: dict[tuple[int, int], int] = {}
        self._values: dict[int, int] = {}
        self._shared: Any = None

    def define(self, ordinal: int) -> Defined:
        """Behind what the current stream of a GPU was told so far."""
        with _current(ordinal) as stream, self._lock:
            refuse_capture("a transfer of memory of a GPU was to be posted")
            name = (ordinal, stream)
            timeline = self._timelines.get(name)
            if timeline is None and len(self._timelines) < _OWN:
                timeline = self._timelines[name] = len(self._timelines)
            if timeline is None:  # so many are torch's
                timeline = _OWN
                if self._shared is None:
                    self._shared = sys.modules["torch"].cuda.Stream(device=ordinal)
                _cuda.driver().follow(self._shared.cuda_stream, stream)
                stream = self._shared.cuda_stream
            value = self._values.get(timeline, 0) + 1
            check(_abi.library().ferry_stream_define(self._session, stream, timeline, value))
            self._values[timeline] = value
            return Defined(timeline, value)


def on_stream(stream: Any, ordinal: int, what: str, call: Any) -> Any:
    """`call(handle of the stream)` with its GPU as the current one. `stream`: torch's, what has ``__cuda_stream__``, a number
    (cudaStream_t), or None: torch's current one. Of the GPU `ordinal`, or of the current GPU if that is -1."""
    torch = torch_cuda()
    if stream is None and torch is None:
        raise FailedPreconditionError(
            f"{what}, and this process has no torch that has opened CUDA, whose current stream it could be: say which stream, "
            "or wait by result()"
        )
    if stream is None:
        stream = torch.cuda.current_stream(ordinal if ordinal >= 0 else None)
    device = getattr(stream, "device", None)
    place = ordinal if device is None else device.index
    handle = ctypes.c_void_p(_handle_of(stream))
    if torch is not None:
        with torch.cuda.device(place if place is not None and place >= 0 else torch.cuda.current_device()):
            return call(handle)
    with _cuda.driver().current(place) if place >= 0 else contextlib.nullcontext():
        return call(handle)


def _handle_of(stream: Any) -> int:
    if hasattr(stream, "cuda_stream"):
        return int(stream.cuda_stream)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    try:
        return operator.index(stream)
    except TypeError:
        raise invalid(
            f"a stream is torch's, one that has __cuda_stream__, or its number (cudaStream_t), not a {type(stream).__name__}",
            "stream",
        ) from None
