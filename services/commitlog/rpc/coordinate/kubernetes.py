# SPDX-License-Identifier: Apache-2.0
"""KubernetesCoordinator: the record and the leader's lease as one Lease of Kubernetes.

Every change is a PUT of the object with the version that was read, so that record and holder change together and only
by who has seen what is there. Nobody but the candidates ends a lease: it is over when no sign of life of its holder
came for its time, counted by one's own clock from when the last one was seen first. The holder counts from when it sent
what was its last sign of life, so that its lease is over for itself before it is for anybody else.

Invariants: a PUT is sent once for each version, so `Lost` means that nothing was changed. It carries the object's uid,
because a PUT without one makes a Lease that was deleted anew. Reads come from a majority of the API server's etcd. No
clock of another machine is ever compared with: the times in the object are for people.
Not handled: a Lease that was set back, as from a backup. Its versions may be those of before.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import httpx2
from lightkube.resources.coordination_v1 import Lease

from libs.formats.state.leadership import LeadershipRecord
from libs.machine.clock import Clock, SystemClock
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View
from services.commitlog.rpc.coordinate.kubernetes_api import GONE, Conflict, KubernetesApi, code_of
from services.commitlog.rpc.coordinate.lease_object import Kept, kept_in, lease_of, version_of
from services.commitlog.rpc.coordinate.settings import KubernetesConfig

SLACK_S = 0.01
"""So much later than the end of a lease it is looked at."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The lease while it is ours."""

    version: int
    sent_at_s: float


@dataclass(frozen=True, slots=True)
class _Found:
    """What the API server has, and its own version of then."""

    version: int
    lease: Lease | None
    kept: Kept


class KubernetesCoordinator:
    """See `Coordinator`. Making it raises ConfigError.

    Each call has `timeout_ms` for each request. The lease lasts `lease_duration_ms`, rounded up to seconds.
    """

    __slots__ = (
        "_api",
        "_clock",
        "_config",
        "_duration_s",
        "_held",
        "_identity",
        "_newest_beat",
        "_noticed_at_s",
        "_sign_count",
    )

    def __init__(
        self, config: KubernetesConfig, *, identity: str, lease_duration_ms: int, clock: Clock | None = None
    ) -> None:
        assert identity
        assert lease_duration_ms > 0
        self._config, self._identity, self._clock = config, identity, clock or SystemClock()
        self._duration_s = -(-lease_duration_ms // 1000)
        self._held: _Held | None = None
        self._newest_beat, self._noticed_at_s = Kept().beat, 0.0
        self._sign_count = 0
        self._api = KubernetesApi(config)

    async def read(self) -> View:
        """Return what is there now. Raises CoordinatorUnavailable, for a bad record too."""
        return self._view((await self._find()).kept)

    async def watch(self) -> AsyncGenerator[View, None]:
        """Yield what is there now, and again after changes. It ends by CoordinatorUnavailable alone.

        What is silent for long is looked at by a read: a lease may be over, or the connection dead.
        """
        last: View | None = None
        while True:
            found = await self._find()
            async with contextlib.aclosing(self._until_silent(found)) as all_kept:
                async for kept in all_kept:
                    view = self._view(kept)
                    if view != last:
                        last = view
                        yield view

    async def elect(self, seen: View, record: LeadershipRecord) -> View:
        """Put record and holder. Raises Lost, and CoordinatorUnavailable: then the lease may be held."""
        sent_at_s = self._clock.monotonic_s()

        def elected(found: _Found) -> Kept:
            return Kept(
                record=record,
                record_version=found.version,
                holder=self._identity,
                holder_version=found.version,
                duration_s=self._duration_s,
                acquired_at=self._now(),
                renewed_at=self._now(),
            )

        kept = await self._replace(lambda kept: self._view(kept) == seen, elected)
        self._held = _Held(kept.holder_version, sent_at_s)
        return self._view(kept)

    async def renew(self) -> None:
        """Give a sign of life, a late one, too, if nobody else was elected. Raises Lost, CoordinatorUnavailable."""
        held, sent_at_s = self._must_have(), self._clock.monotonic_s()
        try:
            await self._replace(
                lambda kept: kept.holder_version == held.version,
                lambda found: dataclasses.replace(found.kept, renewed_at=self._now()),
            )
        except Lost:
            self._let_go(held)
            raise
        self._keep(held, sent_at_s)

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        """Put the record if the lease is ours and all is as seen. Raises Lost, CoordinatorUnavailable."""
        held, sent_at_s = self._must_hold(), self._clock.monotonic_s()
        kept = await self._replace(
            lambda kept: self._view(kept) == seen and kept.holder_version == held.version,
            lambda found: dataclasses.replace(
                found.kept, record=record, record_version=found.version, renewed_at=self._now()
            ),
        )
        self._keep(held, sent_at_s)
        return self._view(kept)

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        """Put the record with nobody as its holder, as `change`. Raises Lost, CoordinatorUnavailable."""
        held = self._must_hold()
        await self._replace(
            lambda kept: self._view(kept) == seen and kept.holder_version == held.version,
            lambda found: dataclasses.replace(
                found.kept, record=record, record_version=found.version, holder="", holder_version=0
            ),
        )
        self._let_go(held)

    def _now(self) -> datetime:
        """Return the time for people, another one each time: a PUT that changes nothing is no sign of life.

        The API takes times with their microseconds alone, and 0 of them would not be written.
        """
        self._sign_count += 1
        now_us = self._clock.now_ms() * 1000 + self._sign_count % 999 + 1
        return datetime.fromtimestamp(now_us // 1_000_000, UTC).replace(microsecond=now_us % 1_000_000)

    async def close(self) -> None:
        """Let go of the connections, and leave the lease to end by itself. Calls that are under way fail."""
        await self._api.close()

    def _must_have(self) -> _Held:
        """Return what was taken and not let go. Raises Lost."""
        if self._held is None:
            raise Lost("no lease is held")
        return self._held

    def _must_hold(self) -> _Held:
        """Return what is held. Raises Lost if that is nothing, or over by the holder's own clock."""
        held = self._must_have()
        if self._clock.monotonic_s() >= held.sent_at_s + self._duration_s:
            raise Lost("the lease is over")
        return held

    def _keep(self, held: _Held, sent_at_s: float) -> None:
        """Count from a later sign of life, unless a later election or release came between."""
        if self._held is not None and self._held.version == held.version:
            self._held = _Held(held.version, max(sent_at_s, self._held.sent_at_s))

    def _let_go(self, held: _Held) -> None:
        if self._held is not None and self._held.version == held.version:
            self._held = None

    async def _replace(self, is_right: Callable[[Kept], bool], make: Callable[[_Found], Kept]) -> Kept:
        """Put what follows from what is there, if that is right. Who only came between is no reason to give up.

        Raises Lost, and CoordinatorUnavailable.
        """
        end_s = self._clock.monotonic_s() + 2 * self._api.timeout_s
        while self._clock.monotonic_s() < end_s:
            found = await self._find()
            if not is_right(found.kept):
                raise Lost("the record or its holder is not what was seen")
            kept = make(found)
            with contextlib.suppress(Conflict):
                await self._put(lease_of(kept, self._config.lease, found.lease))
                return kept
        raise CoordinatorUnavailable(f"{self._api.server}: others change the Lease all the time")

    async def _put(self, lease: Lease) -> None:
        """Put the object. Raises Conflict, CoordinatorUnavailable."""
        client = self._api.client
        async with self._api.asking():
            is_new = lease.metadata is None or lease.metadata.resourceVersion is None
            await (client.create(lease) if is_new else client.replace(lease))

    async def _find(self) -> _Found:
        """Return what is there. A list of one object tells the API server's version also where there is none."""
        async with self._api.asking():
            answer = self._api.client.list(Lease, fields={"metadata.name": self._config.lease})
            leases = [lease async for lease in answer]
            version = answer.resourceVersion
        found = leases[0] if leases else None
        return _Found(version_of(version), found, kept_in(found))

    def _view(self, kept: Kept) -> View:
        """Return it as it is at this moment."""
        now_s = self._clock.monotonic_s()
        if kept.beat != self._newest_beat:
            self._newest_beat, self._noticed_at_s = kept.beat, now_s
        return kept.view(is_over=now_s >= self._end_s(kept))

    def _end_s(self, kept: Kept) -> float:
        """Return when the lease is over, if nothing is heard of its holder."""
        return self._noticed_at_s + (kept.duration_s or self._duration_s)

    async def _until_silent(self, found: _Found) -> AsyncGenerator[Kept, None]:
        """Yield what is there, and after each change, until there is none for long."""
        watch = cast("Any", self._api.client.watch)  # its types know resources without a namespace alone
        stream = watch(Lease, fields={"metadata.name": self._config.lease}, resource_version=str(found.version))
        kept = found.kept
        async with contextlib.aclosing(stream):
            while True:
                yield kept
                try:
                    kind, lease = await self._next(stream, self._patience_s(kept))
                except TimeoutError:
                    return
                kept = kept_in(None if kind == "DELETED" else lease)

    async def _next(self, stream: AsyncGenerator[tuple[str, Lease], None], patience_s: float) -> tuple[str, Lease]:
        """Return the next event. Raises TimeoutError, also for a watch that must begin anew."""
        with self._api.failing():
            try:
                async with asyncio.timeout(patience_s):
                    return await anext(stream)
            except httpx2.HTTPStatusError as error:
                if code_of(error) == GONE:
                    raise TimeoutError from error
                raise

    def _patience_s(self, kept: Kept) -> float:
        """Return how long silence means nothing: at most until the lease is over."""
        silent_s = 2 * self._api.timeout_s
        left_s = self._end_s(kept) - self._clock.monotonic_s()
        return min(silent_s, left_s + SLACK_S) if kept.holder and left_s > 0 else silent_s
