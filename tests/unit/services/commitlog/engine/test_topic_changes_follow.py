# SPDX-License-Identifier: Apache-2.0
"""A follower gets topics once, then their changes; after a missed change, a new stream or a new leader it gets all."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig
from libs.formats.state.topic_journal import TopicChange
from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import TOPIC_CHANGES, TOPICS, State, Step
from services.commitlog.engine.write import recent_topic_changes
from services.commitlog.engine.write.recent_topic_changes import RecentTopicChanges
from services.commitlog.engine.write.topics import TopicRegistry, TopicsDiffer
from tests.support.commitlog import Machine, append, message
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up

SLAVE: dict[str, Any] = {"role": "slave", "replica_id": "b", "reconnect_ms_max": 100}


class Ear:
    """Hears which states a follower gets, and may change the changes on their way."""

    def __init__(self, wire: Wire) -> None:
        self.names: list[str] = []
        self.change: Callable[[State], Step] = lambda state: state
        wire.change = self._hear

    def _hear(self, step: Step) -> Step:
        if isinstance(step, State) and step.name in (TOPICS, TOPIC_CHANGES):
            self.names.append(step.name)
            if step.name == TOPIC_CHANGES:
                return self.change(step)
        return step


@contextlib.asynccontextmanager
async def two() -> AsyncIterator[tuple[OpenLog, OpenLog, Wire, Ear, Machine]]:
    """A leader, and a follower that has its topics."""
    one, other = Machine(), Machine()
    leader = await one.start()
    wire = Wire(leader)
    ear = Ear(wire)
    follower = await other.start(leader=wire.at(), **SLAVE)
    await same(follower, leader)
    try:
        yield leader, follower, wire, ear, other
    finally:
        await other.stop(follower)
        await one.stop(leader)
    assert one.failures == other.failures == []


async def same(follower: OpenLog, leader: OpenLog) -> None:
    """Wait until the leader knows that the follower has its topics, and compare them with all that is made of them."""
    leader.replicas.wake()

    def has_all() -> bool:
        stream = leader.replicas.stream_of("b")
        return stream is not None and stream.has_topics and follower.topics.file == leader.topics.file

    await eventually(has_all)
    mine, theirs = follower.topics, leader.topics
    assert mine.list_after("", 1_000, include_system=True) == theirs.list_after("", 1_000, include_system=True)
    assert mine.user_topic_count == theirs.user_topic_count
    assert mine.begins.by_topic == theirs.begins.by_topic


async def change_all(topics: TopicRegistry) -> None:
    """Make a change of each kind."""
    await topics.create("new", write_queue_count=3)
    await topics.create("gone")
    await topics.update("new", write_queue_count=5, is_readable=False)
    await topics.delete("gone")


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_changes_alone_are_sent(*, is_power_cut: bool) -> None:
    """After the first topics only changes come, and they are on the follower's disk when it acknowledges them."""
    async with two() as (leader, follower, wire, ear, other):
        for _ in range(3):
            await change_all(leader.topics)
            await append(leader, message(topic="new"))
            await same(follower, leader)
            await leader.topics.delete("new")
            await same(follower, leader)
        assert ear.names[:2] == [TOPICS, TOPIC_CHANGES]
        assert set(ear.names[1:]) == {TOPIC_CHANGES}
        disk = Machine()
        disk.fs = other.fs.after_crash(nothing_survives if is_power_cut else everything_survives)
        again = await disk.start(leader=Wire().at(), **SLAVE)
        assert again.topics.file == leader.topics.file
        await disk.stop(again)
        assert wire.hellos[0].topic_journal_version == 1


async def test_a_follower_of_an_older_version_gets_all_topics() -> None:
    """A hello without a version of the journal, or a leader that does not know it, means all topics each time."""
    one, other = Machine(), Machine()
    async with one.running() as leader:
        wire = Wire(leader)
        wire.say = lambda hello: replace(hello, topic_journal_version=0)
        ear = Ear(wire)
        follower = await other.start(leader=wire.at(), **SLAVE)
        await change_all(leader.topics)
        await same(follower, leader)
        await leader.topics.create("last")
        await same(follower, leader)
        assert len(ear.names) >= 2
        assert set(ear.names) == {TOPICS}
        await other.stop(follower)


async def test_changes_while_the_wire_is_cut() -> None:
    """A follower that connects again gets all topics, and then changes again."""
    async with two() as (leader, follower, wire, ear, _):
        wire.leader = None
        await change_all(leader.topics)
        leader.replicas.wake()
        await eventually(lambda: follower.follower is not None and not follower.follower.is_connected)
        await leader.topics.create("later")
        wire.leader = leader
        await same(follower, leader)
        assert ear.names[-1] == TOPICS
        await leader.topics.create("last")
        await same(follower, leader)
        assert ear.names[-1] == TOPIC_CHANGES


@pytest.mark.parametrize("harm", ["missed", "cut", "changed", "newer", "of others"])
async def test_a_change_that_does_not_fit(harm: str) -> None:
    """A missed, damaged or foreign change changes nothing: the follower connects again and gets all topics."""
    async with two() as (leader, follower, _, ear, _):
        before = follower.topics.file
        other = TopicChange(DataVersion(7, 7), DataVersion(8, 8), {"x": TopicConfig("x", 1, 1)}).encode()

        def harmed(state: State) -> Step:
            ear.change = lambda state: state
            assert follower.topics.file == before
            content = {
                "missed": other, "cut": state.content[:-1], "changed": state.content[:-3] + b"???",
                "newer": state.content.replace(b"\0\0\0\1", b"\0\0\0\2", 1), "of others": other + state.content,
            }[harm]  # fmt: skip
            return State(TOPIC_CHANGES, content)

        ear.change = harmed
        await leader.topics.create("a")
        await same(follower, leader)
        assert ear.names == [TOPICS, TOPIC_CHANGES, TOPICS]
        assert follower.topics.find("x") is None


async def test_a_new_leader() -> None:
    """A follower that leads goes on from the changes that it got, and its former leader gets changes from it."""
    one, other = Machine(), Machine()
    leader = await one.start()
    follower = await other.start(leader=Wire(leader).at(), **SLAVE)
    await change_all(leader.topics)
    await caught_up(follower, leader)
    await same(follower, leader)
    known = leader.topics.file
    await other.stop(follower)
    await leader.topics.create("lost")
    await one.kill(leader, everything_survives)
    async with other.running() as promoted:
        assert promoted.topics.file == known
        await promoted.topics.create("after")
        wire = Wire(promoted)
        ear = Ear(wire)
        former = await one.start(leader=wire.at(), **SLAVE)
        await same(former, promoted)
        assert former.topics.find("lost") is None
        await change_all_again(promoted.topics)
        await same(former, promoted)
        assert (ear.names[0], ear.names[-1]) == (TOPICS, TOPIC_CHANGES)
        await one.stop(former)


async def change_all_again(topics: TopicRegistry) -> None:
    """Make changes behind those of `change_all`."""
    await topics.delete("new")
    await change_all(topics)


async def test_more_changes_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower that lacks changes which are not kept any more gets all topics."""
    monkeypatch.setattr(recent_topic_changes, "CHANGES_BYTES_MAX", 500)
    async with two() as (leader, follower, _, ear, _):
        for number in range(20):
            await leader.topics.create(f"topic-{number}")
        await same(follower, leader)
        assert ear.names[-1] == TOPICS
        assert leader.topics.recent.size_bytes <= 500


async def test_a_change_of_other_topics_is_refused() -> None:
    """A change that continues another version changes nothing."""
    async with Machine().running() as log:
        file = log.topics.file
        after = structs.replace(file.data_version, counter=file.data_version.counter + 2)
        wrong = structs.replace(file.data_version, timestamp_ms=1)
        with pytest.raises(TopicsDiffer, match=f"the topics here have version {file.data_version.counter}"):
            await log.topics.follow(TopicChange(wrong, after, {"a": TopicConfig("a", 1, 1)}))
        assert log.topics.file == file


def test_the_kept_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes after each count are there, up to the bound, and none after they were forgotten."""
    changes = [TopicChange(DataVersion(at, 0), DataVersion(at + 1, 0)) for at in range(1, 10)]
    sizes = [len(change.encode()) for change in changes]
    monkeypatch.setattr(recent_topic_changes, "CHANGES_BYTES_MAX", sum(sizes[-4:]))
    recent = RecentTopicChanges()
    for count, change in enumerate(changes, 2):
        recent.note(count, change)
    found = [recent.since(count) for count in range(12)]
    whole = [b"".join(change.encode() for change in changes[count - 1 :]) for count in (6, 7, 8, 9)]
    assert found == [None] * 6 + whole + [None] * 2
    recent.clear()
    assert (recent.since(9), recent.size_bytes) == (None, 0)
    recent.note(20, changes[0])
    assert (recent.since(19), recent.since(18)) == (changes[0].encode(), None)
