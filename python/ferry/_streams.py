# SPDX-License-Identifier: Apache-2.0
"""Order with the streams of PyTorch: what is posted begins behind what a stream was told so far, and streams wait for what
is over. Nothing here makes the host wait, but where libferry does (docs/gpus.md).

Each stream has a 'defined' counter of its own, since one only grows; beyond 63 streams the others share the last, by way
of a stream that waits for each of them in turn.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import Any, NamedTuple, Optional

from ferry import _abi
from ferry.errors import FailedPreconditionError, check

_OWN = 63  # the counters 0 to 62 are streams' own


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


class Streams:
    """Of a session."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._timelines: dict[tuple[int, int], int] = {}
        self._values: dict[int, int] = {}
        self._shared: Any = None

    def define(self, ordinal: int) -> Optional[Defined]:
        """Behind what the current stream of a GPU was told so far; None if torch has not opened CUDA."""
        torch = torch_cuda()
        if torch is None:
            return None
        with torch.cuda.device(ordinal), self._lock:
            refuse_capture("a transfer of memory of a GPU was to be posted")
            stream = torch.cuda.current_stream(ordinal)
            name = (ordinal, int(stream.cuda_stream))
            timeline = self._timelines.get(name)
            if timeline is None and len(self._timelines) < _OWN:
                timeline = self._timelines[name] = len(self._timelines)
            if timeline is None:
                timeline = _OWN
                if self._shared is None:
                    self._shared = torch.cuda.Stream(device=ordinal)
                self._shared.wait_stream(stream)
                stream = self._shared
            value = self._values.get(timeline, 0) + 1
            check(_abi.library().ferry_stream_define(self._session, stream.cuda_stream, timeline, value))
            self._values[timeline] = value
            return Defined(timeline, value)


def on_stream(stream: Any, ordinal: int, what: str, call: Any) -> Any:
    """`call(handle of the stream)` with its GPU as the current one. `stream`: torch's, a number (cudaStream_t), or None: the
    current one of the GPU `ordinal`, of the current GPU if that is -1."""
    torch = torch_cuda()
    if torch is None:
        raise FailedPreconditionError(f"{what}, and this process has no torch that has opened CUDA: wait by result()")
    if stream is None:
        stream = torch.cuda.current_stream(ordinal if ordinal >= 0 else None)
    device = getattr(stream, "device", None)
    place = ordinal if device is None else device.index
    with torch.cuda.device(place if place is not None and place >= 0 else torch.cuda.current_device()):
        return call(ctypes.c_void_p(int(getattr(stream, "cuda_stream", stream))))
