# SPDX-License-Identifier: Apache-2.0
"""KubernetesCoordinator: the record and the leader's lease as a single Lease of Kubernetes.

Every change is a PUT of the object with the version that was read. So record and holder change together, and only by a
process that has read the current state. Kubernetes expires no lease; the candidates do. For a candidate a lease is over
if it saw no renewal for the lease's duration by its own clock, from when it first saw the last renewal. The holder
measures from when it sent its last renewal, so the lease ends for the holder before it ends for any other process.

Invariants: a PUT is sent once for each version, so `Lost` means that nothing was changed. It carries the object's uid,
because a PUT without a uid would recreate a deleted Lease. Reads come from a majority of the API server's etcd. Clocks
of other machines are never compared: the times in the object are for people.
Not handled: a Lease that was restored to an earlier state, as from a backup. It may get earlier versions again.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import httpx2
from lightkube.resources.coordination_v1 import Lease
from msgspec import Struct
from msgspec.structs import replace

from libs.formats.state.leadership import LeadershipRecord
from libs.machine.clock import Clock, SystemClock
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View
from services.commitlog.rpc.coordinate.kubernetes_api import GONE, Conflict, KubernetesApi, code_of
from services.commitlog.rpc.coordinate.lease_object import Kept, kept_in, lease_of, version_of
from services.commitlog.rpc.coordinate.settings import KubernetesConfig

SLACK_S = 0.01
"""Delay from the end of a lease to its check."""


class _Held(Struct, frozen=True):
    """The lease while this process holds it."""

    version: int
    sent_at_s: float


class _Found(Struct, frozen=True):
    """The state at the API server, with the server's own version at the read."""

    version: int
    lease: Lease | None
    kept: Kept


class KubernetesCoordinator:
    """The client of a Lease. See `Coordinator`. The constructor raises ConfigError.

    Each request of a call has `timeout_ms`. The lease lasts `lease_duration_ms`, rounded up to seconds.
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
        """Return the current state. Raises CoordinatorUnavailable, also for a bad record."""
        return self._view((await self._find()).kept)

    async def watch(self) -> AsyncGenerator[View, None]:
        """Yield the current state, and the state after changes. It ends only by CoordinatorUnavailable.

        After a long silence the state is read: a lease may be over, or the connection may be dead.
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
        """Renew the lease, also late if no other process was elected. Raises Lost, CoordinatorUnavailable."""
        held, sent_at_s = self._must_have(), self._clock.monotonic_s()
        try:
            await self._replace(
                lambda kept: kept.holder_version == held.version,
                lambda found: replace(found.kept, renewed_at=self._now()),
            )
        except Lost:
            self._let_go(held)
            raise
        self._keep(held, sent_at_s)

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        """Put the record if this process is the holder and the state is `seen`. Raises Lost, CoordinatorUnavailable."""
        held, sent_at_s = self._must_hold(), self._clock.monotonic_s()
        kept = await self._replace(
            lambda kept: self._view(kept) == seen and kept.holder_version == held.version,
            lambda found: replace(found.kept, record=record, record_version=found.version, renewed_at=self._now()),
        )
        self._keep(held, sent_at_s)
        return self._view(kept)

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        """Put the record without a holder, as `change`. Raises Lost, CoordinatorUnavailable."""
        held = self._must_hold()
        await self._replace(
            lambda kept: self._view(kept) == seen and kept.holder_version == held.version,
            lambda found: replace(found.kept, record=record, record_version=found.version, holder="", holder_version=0),
        )
        self._let_go(held)

    def _now(self) -> datetime:
        """Return the time for people, different at each call: a PUT that changes nothing would be no renewal.

        The API accepts only times with microseconds, and 0 microseconds would not be written.
        """
        self._sign_count += 1
        now_us = self._clock.now_ms() * 1000 + self._sign_count % 999 + 1
        return datetime.fromtimestamp(now_us // 1_000_000, UTC).replace(microsecond=now_us % 1_000_000)

    async def close(self) -> None:
        """Close the connections. The lease ends by itself. Running calls fail."""
        await self._api.close()

    def _must_have(self) -> _Held:
        """Return the lease that was taken and not released. Raises Lost."""
        if self._held is None:
            raise Lost("no lease is held")
        return self._held

    def _must_hold(self) -> _Held:
        """Return the held lease. Raises Lost if none is held, or if it is over by the holder's own clock."""
        held = self._must_have()
        if self._clock.monotonic_s() >= held.sent_at_s + self._duration_s:
            raise Lost("the lease is over")
        return held

    def _keep(self, held: _Held, sent_at_s: float) -> None:
        """Measure the lease from a later renewal, unless a later election or release came between."""
        if self._held is not None and self._held.version == held.version:
            self._held = _Held(held.version, max(sent_at_s, self._held.sent_at_s))

    def _let_go(self, held: _Held) -> None:
        if self._held is not None and self._held.version == held.version:
            self._held = None

    async def _replace(self, is_right: Callable[[Kept], bool], make: Callable[[_Found], Kept]) -> Kept:
        """Put the state that `make` returns for the current state, if `is_right` accepts it. Retries after a conflict.

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
        """Return the current state. A list with a filter has the API server's version even without the object."""
        async with self._api.asking():
            answer = self._api.client.list(Lease, fields={"metadata.name": self._config.lease})
            leases = [lease async for lease in answer]
            version = answer.resourceVersion
        found = leases[0] if leases else None
        return _Found(version_of(version), found, kept_in(found))

    def _view(self, kept: Kept) -> View:
        """Return the View of this moment."""
        now_s = self._clock.monotonic_s()
        if kept.beat != self._newest_beat:
            self._newest_beat, self._noticed_at_s = kept.beat, now_s
        return kept.view(is_over=now_s >= self._end_s(kept))

    def _end_s(self, kept: Kept) -> float:
        """Return when the lease is over without a further renewal."""
        return self._noticed_at_s + (kept.duration_s or self._duration_s)

    async def _until_silent(self, found: _Found) -> AsyncGenerator[Kept, None]:
        """Yield the found state and the state after each change, until a long silence."""
        watch = cast("Any", self._api.client.watch)  # its types only know resources without a namespace
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
        """Return the next event. Raises TimeoutError, also if the watch must begin anew."""
        with self._api.failing():
            try:
                async with asyncio.timeout(patience_s):
                    return await anext(stream)
            except httpx2.HTTPStatusError as error:
                if code_of(error) == GONE:
                    raise TimeoutError from error
                raise

    def _patience_s(self, kept: Kept) -> float:
        """Return for how long silence is normal: at most until the lease is over."""
        silent_s = 2 * self._api.timeout_s
        left_s = self._end_s(kept) - self._clock.monotonic_s()
        return min(silent_s, left_s + SLACK_S) if kept.holder and left_s > 0 else silent_s
