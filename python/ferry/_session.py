# SPDX-License-Identifier: Apache-2.0
"""The session: memory, sends and receives, devices."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import time
import weakref
from collections.abc import Sequence
from typing import Any, Optional, Union

from ferry import _abi, _cuda, _posting
from ferry._calls import SOON, Calls
from ferry._counters import Counters
from ferry._devices import Device, DeviceLike, as_framework, number_of, of_cluster, of_framework, of_node, unknown
from ferry._dtypes import dtype_of
from ferry._future import Future, Post, interpreter_ends, wait_in_slices
from ferry._imports import Imports, cuda_session
from ferry._like import new_like
from ferry._memory import ArenaMap, Shape, Tensor, make_tensors, shape_of
from ferry._options import c_text, domain_of, session_options, wait_end
from ferry._post import explained, items_of, parted
from ferry._prepared import Prepared
from ferry._stage import Kept, Stage
from ferry._streams import Streams, torch_cuda
from ferry._tree import Key, keyed
from ferry._waiter import Waiter
from ferry.errors import FailedPreconditionError, NotAllowedError, WaitTimeoutError, check, forked, invalid, not_allowed

log = logging.getLogger("ferry")


class Session:
    """A session with the node's daemon, and a context manager.

    client_dir: the directory of the daemon's client sockets; None: $FERRY_CLIENT_DIR, else ``client`` in
    $FERRY_RUNTIME_DIR, else in /run/ferry.
    name: for people, in lists and logs; None: the program's.
    domain: the job's secret name, at most 32 bytes; None: of the file that $FERRY_DOMAIN_FILE names, else the uid's.
    timeout: seconds that opening may take.
    reattach: whether it goes on with the next daemon when this one goes away.

    UnavailableError if no daemon listens there, NotAllowedError if this user may not connect.
    """

    # Of the class too, for one that was never begun, as after a mistyped option: it is closed as well.
    _handle: Optional[int] = None
    _pid = 0

    def __init__(
        self,
        client_dir: Union[str, os.PathLike[str], None] = None,
        *,
        name: Optional[str] = None,
        domain: Union[str, bytes, None] = None,
        timeout: float = 10.0,
        reattach: bool = True,
    ) -> None:
        lib, self.domain = _abi.library(), domain_of(domain)
        options = session_options(client_dir, name, timeout, reattach)
        calls = Calls()
        try:
            handle = calls(_opened, options, undo=lib.ferry_session_close)
        except Exception as error:
            calls.close()
            if isinstance(error, NotAllowedError):
                raise not_allowed(error) from None
            raise
        except BaseException:  # Ctrl-C: the call goes on
            calls.close(0)
            raise
        self._begin(handle, calls)
        _open.add(self)

    def _begin(self, handle: int, calls: Calls) -> None:
        lib, self._handle, self._pid, self.calls = _abi.library(), handle, os.getpid(), calls
        self.arenas, self.stage, self.waiter = ArenaMap(), Stage(), Waiter()
        self.imports, self.kept, self.streams = Imports(), Kept(handle), Streams(handle)
        self.limits = lib.ferry_session_limits(self.handle)
        self._cluster: dict[str, Device] = {}
        self._look()
        self.counters = Counters(self.handle, len(self._devices))

    def _look(self) -> None:
        lib, handle, node = _abi.library(), self.handle, self.node
        found = [lib.ferry_session_device(handle, i) for i in range(lib.ferry_session_devices(handle))]
        self._devices = tuple(of_node(one, node) for one in found)
        self._gpus = {one.global_device_id: bytes(one.uuid) for one in found if one.kind == 2}

    # ---- The session itself

    @property
    def handle(self) -> int:
        """ferry_session*, for the C ABI. FailedPreconditionError if the session is closed, ForkedError in a child of fork."""
        if self._handle is None:
            raise FailedPreconditionError("the session is closed", "FIELD_INVALID")
        self._check_mine()
        return self._handle

    def _check_mine(self) -> None:
        """ForkedError in a child of fork, before any lock is taken: another thread of the parent's may have had it then."""
        if self._pid != os.getpid():
            raise forked("session")

    @property
    def id(self) -> int:
        """As the daemon's lists and logs have it."""
        return int(_abi.library().ferry_session_id(self.handle))

    @property
    def node(self) -> str:
        """The name of the node whose daemon this is."""
        return str(_abi.library().ferry_session_node(self.handle).decode())

    def close(self) -> None:
        """Ends what is not launched and gives the memory back; tensors stay readable. Waits for no daemon, and a second at most
        for callbacks of futures that run: of one that goes on a warning is logged. Twice is once. Raises nothing."""
        if self._end() and not self._join(time.monotonic() + SOON):
            log.warning("%r was closed while a callback of a ferry.Future goes on", self)

    def _end(self) -> bool:
        """The session is over, and its threads are told to end. True once."""
        handle, self._handle = self._handle, None
        if handle is None or self._pid != os.getpid():
            return False
        _open.discard(self)
        _abi.library().ferry_session_close(handle)  # which ends what other threads ask the daemon
        self.calls.end()
        self.waiter.end()
        return True

    def _join(self, until: float) -> bool:
        """What follows `_end`: waits for the threads until then at most. False: one goes on."""
        try:
            self.calls.join(until)
            return self.waiter.join(until)
        finally:  # after Ctrl-C too
            self.stage.clear()
            self.kept.clear()
            self.imports.clear()

    def __repr__(self) -> str:
        mine = self._pid == os.getpid()
        state = "closed" if self._handle is None else f"{self.id} of node {self.node}" if mine else "of before a fork"
        return f"<ferry.Session {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("a ferry.Session is of one process: each process, task or actor opens its own, where it runs")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def check_health(self) -> None:
        """DaemonLostError while the daemon is away; the text says whether the session is being attached again."""
        check(_abi.library().ferry_session_health(self.handle))

    def wait_daemon(self, timeout: Optional[float] = None) -> None:
        """Waits until the session has its daemon again, and until it has answered all calls that the main thread went on
        without: what Ctrl-C interrupted is undone then, and the same keys can be posted again. At once if the daemon is there
        and owes no answer. WaitTimeoutError after `timeout` seconds, DaemonLostError if it is lost for good."""
        lib, handle, until = _abi.library(), self.handle, wait_end(timeout)
        what = f"the daemon is not back after {timeout} s: wait again"
        error = wait_in_slices(lambda ns: lib.ferry_session_wait(handle, ns), timeout, lambda: what)
        if error is not None:
            raise error
        if not self.calls.undone(until):
            raise WaitTimeoutError(f"what was interrupted or let go of has no answer yet after {timeout} s: wait again")

    def join(self, name: str, device: Optional[DeviceLike] = None) -> None:
        """Member `name` of the session's domain on a device of the node (None: on each) until the session ends. What
        waits for a device whose last member is gone ends with PEER_CLIENT_GONE within a second, at any node, and so
        does what is posted later, until somebody joins again. Everybody who posts there must join.

        Raises: InvalidArgumentError for a name that is empty or longer than 64 bytes; NotFoundError for a device that is not
        this node's; ResourceExhaustedError where the session has joined on 64 already; UnavailableError while the daemon is
        away.
        """
        member = c_text(name, "name")
        numbers = [one.id for one in self.devices] if device is None else [self.device_id(device)]
        self.calls(_join, self.handle, self.domain, numbers, member)

    # ---- Devices

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those of this node's daemon; after the session has got another one, of that. Of a closed session the last ones."""
        if self._handle is not None:
            self._look()
        return self._devices

    def cluster_devices(self) -> tuple[Device, ...]:
        """The devices that the daemon knows now, of all nodes: a call to it. UnavailableError while it is away."""
        made = self.calls(of_cluster, self.handle)
        self._cluster = {f"{device.node}/{device.name}": device for device in made if device.name}
        return made

    def device_id(self, device: Optional[DeviceLike]) -> int:
        """The global id of an id, a Device, ``"node-b/host0"``, or ``"host0"`` of this node; None: its first device. What
        PyTorch calls "cpu" and "cuda:0", as text or a torch.device, is this node's only host device, and that GPU.
        NotFoundError for a name that the daemon does not know, InvalidArgumentError for what is none of these, and for "cpu"
        where there are several."""
        return self._device(device, "device")

    def _device(self, device: Optional[DeviceLike], argument: str) -> int:
        if device is None:
            return self._devices[0].id
        theirs = as_framework(device)
        if theirs is not None:
            return self._framework_device(*theirs, str(device), argument)
        number = number_of(device, argument)
        if number is not None:
            return number
        name = str(device) if "/" in str(device) else f"{self.node}/{device}"
        if name not in self._cluster:
            self.cluster_devices()
        if name not in self._cluster:
            raise unknown(name, self._cluster, argument)
        return self._cluster[name].id

    def _framework_device(self, kind: str, ordinal: int, shown: str, argument: str) -> int:
        torch = torch_cuda()
        if kind == "cuda" and ordinal < 0 and torch is not None:
            ordinal = torch.cuda.current_device()
        gpu = self.gpu_of(ordinal) if kind == "cuda" and ordinal >= 0 and self._gpus else None
        return of_framework(kind, ordinal, gpu, self._devices, shown, argument)

    def _remote(self, call: str, device: DeviceLike) -> int:
        argument = "to" if call.endswith("send") else "frm"
        if device is None:
            raise invalid(f"{argument}= names the device at the other end, such as 'node-b/host0', and is not None", argument)
        return self._device(device, argument)

    def is_gpu(self, device: int) -> bool:
        """Whether a global id is that of a GPU of this node. Raises nothing."""
        return device in self._gpus

    def gpu_of(self, ordinal: int) -> Optional[int]:
        """The global id of a GPU by its number in this process, as torch has it; None if the daemon has it not.
        NotFoundError if this process has no CUDA."""
        uuids = _cuda.driver().uuids
        uuid = uuids[ordinal] if 0 <= ordinal < len(uuids) else b""
        return next((device for device, known in self._gpus.items() if known == uuid), None)

    def _pool(self) -> Optional[Session]:
        """The session of ferry_cuda_malloc's memory, which alone can post it; None if that is another daemon's."""
        handle = cuda_session() if _pools else self.calls(cuda_session)  # which opens it the first time
        made = _pools.get(handle)
        if made is None:
            made = _pools.setdefault(handle, _Pool(handle))
        return made if made.devices == self.devices else None

    # ---- Memory

    def empty(self, shape: Shape, dtype: Any = "float32", device: Optional[DeviceLike] = None) -> Tensor:
        """A tensor in memory that the daemon sees, so that it moves without a copy; zeros at first.

        Raises: InvalidArgumentError for the shape or the type; NotFoundError for a device that is not this node's;
        ResourceExhaustedError where its memory, or the user's share of it, is full; UnavailableError while the daemon is away;
        FailedPreconditionError if the session is closed.
        """
        return make_tensors(self, self.device_id(device), [(shape_of(shape), dtype_of(dtype))])[0]

    def empty_like(self, tree: Any, device: Optional[DeviceLike] = None) -> Any:
        """A tree of tensors of the shapes and types of `tree`'s, in one arena. Raises what `empty` does."""
        return new_like(self, keyed(tree, "-"), device)

    def explain(self, tree: Any) -> Any:
        """How a send would take a tensor, as text: where it is, or that it is copied once, and why. Of a tree a tree of such
        texts. Columns are taken as the tensor that they are of. The daemon is asked only about memory of a GPU that it has not
        seen yet, which may raise UnavailableError, ResourceExhaustedError or FailedPreconditionError. InvalidArgumentError if
        no send would; ForkedError in a child of fork."""
        self._check_mine()
        return explained(self, tree)

    # ---- Transfers

    def send(
        self,
        tensor: Any,
        *,
        to: DeviceLike,
        key: Key,
        device: Optional[DeviceLike] = None,
        deadline: Optional[float] = None,
        priority: int = 0,
        route: str = "any",
        continues: Optional[Future[Any]] = None,
    ) -> Future[None]:
        """Sends a tensor, or each of a tree under KEY/PATH, to device `to`.

        What is in an arena, or on a GPU in memory that can be shared (`explain` says), is sent from where it is, and must stay
        as it is until the future is done. Anything else, if contiguous, is copied once: of host memory into an arena on
        `device` before this returns, of a GPU on the GPU. A GPU's bytes are sent behind the kernels that torch's current
        stream has been given so far.
        deadline: seconds for each transfer to start, by tcp, ucx and nccl to end; None: the daemon's default.
        priority: -100 to 100.
        route: insists on one ("local", "tcp", ...).
        continues: a future of this session. While its first transfer is in flight, a daemon that drains takes this one too:
        for work in several posts, such as the chunks of one file.

        Raises: InvalidArgumentError for an argument, its name in `violations`; NotFoundError for a device that is not known;
        ResourceExhaustedError where a queue or a quota is full; UnavailableError while the daemon is away or drains;
        FailedPreconditionError if the session is closed, or the current stream is captured; KeyInUseError for a key of which a
        send waits already; ForkedError in a child of fork. Those of the transfers come by the future: DeadlineExceededError,
        MismatchError, PeerClientGoneError, PoisonedError, CancelledError, AbortedError, DaemonLostError, or
        FailedPreconditionError for a route that does not do.
        """
        options = _posting.options_of(self, deadline, priority, route, continues)
        leaves, where = keyed(tensor, key)[0], self.device_id(device)
        parts = (items_of(self, part, where, copies=True) for part in parted(leaves))
        posts, copied = self._post("ferry_cross_host_send", parts, to, options)
        if copied:
            log.debug("send of key %r: %d bytes were copied; Session.explain says why", key, copied)
        return Future(posts, None, copied)

    def recv(
        self,
        like: Any = None,
        *,
        frm: DeviceLike,
        key: Key,
        shape: Optional[Shape] = None,
        dtype: Any = "float32",
        into: Any = None,
        device: Optional[DeviceLike] = None,
        deadline: Optional[float] = None,
        priority: int = 0,
        route: str = "any",
        continues: Optional[Future[Any]] = None,
    ) -> Future[Any]:
        """Receives from device `frm` new tensors on `device`, `like` a tensor or a tree, or of one `shape` and `dtype`;
        or `into` tensors in arenas, or on a GPU in memory that can be shared, behind what torch's current stream has been given
        so far. New ones like a tensor of a GPU are on that GPU, unless `device` says otherwise. The future's result is the
        tensor, or the tree. The rest as of `send`.

        Raises: what `send` does, and what `empty` does where it makes the tensors; InvalidArgumentError too for `into` that is
        in no memory of the daemon's. By the future: as of `send`.
        """
        leaves, value = self._receives(like, shape, dtype, into, key, device)
        options = _posting.options_of(self, deadline, priority, route, continues)
        parts = (items_of(self, part, 0, copies=False) for part in parted(leaves))
        return Future(self._post("ferry_cross_host_receive", parts, frm, options, ordered=into is not None)[0], value)

    def prepare_send(
        self,
        tensor: Any,
        *,
        to: DeviceLike,
        key: Key,
        deadline: Optional[float] = None,
        priority: int = 0,
        route: str = "any",
    ) -> Prepared:
        """As `send`, but fired any number of times; the tensors are in arenas. `deadline`: until the other end is
        prepared too.

        Raises: what `send` does; InvalidArgumentError too for a tensor that would have to be copied. How the batch ends,
        ``fire`` and ``wait`` raise.
        """
        self._check_mine()
        items, _ = items_of(self, keyed(tensor, key)[0], 0, copies=False, argument="tensor")
        options, name = _posting.options_of(self, deadline, priority, route), "ferry_prepare_send"
        return _posting.prepare(self, name, items, self._remote(name, to), options, tensor)

    def prepare_recv(
        self,
        like: Any = None,
        *,
        frm: DeviceLike,
        key: Key,
        shape: Optional[Shape] = None,
        dtype: Any = "float32",
        into: Any = None,
        device: Optional[DeviceLike] = None,
        deadline: Optional[float] = None,
        priority: int = 0,
        route: str = "any",
    ) -> Prepared:
        """As `recv`, but fired any number of times: the same memory each time. Raises what `recv` does; how the batch ends,
        ``fire`` and ``wait`` raise."""
        self._check_mine()
        leaves, value = self._receives(like, shape, dtype, into, key, device)
        items, _ = items_of(self, leaves, 0, copies=False)
        options, name = _posting.options_of(self, deadline, priority, route), "ferry_prepare_receive"
        return _posting.prepare(self, name, items, self._remote(name, frm), options, value)

    def send_many(
        self,
        tensor: Tensor,
        *,
        to: DeviceLike,
        keys: Any,
        offsets: Any,
        lengths: Any,
        deadline: Optional[float] = None,
        priority: int = 0,
        route: str = "any",
        continues: Optional[Future[Any]] = None,
    ) -> Future[None]:
        """One transfer for each row of columns, from NumPy arrays: `keys` of text or of type "S" (which drop NULs at the end
        of a key), of type "V" or rows of uint8 (which keep them), or of an integer type; `offsets` and `lengths` in bytes of
        `tensor`, which is in an arena. Types and shapes are not compared.

        Raises: what `send` does; InvalidArgumentError too for columns of different lengths, of another type, or beyond the
        tensor.
        """
        options = _posting.options_of(self, deadline, priority, route, continues)
        return Future(self._many("ferry_cross_host_send", tensor, to, (keys, offsets, lengths), options), None)

    def recv_many(
        self,
        tensor: Tensor,
        *,
        frm: DeviceLike,
        keys: Any,
        offsets: Any,
        lengths: Any,
        deadline: Optional[float] = None,
        priority: int = 0,
        route: str = "any",
        continues: Optional[Future[Any]] = None,
    ) -> Future[Tensor]:
        """The other end of `send_many`: into `tensor`, which is the future's result. Raises what `send_many` does."""
        options = _posting.options_of(self, deadline, priority, route, continues)
        return Future(self._many("ferry_cross_host_receive", tensor, frm, (keys, offsets, lengths), options), tensor)

    # ---- How

    def _receives(
        self, like: Any, shape: Optional[Shape], dtype: Any, into: Any, key: Key, device: Optional[DeviceLike]
    ) -> tuple[list[tuple[bytes, Any]], Any]:
        """The leaves to receive into, and the tree of them."""
        if sum(given is not None for given in (like, shape, into)) != 1:
            raise invalid("a receive is told one of like=, shape= and into=", "like")
        if into is None and shape is not None:
            into = self.empty(shape, dtype, device)
        elif into is None:
            into = new_like(self, keyed(like, key), device)
        return keyed(into, key)[0], into

    def _post(
        self, name: str, parts: _posting.Parts, remote: DeviceLike, options: Any, ordered: bool = True
    ) -> tuple[list[Post], int]:
        self._check_mine()
        return _posting.post_parts(self, name, parts, self._remote(name, remote), options, ordered)

    def _many(self, name: str, tensor: Any, remote: DeviceLike, columns: Any, options: Any) -> list[Post]:
        self._check_mine()
        if not _posting.is_of(tensor, self):
            raise invalid("columns are offsets into a tensor that Session.empty has made", "tensor")
        return _posting.post_columns(self, name, tensor, self._remote(name, remote), columns, options)


def _opened(options: Any) -> int:
    handle = ctypes.c_void_p()
    check(_abi.library().ferry_session_open(ctypes.byref(options), ctypes.byref(handle)))
    assert handle.value is not None
    return handle.value


def _join(session: int, domain: bytes, devices: Sequence[int], member: bytes) -> None:
    for number in devices:
        check(_abi.library().ferry_domain_join(session, domain or None, len(domain), number, member))


class _Pool(Session):
    """The library's own session, which ferry_cuda_malloc has opened: never closed."""

    def __init__(self, handle: int) -> None:
        self.domain = b""  # what is posted has that of the session whose call it was
        self._begin(handle, Calls())

    def close(self) -> None:
        pass


_pools: dict[int, _Pool] = {}

# Sessions that are open at exit: what is in flight is ended, so that no thread waits for it.
_open: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Of this process; those of before a fork are the parent's."""
    interpreter_ends()
    ended = [session for session in list(_open) if session._end()]
    until = time.monotonic() + SOON
    for session in ended:  # of all are over: a callback of one may have waited for another one
        session._join(until)
