# SPDX-License-Identifier: Apache-2.0
"""The promises of every Coordinator, as tests. A class that inherits these tests gives the stage to run them on."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

import pytest

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from services.commitlog.engine.elect.coordinator import Coordinator, Lost, View
from tests.support.patience import LIMIT_S

A, B = Member("a", "1" * 32), Member("b", "2" * 32)
RACE_COUNT = 20


class Stage(Protocol):
    """An empty coordinator, and its time."""

    lease_s: float
    """The duration of a lease."""

    def door(self, identity: str) -> Coordinator:
        """Return the door of a further process. The stage closes it."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let this time pass. More may pass."""
        ...

    def now_s(self) -> float:
        """The time by which leases end."""
        ...


def record_of(epoch: int, leader: Member | None = A, successor: str = "") -> LeadershipRecord:
    """Return a record that differs by its epoch."""
    return LeadershipRecord(history_id="h", epoch=epoch, leader=leader, in_sync=(A, B), successor=successor)


async def seen_when(
    door: Coordinator, condition: Callable[[View], bool], *, on_first: Callable[[], None] | None = None
) -> View:
    """Return the first view of a watch that meets the condition."""
    async with contextlib.aclosing(door.watch()) as views, asyncio.timeout(LIMIT_S):
        async for view in views:
            if on_first is not None:
                on_first()
            if condition(view):
                return view
    raise AssertionError("a watch does not end")


class CoordinatorContract:
    """Inherit it, and give the fixture `stage`."""

    async def test_nothing_is_there_at_first(self, stage: Stage) -> None:
        """At first there is no record and no holder, and a lease that was never taken is lost."""
        door = stage.door("a")
        assert await door.read() == View(None, "")
        with pytest.raises(Lost):
            await door.renew()

    async def test_the_first_election(self, stage: Stage) -> None:
        """The record and the holder appear together, and every process reads the same."""
        a, b = stage.door("a"), stage.door("b")
        view = await a.elect(await a.read(), record_of(1))
        assert (view.record, view.holder) == (record_of(1), "a")
        assert view.record_version > 0
        assert view.holder_version != 0
        assert await a.read() == await b.read() == view
        await a.renew()

    async def test_an_election_on_what_is_not_there_any_more(self, stage: Stage) -> None:
        """A view is valid for a single election, by any process.

        A second election with the same view is refused, and the record and the holder stay.
        """
        a, b = stage.door("a"), stage.door("b")
        seen = await a.read()
        view = await a.elect(seen, record_of(1))
        for door in (a, b):
            with pytest.raises(Lost):
                await door.elect(seen, record_of(2))
        assert await a.read() == view
        await a.renew()

    async def test_a_lease_that_lives_is_taken_over(self, stage: Stage) -> None:
        """A process takes over a lease that has not expired, and the holder before it loses all its rights at once.

        The coordinator does not decide whether a process may take the lease over.
        """
        a, b = stage.door("a"), stage.door("b")
        old = await a.elect(await a.read(), record_of(1))
        new = await b.elect(await b.read(), record_of(2, B))
        assert (new.holder, new.record) == ("b", record_of(2, B))
        assert new.record_version > old.record_version
        assert new.holder_version != old.holder_version
        with pytest.raises(Lost):
            await a.renew()
        for seen in (old, new):
            with pytest.raises(Lost):
                await a.change(seen, record_of(1))
            with pytest.raises(Lost):
                await a.release(seen, record_of(1, None))
        assert await a.read() == new
        await b.renew()

    async def test_who_is_elected_again(self, stage: Stage) -> None:
        """A holder that is elected again gets a new lease, and its view of the first lease is stale."""
        door = stage.door("a")
        first = await door.elect(await door.read(), record_of(1))
        second = await door.elect(first, record_of(2))
        assert second.holder_version != first.holder_version
        await door.renew()
        with pytest.raises(Lost):
            await door.change(first, record_of(3))
        await door.change(second, record_of(3))

    async def test_changes(self, stage: Stage) -> None:
        """Each change returns the view that the next change needs, and the holder stays the same."""
        a, b = stage.door("a"), stage.door("b")
        view = first = await a.elect(await a.read(), record_of(1))
        for epoch in (2, 3):
            view = await a.change(view, record_of(epoch))
            assert (view.record, view.holder, view.holder_version) == (record_of(epoch), "a", first.holder_version)
            assert await b.read() == view
        assert view.record_version > first.record_version

    async def test_a_stale_version_of_the_record(self, stage: Stage) -> None:
        """A stale view is refused for a change, a release and an election, although the holder is the same."""
        door = stage.door("a")
        stale = await door.elect(await door.read(), record_of(1))
        view = await door.change(stale, record_of(2))
        for call in (door.change, door.release, door.elect):
            with pytest.raises(Lost):
                await call(stale, record_of(3))
        assert await door.read() == view
        await door.renew()

    async def test_only_the_holder_changes(self, stage: Stage) -> None:
        """A process that has read the view but does not hold the lease can neither change nor release it."""
        a, b = stage.door("a"), stage.door("b")
        view = await a.elect(await a.read(), record_of(1))
        for call in (b.change, b.release):
            with pytest.raises(Lost):
                await call(view, record_of(2))
        assert await b.read() == view

    async def test_a_release(self, stage: Stage) -> None:
        """After a release there is no holder, watchers are notified before the lease expires, and the record stays."""
        a, b = stage.door("a"), stage.door("b")
        held = await a.elect(await a.read(), record_of(1))
        started = asyncio.Event()
        watching = asyncio.create_task(seen_when(b, lambda view: not view.holder, on_first=started.set))
        await started.wait()
        await a.release(held, record_of(1, None, "b"))
        view = await watching
        assert (view.record, view.holder, view.holder_version) == (record_of(1, None, "b"), "", 0)
        assert await a.read() == view
        for call in (a.change, a.release):
            with pytest.raises(Lost):
                await call(held, record_of(2))
        with pytest.raises(Lost):
            await a.renew()
        assert (await b.elect(view, record_of(2, B))).holder == "b"

    async def test_renewals_keep_a_lease(self, stage: Stage) -> None:
        """With renewals the holder and its version are the same after more than the time of a lease."""
        door = stage.door("a")
        view = await door.elect(await door.read(), record_of(1))
        end_s, sent_s = stage.now_s() + 1.5 * stage.lease_s, stage.now_s()
        while stage.now_s() < end_s:
            await stage.pass_time(stage.lease_s / 8)
            late_s, sent_s = stage.now_s() - sent_s, stage.now_s()
            try:
                await door.renew()
            except Lost:
                if late_s < stage.lease_s:
                    raise
                view = await door.elect(await door.read(), record_of(1))  # the machine was too busy, so try again
                end_s = stage.now_s() + 1.5 * stage.lease_s
        assert await door.read() == view

    async def test_a_lease_ends(self, stage: Stage) -> None:
        """When a lease expires, watchers are notified and the record stays.

        The holder gets Lost at its next change, and at a renewal after another process was elected.
        """
        a, b = stage.door("a"), stage.door("b")
        held = await a.elect(await a.read(), record_of(1))
        watching = asyncio.create_task(seen_when(b, lambda view: not view.holder))
        await stage.pass_time(stage.lease_s)
        view = await watching
        assert (view.record, view.record_version, view.holder_version) == (record_of(1), held.record_version, 0)
        with pytest.raises(Lost):
            await a.change(held, record_of(1))
        assert (await b.elect(view, record_of(2, B))).holder == "b"
        with pytest.raises(Lost):
            await a.renew()

    async def test_a_watch_ends_with_the_last_change(self, stage: Stage) -> None:
        """A watcher gets the last of many changes, and may miss changes before it."""
        a, b = stage.door("a"), stage.door("b")
        view = await a.elect(await a.read(), record_of(1))
        started = asyncio.Event()
        watching = asyncio.create_task(seen_when(b, lambda seen: seen.record == record_of(30), on_first=started.set))
        await started.wait()
        for epoch in range(2, 31):
            view = await a.change(view, record_of(epoch))
        assert await watching == view

    async def test_two_who_elect_at_once(self, stage: Stage) -> None:
        """When two processes elect at once, a single election wins, each time, and the other has changed nothing."""
        doors = {"a": stage.door("a"), "b": stage.door("b")}
        for epoch in range(1, RACE_COUNT + 1):
            seen = await doors["a"].read()
            tries = (door.elect(seen, record_of(epoch, None, name)) for name, door in doors.items())
            outcomes = await asyncio.gather(*tries, return_exceptions=True)
            (won,) = [outcome for outcome in outcomes if isinstance(outcome, View)]
            (lost,) = [outcome for outcome in outcomes if not isinstance(outcome, View)]
            assert isinstance(lost, Lost)
            assert won.record == record_of(epoch, None, won.holder)
            assert await doors["b"].read() == won
            await doors[won.holder].renew()
