# SPDX-License-Identifier: Apache-2.0
"""verl's checkpoint engine by Ferry: ``checkpoint_engine.backend=ferry checkpoint_engine.custom_backend_module=ferry.verl``.

Each actor rank keeps its share of the last version in host memory, 1/N of the model for N ranks, and every rollout fetches
from all of them: no rank is the master, sending waits for nobody, and a rollout that joins later gets the last version.
docs/python.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Optional

import torch
from verl.checkpoint_engine import base
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from ferry._pull import Pull, ask
from ferry._request import DEADLINE, Address
from ferry._session import Session
from ferry._source import Source, host_device, open_session
from ferry.errors import AbortedError, FailedPreconditionError, FerryError

log = logging.getLogger("ferry.verl")


class _Version(NamedTuple):
    """Weights that an actor has offered whole. `attempt`: how their offers begin; the two that follow are of verl's own."""

    attempt: str
    number: int
    step: Optional[int]
    offers: tuple[str, ...]


def _common(actors: Sequence[dict[str, Any]]) -> tuple[str, int, Optional[int]]:
    """Attempt, number and step of the last version that all actors have; "", 0 and None: there is none."""
    of_all = set.intersection(*({attempt for attempt, _, _ in one["versions"]} for one in actors)) if actors else set()
    known = [tuple(version) for version in (actors[0]["versions"] if actors else []) if version[0] in of_all]
    return max(known, key=lambda version: version[1], default=("", 0, None))


@CheckpointEngineRegistry.register("ferry")  # type: ignore[untyped-decorator, unused-ignore]
class FerryCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """In actors and rollouts. `engine_kwargs.ferry` may have host (the address of this node by which the others reach it),
    client_dir and deadline."""

    def __init__(
        self,
        bucket_size: int,
        is_master: bool = False,
        host: Optional[str] = None,
        client_dir: Optional[str] = None,
        deadline: float = DEADLINE,
        **_: Any,
    ) -> None:
        self._bucket_size, self._host, self._deadline = bucket_size, host, deadline
        self._client_dir = client_dir
        self._session: Optional[Session] = None
        self._source: Optional[Source] = None
        self._rank, self._ranks, self._peers = -1, 0, []  # type: tuple[int, int, list[Any]]
        self._sent, self._due = 0, 0
        self._attempt = ""  # how the offers of the version that is due begin
        # Offered whole, the oldest first: the last one that all actors had when the last update began, and one since.
        self._versions: list[_Version] = []
        self._failed: list[str] = []  # of attempts that failed, without tensors
        self.routes: list[str] = []

    def prepare(self) -> dict[str, Any]:
        """Where this process is reached: the same each time, while it lives. And which versions it offers.
        UnavailableError if no daemon listens."""
        if self._session is None:
            self._session = open_session("verl", self._client_dir)
        if self._source is None:
            self._source = Source(self._session, self._host or _address_of_node())
        return {
            "address": list(self._source.address),
            "node": self._session.node,
            "sent": self._sent,
            "versions": [[one.attempt, one.number, one.step] for one in self._versions],
        }

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Every actor rank sends its share to every rollout: each rollout is told all of them, and no rank is the master. Each
        call is an attempt of its own: what an earlier one of the same version has left is never mixed with it. Raises
        nothing."""
        actors = metadata[:actor_wg_world_size]
        due = max((one["sent"] for one in actors), default=0) + 1
        attempt, complete = f"verl-{due}-{secrets.token_hex(4)}", _common(actors)[0]
        return (
            {
                "rank": list(range(actor_wg_world_size)),
                "ranks": [actor_wg_world_size] * actor_wg_world_size,
                "peers": [[]] * actor_wg_world_size,
                "due": [due] * actor_wg_world_size,
                "attempt": [attempt] * actor_wg_world_size,
                "complete": [complete] * actor_wg_world_size,
            },
            {
                "rank": [-1] * rollout_world_size,
                "ranks": [actor_wg_world_size] * rollout_world_size,
                "peers": [actors] * rollout_world_size,
                "due": [due] * rollout_world_size,
                "attempt": [attempt] * rollout_world_size,
                "complete": [complete] * rollout_world_size,
            },
        )

    @staticmethod
    def join_topology(rollout_world_size: int, actors: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """What `build_topology` has for rollouts, of ones that join: due is the last version that all actors have, which is
        there already; 0 if none has sent any. FailedPreconditionError if they have none in common: some are new since."""
        attempt, number, _ = _common(actors)
        if not number and any(one["versions"] for one in actors):
            said = "; ".join(" and ".join(version[0] for version in one["versions"]) or "none" for one in actors)
            raise FailedPreconditionError(
                f"the actors have no version of the weights in common ({said}): some were started since the last update, or "
                "the first one failed on some; join after the next one",
                "FIELD_INVALID",
            )
        return {
            "rank": [-1] * rollout_world_size,
            "ranks": [len(actors)] * rollout_world_size,
            "peers": [actors] * rollout_world_size,
            "due": [number] * rollout_world_size,
            "attempt": [attempt] * rollout_world_size,
            "complete": [attempt] * rollout_world_size,
        }

    def init_process_group(
        self, rank: int, ranks: int, peers: list[Any], due: int, attempt: str, complete: Optional[str] = None
    ) -> None:
        """No group: it costs nothing, and nothing has to be built again when a rollout comes or goes. An actor gives up all
        versions but `complete`, the last one that all actors have. Raises nothing."""
        self._rank, self._ranks, self._peers, self._due, self._attempt = rank, ranks, peers, due, attempt
        if complete is not None:
            self._give_up([one for one in self._versions if one.attempt != complete])

    @property
    def _kept(self) -> list[str]:
        """The offers of all versions."""
        return [offer for one in self._versions for offer in one.offers]

    def _give_up(self, versions: Sequence[_Version]) -> None:
        """Whoever fetches one of them still gets what it has asked for."""
        self._versions = [one for one in self._versions if one not in versions]
        for offer in [offer for one in versions for offer in one.offers]:
            if self._source is not None:
                self._source.withdraw(offer)

    def finalize(self) -> None:
        """The last version stays where it is, for who joins. Raises nothing."""

    # ---- Actors

    async def send_weights(self, weights: Any, global_steps: Optional[int] = None) -> None:
        """Takes this rank's share of a version into host memory, bucket by bucket, and offers each as soon as it is there.
        Returns when all is: the weights may change, whoever has not fetched them yet. The version before stays what a rollout
        that joins gets until all actors have this one, and so if it fails on some of them: it is given up as the next update
        begins.

        Raises: what iterating `weights` does; FailedPreconditionError before `prepare` and `init_process_group`;
        ResourceExhaustedError where host memory is full; UnavailableError while the daemon is away. Rollouts that wait for
        this version get AbortedError with its text.
        """
        if self._source is None or self._session is None or self._rank < 0:
            raise FailedPreconditionError("prepare and init_process_group come before send_weights", "FIELD_INVALID")
        made: list[str] = []
        try:
            await self._take(weights, global_steps, made)
        except BaseException as error:
            self._refuse(made, error)
            raise
        self._versions.append(_Version(self._attempt, self._due, global_steps, tuple(made)))
        failed, self._failed, self._sent = self._failed, [], self._due
        self._give_up(self._versions[:-2])
        for offer in failed:
            self._source.withdraw(offer)

    async def _take(self, weights: Any, global_steps: Optional[int], made: list[str]) -> None:
        assert self._session is not None
        bucket: list[tuple[str, Any]] = []
        size = 0
        index = 0
        async for name, tensor in _each(weights):  # all of it: to gather it is the work of all ranks
            mine, index = index % self._ranks == self._rank, index + 1
            if not mine:
                continue
            if bucket and size + tensor.numel() * tensor.element_size() > self._bucket_size:
                self._offer(bucket, global_steps, made, last=False)
                bucket, size = [], 0
            kept = self._session.empty(tuple(tensor.shape), tensor.dtype, host_device(self._session))
            torch.from_dlpack(kept).copy_(tensor.detach())
            bucket.append((name, kept))
            size += tensor.numel() * tensor.element_size()
        self._offer(bucket, global_steps, made, last=True)

    def _offer(self, bucket: list[tuple[str, Any]], global_steps: Optional[int], made: list[str], last: bool) -> None:
        assert self._source is not None
        name = _name(self._attempt, len(made))
        info = {"names": [name for name, _ in bucket], "step": global_steps, "last": last}
        self._source.offer(name, [tensor for _, tensor in bucket], info)
        made.append(name)

    def _refuse(self, made: list[str], error: BaseException) -> None:
        """In place of the buckets of an attempt that failed, and of the one that would have been next, why."""
        assert self._source is not None
        self._failed += [*made, _name(self._attempt, len(made))]
        for name in self._failed[-len(made) - 1 :]:
            with contextlib.suppress(FerryError):
                self._source.offer(name, [], {"failed": f"{type(error).__name__}: {error}"})

    # ---- Rollouts

    async def receive_weights(self, global_steps: Optional[int] = None) -> AsyncIterator[tuple[str, Any]]:
        """The version that is being sent, from all actor ranks at once; a failure is an exception, and what was yielded of such
        a version must be discarded.

        Raises: FailedPreconditionError before `prepare` and `init_process_group`, or if another step was sent; AbortedError if
        an actor's `send_weights` failed; UnavailableError or PeerClientGoneError if an actor is gone; WaitTimeoutError if one
        has not offered its weights, DeadlineExceededError if they have not come, after `deadline` seconds.
        """
        async for one in self._received(self._attempt, global_steps):
            yield one

    async def join(self, actors: list[dict[str, Any]]) -> AsyncIterator[tuple[str, Any]]:
        """For a rollout that has joined: the last version that all have, of actors whose `prepare` gave `actors`, without the
        others. `join_replicas` does this for the replicas of verl's manager. FailedPreconditionError if nothing was sent yet,
        or the actors have no version in common; else as `receive_weights`."""
        self.prepare()
        self.init_process_group(**{name: values[0] for name, values in self.join_topology(1, actors).items()})
        if not self._due:
            raise FailedPreconditionError("no version of the weights was sent yet", "FIELD_INVALID")
        async for one in self._received(self._attempt, None):
            yield one

    async def _received(self, version: str, step: Optional[int]) -> AsyncIterator[tuple[str, Any]]:
        if self._session is None or not self._peers:
            raise FailedPreconditionError("prepare and init_process_group come before receive_weights", "FIELD_INVALID")
        tasks = {rank: asyncio.create_task(self._bucket(rank, version, 0, step)) for rank in range(len(self._peers))}
        number = dict.fromkeys(tasks, 0)
        try:
            while tasks:
                done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                for rank in [rank for rank, task in tasks.items() if task in done]:
                    names, tensors, last = tasks.pop(rank).result()
                    if not last:  # the next one comes while these are loaded
                        number[rank] += 1
                        tasks[rank] = asyncio.create_task(self._bucket(rank, version, number[rank], step))
                    for name, tensor in zip(names, tensors, strict=True):
                        yield name, torch.from_dlpack(tensor)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _bucket(self, rank: int, version: str, number: int, step: Optional[int]) -> tuple[list[str], list[Any], bool]:
        assert self._session is not None
        session, peer, name = self._session, self._peers[rank], _name(version, number)
        address = Address(*peer["address"])
        try:
            leaves, info = await asyncio.to_thread(ask, address, name, self._deadline)
            if "failed" in info:
                raise AbortedError(f"actor rank {rank} could not send these weights: {info['failed']}", "")
            if step is not None and info["step"] is not None and info["step"] != step:
                raise FailedPreconditionError(f"step {step} was to be received, and step {info['step']} was sent", "")
            pull = Pull(
                session, address, name, leaves, device=_device(session), who=f"{session.node}/rollout", deadline=self._deadline
            )
        except FerryError as error:
            log.error("weights %s have not come from actor rank %d: %s", version, rank, error)
            raise
        try:
            tensors = await asyncio.to_thread(pull.wait, self._deadline)
        except asyncio.CancelledError:
            pull.cancel()
            raise
        routes = pull.routes()
        if set(routes) - set(self.routes):
            self.routes = sorted({*self.routes, *routes})
            log.info("weights from actor rank %d on node %s come by route %s", rank, peer["node"], "+".join(routes))
        return info["names"], tensors, info["last"]

    def close(self) -> None:
        """Gives the memory back; who still fetches is told. Twice is once. Raises nothing."""
        source, self._source = self._source, None
        session, self._session = self._session, None
        if source is not None:
            source.close()
        if session is not None:
            session.close()


async def join_replicas(manager: Any, replicas: Sequence[Any]) -> Optional[int]:
    """Adds rollout replicas to verl's ``CheckpointEngineManager``, with the last version that all actors have: call it in
    place of ``manager.add_replicas(replicas)``, which leaves them without weights until the next ``update_weights``.

    What the manager does to all replicas at an update is done to these alone: their requests end, their KV cache is given up,
    each of their workers fetches from all actors, and they go on. The other replicas and the actors' training are not
    disturbed. Returns the step that they have then; None if nothing was sent yet: then they are added as they are. Not while
    ``manager.update_weights`` runs, which may take that version away.

    Raises: FailedPreconditionError, before anything is done, if the actors have no version in common; what fetching raises
    (PeerClientGoneError, UnavailableError, DeadlineExceededError), as Ray hands it on. The replicas are not added then, and
    those that were asked do not go on: they have no weights.

    Tested after upstream's tests/checkpoint_engine: test_replica_weight_recovery_on_cpu.py (one replica gets what is current,
    and the healthy ones are left alone; who could not is not resumed) and test_manager_cleanup_on_cpu.py (finalize and the KV
    cache after a failure).
    """
    actors = await asyncio.to_thread(base.ray.get, _asked(manager.actor_wg, "prepare"))
    manager.backend_cls.join_topology(1, actors)  # refuses before anybody is disturbed
    _, number, step = _common(actors)
    if not replicas or not number:
        manager.add_replicas(list(replicas))
        return None
    group = base.RayWorkerGroup(
        worker_handles=[worker for replica in replicas for worker in replica.workers],
        ray_cls_with_init=base.RayClassWithInitArgs(cls=base._worker_cls),
    )
    await asyncio.gather(*(replica.abort_all_requests() for replica in replicas))
    await asyncio.gather(*(replica.release_kv_cache() for replica in replicas))
    try:
        await asyncio.to_thread(base.ray.get, _asked(group, "prepare"))
        topology = manager.backend_cls.join_topology(group.world_size, actors)
        await asyncio.to_thread(base.ray.get, _asked(group, "init_process_group", **topology))
        await asyncio.to_thread(base.ray.get, group.update_weights(global_steps=step))
    except BaseException:  # which is what is told, whatever else fails now
        with contextlib.suppress(Exception):
            await asyncio.to_thread(base.ray.get, _asked(group, "finalize"))
        await asyncio.gather(*(replica.resume_kv_cache() for replica in replicas), return_exceptions=True)
        raise
    await asyncio.to_thread(base.ray.get, _asked(group, "finalize"))
    await asyncio.gather(*(replica.resume_kv_cache() for replica in replicas))
    await asyncio.gather(*(replica.resume_generation() for replica in replicas))
    manager.add_replicas(list(replicas))
    return step


def _asked(group: Any, method: str, **arguments: list[Any]) -> Any:
    """A call of the engine in each worker of a group of verl's; each argument has a value for each worker."""
    return group.execute_checkpoint_engine([method] * group.world_size, **arguments)


def _name(attempt: str, bucket: int) -> str:
    return f"{attempt}-{bucket}"


def _device(session: Session) -> Optional[int]:
    """The current GPU, where there is one; None: host memory."""
    return session.gpu_of(torch.cuda.current_device()) if torch.cuda.is_available() else None


def _address_of_node() -> str:
    try:
        import ray

        return str(ray.util.get_node_ip_address())
    except Exception:  # not in a worker of Ray's
        return "127.0.0.1"


async def _each(weights: Any) -> AsyncIterator[Any]:
    if hasattr(weights, "__aiter__"):
        async for one in weights:
            yield one
    else:
        for one in weights:
            yield one


__all__ = ["FerryCheckpointEngine", "join_replicas"]
