# SPDX-License-Identifier: Apache-2.0
"""Ray Direct Transport by Ferry: tensors of one actor go to another one, or to the driver, through the nodes' daemons.

import ferry.ray
ferry.ray.register()  # before the actors are made

class Producer:
    @ray.method(tensor_transport="FERRY")
    def make(self): ...

One-sided, as Ray has it: whoever gets the object fetches it, whatever its maker is busy with, and ``ray.get`` works.
docs/python.md.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import ray
from ray.experimental import CommunicatorMetadata, TensorTransportManager, TensorTransportMetadata, register_tensor_transport
from ray.experimental.rdt.tensor_transport_manager import FetchRequest

from ferry._memory import Tensor
from ferry._post import place_of
from ferry._pull import Pull
from ferry._request import DEADLINE, Address
from ferry._session import Session
from ferry._source import Leaf, Source, first_host, open_session
from ferry._views import view_of
from ferry.errors import FailedPreconditionError, FerryError, UnavailableError, WaitTimeoutError, invalid

log = logging.getLogger("ferry.ray")
DEVICES = ["cpu", "cuda"]


@dataclass
class FerryTransportMetadata(TensorTransportMetadata):  # type: ignore[misc]
    """Where the object is: Ray carries it from the actor that made it to who fetches it."""

    address: Optional[Address] = None
    leaves: list[Leaf] = field(default_factory=list)
    frameworks: list[str] = field(default_factory=list)
    node: str = ""


@dataclass
class FerryCommunicatorMetadata(CommunicatorMetadata):  # type: ignore[misc]
    """Nothing: who fetches makes the keys."""


@dataclass
class FerryFetchRequest(FetchRequest):  # type: ignore[misc]
    """A fetch that is under way. If it is thrown away, it ends."""

    pull: Any = None
    finish: Any = None

    def __del__(self) -> None:
        if self.pull is not None:
            self.pull.end()


class Transfer(NamedTuple):
    """A fetch of this process that is over. `copied`: how many of its tensors the sender had to copy, because they were in no
    memory that its daemon sees."""

    obj_id: str
    node: str
    nbytes: int
    tensors: int
    copied: int
    routes: tuple[str, ...]
    seconds: float


# The last ones that this process has fetched.
transfers: deque[Transfer] = deque(maxlen=1000)
_lock = threading.Lock()
_session: Optional[Session] = None


def session() -> Session:
    """This process' session: what is in ``session().empty(...)`` goes without a copy. The daemon is that of
    $FERRY_CLIENT_DIR, as of ``ferry.Session()``, and so is what it raises: UnavailableError if none listens,
    NotAllowedError if this user may not connect."""
    global _session
    with _lock:
        if _session is None:
            _session = open_session(f"ray-{_actor() or 'driver'}-{os.getpid()}")
        return _session


def _actor() -> str:
    try:
        return str(ray.get_runtime_context().get_actor_id() or "")[:12]
    except Exception:  # outside of a worker
        return ""


def _framework(tensor: Any) -> str:
    for name, of in (("torch", "Tensor"), ("jax", "Array"), ("numpy", "ndarray")):
        module = sys.modules.get(name)
        if module is not None and isinstance(tensor, getattr(module, of)):
            return name
    if isinstance(tensor, Tensor):
        return "ferry"
    raise invalid(f"a {type(tensor).__name__} is no tensor of PyTorch, NumPy, JAX or Ferry", "tensor")


def _as(framework: str, tensor: Tensor) -> Any:
    """The same bytes, as the framework that they came from has them."""
    if framework == "torch":
        import torch

        return torch.from_dlpack(tensor)
    if framework == "jax":
        import jax

        return jax.dlpack.from_dlpack(tensor)
    return tensor.numpy() if framework == "numpy" else tensor


class FerryTransport(TensorTransportManager):  # type: ignore[misc]
    """One for each process that has, or fetches, objects."""

    def __init__(self) -> None:
        self._source: Optional[Source] = None
        # The objects of those that are under way; one that is thrown away goes by itself.
        self._pulls: weakref.WeakKeyDictionary[Pull, str] = weakref.WeakKeyDictionary()
        self._told: set[tuple[Any, ...]] = set()
        self._own = threading.Lock()

    def tensor_transport_backend(self) -> str:
        """The name by which Ray knows it. Raises nothing."""
        return "FERRY"

    @staticmethod
    def is_one_sided() -> bool:
        """Whoever gets an object fetches it. Raises nothing."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """So Ray leaves the actors alone when a transfer fails. Raises nothing."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """That its node has a daemon shows when it makes an object, by an error that says so. Raises nothing."""
        return True

    # ---- Where objects are made

    def source(self) -> Source:
        """Of this process' objects. Raises what `session` does; OSError if it cannot listen at the node's address."""
        with self._own:
            if self._source is None:
                self._source = Source(session(), _address_of_node())
            return self._source

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> FerryTransportMetadata:
        """Offers the tensors of an object, as they are, until `garbage_collect`: what who fetches it is told.

        Raises: InvalidArgumentError for what is no tensor, for tensors in host memory and on GPUs in one object, and for a GPU
        that the daemon has not; FailedPreconditionError if the node has no device of host memory, which tensors there need;
        UnavailableError if no daemon listens.
        """
        if not rdt_object:
            return FerryTransportMetadata(tensor_meta=[], tensor_device=None)
        source = self.source()
        frameworks = [_framework(tensor) for tensor in rdt_object]
        _settle(rdt_object)
        leaves = source.offer(obj_id, rdt_object)
        if len({leaf.ordinal >= 0 for leaf in leaves}) != 1:
            source.withdraw(obj_id)
            raise invalid("an object of Ray has its tensors all on GPUs, or all in host memory", "tensors")
        return FerryTransportMetadata(
            tensor_meta=[(tensor.shape, tensor.dtype) for tensor in rdt_object],
            tensor_device="cuda" if leaves[0].ordinal >= 0 else "cpu",
            address=source.address,
            leaves=leaves,
            frameworks=frameworks,
            node=source.session.node,
        )

    def send_multiple_tensors(self, tensors: Any, tensor_transport_metadata: Any, communicator_metadata: Any) -> None:
        """Raises NotImplementedError: this is of transports that are not one-sided."""
        raise NotImplementedError("FERRY is one-sided: whoever gets an object fetches it")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Any, tensors: Any) -> None:
        """Nobody can ask for the object any more. What was asked for still comes. Raises nothing."""
        if self._source is not None:
            self._source.withdraw(obj_id)

    # ---- Where they are fetched

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> FerryCommunicatorMetadata:
        """Says so, as an error of the log, if the receiver cannot receive. Raises nothing."""
        if getattr(dst_actor, "_ray_enable_tensor_transport", True) is False:
            # Not raised: Ray calls this from C++ too, where an exception ends the process.
            log.error(
                "%s gets a tensor, and has no thread for that: it will wait until Ray's timeout. Make its class by "
                "@ray.remote(enable_tensor_transport=True)",
                dst_actor,
            )
        return FerryCommunicatorMetadata()

    def fetch_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: FerryTransportMetadata,
        communicator_metadata: Any,
        target_buffers: Optional[Sequence[Any]] = None,
    ) -> FerryFetchRequest:
        """Posts the receives and asks for the object; `wait_fetch_complete` waits.

        Raises: UnavailableError if the process that has made the object has ended, or no daemon listens here, or it has not
        this process' GPU; PeerClientGoneError if that process ends as it is asked; InvalidArgumentError for `target_buffers`
        of other shapes or types; FailedPreconditionError if the object is on a GPU and this process has none;
        ResourceExhaustedError where memory is full.
        """
        meta = tensor_transport_metadata
        if not meta.leaves:
            return FerryFetchRequest(obj_id=obj_id, tensors=[])
        assert meta.address is not None
        here = session()
        into, late = (None, None) if target_buffers is None else _targets(here, meta.leaves, target_buffers)
        pull = Pull(
            here,
            Address(*meta.address),
            obj_id,
            meta.leaves,
            device=_target_device(here, meta) if into is None else None,
            into=into,
            who=f"{here.node}/{_actor() or 'driver'}",
            deadline=_deadline(),
        )
        with self._own:
            self._pulls[pull] = obj_id

        def finish(timeout: Optional[float]) -> list[Any]:
            try:
                got = pull.wait(timeout)
            finally:
                with self._own:
                    self._pulls.pop(pull, None)
            self._tell(obj_id, meta, pull)
            if target_buffers is None:
                return [_as(kind, tensor) for kind, tensor in zip(meta.frameworks, got, strict=True)]
            for i in late or ():
                _copy_into(target_buffers[i], got[i])
            return list(target_buffers)

        return FerryFetchRequest(obj_id=obj_id, tensors=[], pull=pull, finish=finish)

    def wait_fetch_complete(self, fetch_request: FerryFetchRequest, timeout: float = -1) -> list[Any]:
        """The tensors, of the frameworks that they came from; `target_buffers` if some were given.

        Raises: TimeoutError after `timeout` seconds (negative: none), which ends the fetch; PeerClientGoneError if the object's
        process ends; NotFoundError if the object was freed; CancelledError, AbortedError, DeadlineExceededError as of
        ``Future.result``.
        """
        if fetch_request.finish is None:
            return list(fetch_request.tensors)
        finish, fetch_request.finish = fetch_request.finish, None
        try:
            return list(finish(None if timeout is None or timeout < 0 else timeout))
        except WaitTimeoutError as error:
            raise TimeoutError(str(error)) from error
        finally:
            fetch_request.pull = None

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: FerryTransportMetadata,
        communicator_metadata: Any,
        target_buffers: Optional[Sequence[Any]] = None,
    ) -> list[Any]:
        """`fetch_multiple_tensors` and `wait_fetch_complete`. Raises what these do."""
        return self.wait_fetch_complete(
            self.fetch_multiple_tensors(obj_id, tensor_transport_metadata, communicator_metadata, target_buffers)
        )

    def abort_transport(self, obj_id: str, communicator_metadata: Any) -> None:
        """Ends what is under way of an object, fetched here or sent from here, at both ends (ferry_batch_cancel). Raises
        nothing."""
        with self._own:
            pulls = [pull for pull, name in self._pulls.items() if name == obj_id]
        for pull in pulls:
            pull.cancel()
        if self._source is not None:
            self._source.abort(obj_id)

    def _tell(self, obj_id: str, meta: FerryTransportMetadata, pull: Pull) -> None:
        """Which way it took: in `transfers`, and in the log when it is news."""
        one = Transfer(
            obj_id, meta.node, pull.nbytes, len(meta.leaves), pull.copied, tuple(pull.routes()), time.monotonic() - pull.began
        )
        transfers.append(one)
        news = (meta.node, meta.tensor_device, one.routes, bool(one.copied))
        level = logging.DEBUG if news in self._told else logging.INFO
        self._told.add(news)
        how = f"{one.copied} of {one.tensors} tensors copied by the sender" if one.copied else "without a copy"
        what = f"{one.nbytes} bytes of {meta.tensor_device} by route {'+'.join(one.routes)}, {how}"
        log.log(level, "object %s from node %s: %s", obj_id[:16], meta.node, what)

    def close(self) -> None:
        """Who still fetches is told. Twice is once. Raises nothing."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


def _address_of_node() -> str:
    try:
        return str(ray.util.get_node_ip_address())
    except Exception:
        return "127.0.0.1"


def _deadline() -> float:
    """Ray's own timeout of a fetch, if it can be told."""
    try:
        from ray._private import ray_constants

        return float(max(1, ray_constants.RDT_FETCH_FAIL_TIMEOUT_SECONDS))
    except (ImportError, AttributeError):
        return DEADLINE


def _settle(tensors: Sequence[Any]) -> None:
    """Kernels that write to GPU tensors are over: the sends are posted by another thread, which has another current stream."""
    ordinals = {view.ordinal for view in map(view_of, tensors) if view.ordinal >= 0}
    for ordinal in sorted(ordinals):
        import torch

        torch.cuda.synchronize(ordinal)


def _target_device(here: Session, meta: FerryTransportMetadata) -> Optional[int]:
    """The GPU that is torch's current one, for objects that are on a GPU; None: host memory."""
    if meta.tensor_device != "cuda":
        return None
    import torch

    if not torch.cuda.is_available():
        raise FailedPreconditionError(
            "the object is on a GPU, and this process has none: give its actor num_gpus, or fetch into buffers of the CPU "
            "(ray.experimental.set_target_for_ref)",
            "FIELD_INVALID",
        )
    ordinal = torch.cuda.current_device()
    device = here.gpu_of(ordinal)
    if device is None:
        raise UnavailableError(f"the daemon of node {here.node} has not the GPU that is cuda:{ordinal} here", "DEVICE_UNKNOWN")
    return device


def _targets(here: Session, leaves: Sequence[Leaf], buffers: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Into what each is received: the buffer itself, or memory that is copied into it afterwards (their numbers)."""
    if len(buffers) != len(leaves):
        raise invalid(f"{len(leaves)} tensors are fetched into {len(buffers)} buffers", "target_buffers")
    into: list[Any] = []
    late = []
    for i, (leaf, buffer) in enumerate(zip(leaves, buffers, strict=True)):
        view = view_of(buffer)
        if tuple(view.shape) != leaf.shape or view.dtype.name != leaf.dtype:
            raise invalid(f"buffer {i} is {view.dtype.name}{view.shape}, the tensor {leaf.dtype}{leaf.shape}", "target_buffers")
        if place_of(here, view) is not None:
            into.append(buffer)
            continue
        late.append(i)
        gpu = here.gpu_of(view.ordinal) if view.ordinal >= 0 else None
        device = first_host(here) if gpu is None else gpu
        into.append(here.empty(leaf.shape, leaf.dtype, device))
    return into, late


def _copy_into(buffer: Any, got: Tensor) -> None:
    framework = _framework(buffer)
    if framework == "torch":
        buffer.copy_(_as("torch", got))
    else:
        buffer[...] = got.numpy()


def register(data_type: Optional[type] = None, name: str = "FERRY") -> None:
    """Makes ``tensor_transport="FERRY"`` known to Ray, in this process and in the actors that it makes from now on.

    data_type: what counts as a tensor in an actor's results, of which Ray takes one class for each name; None: torch.Tensor
    if PyTorch is installed, else numpy.ndarray. Another one under another `name`: ``register(jax.Array, "FERRY_JAX")``. Twice
    is once. Raises nothing of its own: ImportError if neither PyTorch nor NumPy is installed.
    """
    if data_type is None:
        try:
            import torch

            data_type = torch.Tensor
        except ImportError:
            import numpy

            data_type = numpy.ndarray
    try:
        register_tensor_transport(name, DEVICES, FerryTransport, data_type)
    except ValueError as error:
        if "already registered" not in str(error):
            raise


__all__ = [
    "FerryCommunicatorMetadata",
    "FerryError",
    "FerryFetchRequest",
    "FerryTransport",
    "FerryTransportMetadata",
    "Transfer",
    "register",
    "session",
    "transfers",
]
