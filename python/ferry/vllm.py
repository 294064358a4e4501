# SPDX-License-Identifier: Apache-2.0
"""vLLM's weight transfer by Ferry: `--weight-transfer-config '{"backend": "ferry"}'`, and FerryTrainerInitInfo in the trainer.

Each trainer rank offers what it owns, and each worker fetches what it needs from whoever has it: no rank gathers, and none
sends for the others. The control plane is vLLM's own (its client, which trainer rank 0 drives). docs/python.md.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future as Call
from dataclasses import asdict, fields
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import TrainerWeightTransferEngine

from ferry._source import Source, open_session
from ferry._vllm_infos import (
    WORKERS,
    FerryTrainerInitInfo,
    FerryWeightTransferInitInfo,
    FerryWeightTransferUpdateInfo,
)
from ferry._vllm_worker import FerryWeightTransferEngine
from ferry.errors import AbortedError, DeadlineExceededError


def register() -> None:
    """The entry point of ``vllm.general_plugins``: makes the backend known to both of vLLM's factories. Twice is once.
    Raises nothing of its own: ImportError if there is no vLLM."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

    for factory, name in (
        (WeightTransferEngineFactory, "FerryWeightTransferEngine"),
        (WeightTransferTrainerFactory, "FerryTrainerWeightTransferEngine"),
    ):
        with contextlib.suppress(ValueError):  # there already
            factory.register_engine("ferry", "ferry.vllm", name)


class FerryTrainerWeightTransferEngine(TrainerWeightTransferEngine):  # type: ignore[misc]
    """In every trainer rank. `send_weights` returns once every worker has everything, or raises on every rank.

    Each worker holds a connection to rank 0 from when it is told of the weights until it is shut down. So one that dies is
    noticed whatever vLLM's own call to it does, and however many other workers that call still waits for.
    """

    init_info_cls = FerryTrainerInitInfo

    def __init__(self, *, client: Any, source: Any, info: FerryTrainerInitInfo) -> None:
        super().__init__(client=client, source=source, is_sender=info.is_sender, rank=info.rank)
        self._info, self._gather = info, info.gather or _gather
        self._session = open_session(f"vllm-trainer-{info.rank}", info.client_dir)
        self._offers = Source(self._session, info.host)
        if self.is_sender:
            self._offers.offer(WORKERS, [])
        self.version = 0

    @classmethod
    def trainer_init(cls, init_info: FerryTrainerInitInfo, *, client: Any, source: Any = None) -> Any:
        """Tells the workers, from rank 0.

        Raises: ValueError without a `source`; UnavailableError if no daemon listens; from rank 0 PeerClientGoneError if a
        worker dies meanwhile, DeadlineExceededError after `deadline` seconds, and what the workers raise.
        """
        if source is None:
            raise ValueError("Ferry trainer weight transfer requires a WeightSource.")
        engine = cls(client=client, source=source, info=init_info)
        if engine.is_sender:
            try:
                told = asdict(engine._init_info())
                engine._call("init_weight_transfer_engine", lambda: client.init_weight_transfer_engine(told))
            except BaseException:
                engine.shutdown()
                raise
        return engine

    def _init_info(self) -> FerryWeightTransferInitInfo:
        metas, local = self.source.metadata, self.source.implements_iter_local()
        return FerryWeightTransferInitInfo(
            names=[meta.name for meta in metas],
            dtype_names=[str(meta.dtype).rpartition(".")[2] for meta in metas],
            shapes=[list(meta.shape) for meta in metas],
            owners=[None if meta.owners is None else list(meta.owners) for meta in metas],
            mesh_shapes=[None if meta.mesh_shape is None else list(meta.mesh_shape) for meta in metas],
            placements=[
                [getattr(one, "dim", None) for one in meta.placements] if local and meta.placements else None for meta in metas
            ],
            deadline=self._info.deadline,
            bucket_bytes=self._info.bucket_bytes,
            trainer=list(self._offers.address),
        )

    def send_weights(self) -> None:
        """Every rank calls it, and it is over on all of them at once.

        Raises: what a rank's source raises, there, and AbortedError with its text on the others: nothing was asked of the
        workers then. Of a worker that dies PeerClientGoneError on rank 0 and AbortedError on the others, and the version is
        not finished; so is every version after it, for which new engines are made. Of a worker that lives and does not answer
        DeadlineExceededError, after `deadline` seconds of a call to it. UnavailableError while the daemon is away.
        """
        version, failed = self.version + 1, None
        offer, offered = f"vllm-{version}", None
        try:
            try:
                offered = self._offer(offer)
            except Exception as error:
                failed = error
            said = self._gather((None if failed is None else f"{type(failed).__name__}: {failed}", offered))
            for rank, (why, _) in enumerate(said):
                if why is not None:
                    raise failed or AbortedError(f"version {version} of the weights was not offered by rank {rank}: {why}", "")
            if self.is_sender:
                try:
                    self._drive(version, offer, [source for _, source in said])
                except Exception as error:
                    failed = error
            outcome = self._gather(None if failed is None else f"{type(failed).__name__}: {failed}")[0]
        finally:
            self._offers.withdraw(offer)
        if failed is not None:
            raise failed
        if outcome is not None:
            raise AbortedError(f"version {version} of the weights was not taken: {outcome}", "")
        self.version = version

    def _offer(self, offer: str) -> Any:
        """Offers what this rank owns: what the workers are told of it."""
        source = self.source
        pairs = list(source.iter_local() if source.implements_iter_local() else source.iter_full())
        tensors = [tensor.detach() for _, tensor in pairs]
        for ordinal in {tensor.device.index for tensor in tensors if tensor.is_cuda}:
            torch.cuda.synchronize(ordinal)  # the sends are posted by another thread, which has another current stream
        leaves = self._offers.offer(offer, tensors)
        known = {name: (i, list(leaf)) for i, ((name, _), leaf) in enumerate(zip(pairs, leaves, strict=True))}
        return list(self._offers.address), self._session.node, known

    def _drive(self, version: int, offer: str, sources: list[Any]) -> None:
        info = FerryWeightTransferUpdateInfo(version=version, offer=offer, sources=sources)
        update = {field.name: getattr(info, field.name) for field in fields(info)}  # without a copy of what is in it
        self._call("start_weight_update", self.client.start_weight_update, offer)
        self._call("update_weights", lambda: self.client.update_weights(update), offer)
        self._call("finish_weight_update", lambda: self.client.finish_weight_update(str(version)), offer)

    def _call(self, what: str, asked: Callable[[], object], offer: str = "") -> None:
        """One of the client's calls to all workers, which is given up once one of them is gone, or has given up `offer`."""
        workers, takers = (self._offers.taken(name) if name else None for name in (WORKERS, offer))
        assert workers is not None
        changed, call = workers.changed, Call[None]()

        def run() -> None:
            try:
                asked()
                call.set_result(None)
            except BaseException as error:
                call.set_exception(error)
            with changed:
                changed.notify_all()

        def failed() -> bool:
            return bool(workers.failed or (takers is not None and takers.failed))

        with changed:
            if not workers.failed:
                # A daemon: a call to workers of which one is dead may never return, and nobody shall wait for it.
                threading.Thread(target=run, name=f"vllm-{what}", daemon=True).start()
                changed.wait_for(lambda: call.done() or failed(), self._info.deadline)
                if not call.done() and failed():
                    changed.wait_for(call.done, 0.5)  # what the worker says itself is better
                elif call.done() and call.exception() is not None:
                    changed.wait_for(lambda: workers.failed, 0.2)  # the connection of one that died may be heard of later
            gone = next(iter(workers.failed.values()), None)
            given_up = None if takers is None else next(iter(takers.failed.values()), None)
        error = call.exception() if call.done() else None
        if gone is not None:
            raise gone from error
        if error is not None:
            raise error
        if given_up is not None:
            raise given_up
        if not call.done():
            raise DeadlineExceededError(
                f"the workers have not answered {what} after {self._info.deadline} s (deadline=): all that said that they live "
                "still do, so one is stuck, or could not reach this rank (host=)",
                "",
            )

    def shutdown(self) -> None:
        """Gives back what was offered; who still fetches is told. Twice is once. Raises nothing."""
        self._offers.close()
        self._session.close()


def _gather(value: Any) -> list[Any]:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return [value]
    made: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(made, value)
    return made


__all__ = [
    "FerryTrainerInitInfo",
    "FerryTrainerWeightTransferEngine",
    "FerryWeightTransferEngine",
    "FerryWeightTransferInitInfo",
    "FerryWeightTransferUpdateInfo",
    "register",
]
