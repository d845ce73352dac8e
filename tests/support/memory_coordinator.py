# SPDX-License-Identifier: Apache-2.0
"""A coordinator in memory, whose time and whose faults are the test's."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from libs.formats.state.leadership import LeadershipRecord
from libs.machine.testing.manual_clock import ManualClock
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, Lost, View

NOTHING = View(None, "")


class MemoryCoordinator:
    """A coordinator in memory. A lease ends by its clock, or when a test ends it."""

    def __init__(self, lease_s: float = 5.0, now_s: Callable[[], float] | None = None) -> None:
        self.lease_s = lease_s
        self.clock = ManualClock()
        self._now_s = now_s or self.clock.monotonic_s
        self._there = NOTHING
        self._revision = 0
        self._renewed_at_s = 0.0
        self._changed = asyncio.Event()

    def door(self, identity: str) -> "Door":
        """Return the door of a further process."""
        return Door(self, identity)

    @property
    def there(self) -> View:
        """The record and the holder now."""
        if self._there.holder and self._now_s() - self._renewed_at_s >= self.lease_s:
            self.expire()
        return self._there

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(round(seconds * 1000))
        self._tell()

    def expire(self) -> None:
        """End the lease, possibly early."""
        self._there = View(self._there.record, "", self._there.record_version, 0)
        self._tell()

    def wipe(self) -> None:
        """Lose the record and the holder."""
        self._there = NOTHING
        self._tell()

    def renew(self, holder_version: int) -> None:
        """See `Coordinator.renew`."""
        if not holder_version or self.there.holder_version != holder_version:
            raise Lost("the lease is over")
        self._renewed_at_s = self._now_s()

    def put(self, seen: View, record: LeadershipRecord, holder: str, *, keeps: bool) -> View:
        """Replace the record and the holder, if the view is current. `keeps` leaves the holder as it is."""
        there = self.there
        if (seen.record_version, seen.holder_version) != (there.record_version, there.holder_version):
            raise Lost("the record or its holder is not what was seen")
        self._revision += 1
        version = there.holder_version if keeps else self._revision if holder else 0
        self._there = View(record, holder, self._revision, version)
        if not keeps:
            self._renewed_at_s = self._now_s()
        self._tell()
        return self._there

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Door:
    """The door of a process to a MemoryCoordinator. See `Coordinator`."""

    def __init__(self, coordinator: MemoryCoordinator, identity: str) -> None:
        self._coordinator = coordinator
        self.identity = identity
        self._holder_version = 0
        self.is_cut = False
        self.loses: Callable[[], bool] = lambda: False
        """Whether the next answer is lost, although its call is carried out."""

    async def read(self) -> View:
        await self._pass()
        return self._answer(self._coordinator.there)

    async def watch(self) -> AsyncGenerator[View, None]:
        while True:
            there = await self.read()
            yield there
            while self._coordinator.there == there and not self.is_cut:
                await self._coordinator.changed()

    async def elect(self, seen: View, record: LeadershipRecord) -> View:
        await self._pass()
        view = self._coordinator.put(seen, record, self.identity, keeps=False)
        self._holder_version = view.holder_version
        return self._answer(view)

    async def renew(self) -> None:
        await self._pass()
        there = self._coordinator.there
        if there.holder == self.identity:
            self._holder_version = there.holder_version
        self._coordinator.renew(self._holder_version)
        self._answer(NOTHING)

    async def change(self, seen: View, record: LeadershipRecord) -> View:
        await self._pass()
        self._check()
        return self._answer(self._coordinator.put(seen, record, self.identity, keeps=True))

    async def release(self, seen: View, record: LeadershipRecord) -> None:
        await self._pass()
        self._check()
        self._coordinator.put(seen, record, "", keeps=False)
        self._holder_version = 0
        self._answer(NOTHING)

    async def close(self) -> None:
        self.is_cut = True

    async def _pass(self) -> None:
        await asyncio.sleep(0)
        if self.is_cut:
            raise CoordinatorUnavailable("the wire is cut")

    def _answer(self, view: View) -> View:
        if self.is_cut or self.loses():
            raise CoordinatorUnavailable("the answer is lost")
        return view

    def _check(self) -> None:
        if self._coordinator.there.holder != self.identity:
            raise Lost("the lease is somebody else's")
