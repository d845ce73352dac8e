# SPDX-License-Identifier: Apache-2.0
"""Sharing: a commit at one Indexer reaches all, after any loss."""

import asyncio
import contextlib
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from libs.formats import store_layout
from libs.formats.config import delay_offsets_json
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.state_record import CopyPart, DelayProgress, StateRecord
from libs.formats.state.system_topics import LEVELS_GROUP, STATE_QUEUE_ID, STATE_TOPIC
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import DependencyUnavailable, WindowFull
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import LogRole
from services.indexer.errors import GroupsUnknown
from tests.support.indexer import DATA_DIR
from tests.support.patience import LIMIT_S, eventually
from tests.support.shared_log import Copies, found, knows

PATH = DATA_DIR / store_layout.SHARED_STATE


def levels_of(indexer: Indexer) -> dict[int, int]:
    """The offsets of the delay levels, by the id of their queue."""
    return indexer.groups.of_topic(LEVELS_GROUP, SCHEDULE_TOPIC)


async def settle(rounds: int = 10) -> None:
    """Give all loops time for some steps, so that a forbidden step could have happened."""
    await asyncio.sleep(0.003 * rounds)


async def test_a_commit_is_known_everywhere() -> None:
    """A commit and a deletion reach every Indexer, and of two commits the later in the log counts."""
    copies = Copies()
    async with copies.leader.running() as one, copies.follower.running() as other:
        one.groups.commit("g", {("T", 0): 5, ("T", 1): 7})
        await eventually(lambda: knows(other, 5) and found(other, queue_id=1) == 7)
        other.groups.commit("g", {("T", 0): 9})
        await eventually(lambda: knows(one, 9))
        assert await one.groups.delete("g") == 2
        await eventually(lambda: knows(other, None))
        one.groups.commit("h", {("T", 0): 1})
        other.groups.commit("h", {("T", 0): 2})
        await eventually(lambda: len(copies.sink.shared) >= 5)
        await eventually(lambda: found(one, "h") == found(other, "h"))


async def test_a_log_that_is_alone_has_the_offsets() -> None:
    """Without a group the log gets no record. Its groups are known at once, also after the loss of all files."""
    copies = Copies()
    copies.leader.copy.log_role = LogRole()
    async with copies.leader.running() as indexer:
        await eventually(lambda: knows(indexer, None))
        await settle()
        assert copies.sink.shared == []
        indexer.groups.commit("g", {("T", 0): 5})
        for _ in range(10):
            assert found(indexer) == 5
            await settle(1)
        await eventually(lambda: len(copies.sink.shared) >= 2)
        indexer.groups.commit("g", {("T", 0): 6})
    copies.leader.fs = MemoryFs()
    async with copies.leader.running() as again:
        await eventually(lambda: knows(again, 6))


async def test_a_log_that_is_alone_says_nothing_too_early() -> None:
    """An Indexer that lost its files does not say that a group has no offset before it has read the log."""
    copies = Copies()
    copies.leader.copy.log_role = LogRole()
    copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=StateRecord(origin="x", offsets={"g": {"T": {0: 4}}}).encode())
    async with copies.leader.running() as indexer:
        seen: list[int | None] = []

        def is_known() -> bool:
            with contextlib.suppress(GroupsUnknown):
                seen.append(found(indexer))
            return bool(seen)

        await eventually(is_known)
        assert seen == [4]


async def test_several_indexers_of_a_log_that_is_alone() -> None:
    """What a group commits at one of them is known at all, also at one with an empty disk."""
    copies = Copies()
    copies.leader.copy.log_role = copies.follower.copy.log_role = LogRole()
    async with copies.leader.running() as one, copies.follower.running() as other:
        one.groups.commit("g", {("T", 0): 5})
        await eventually(lambda: knows(other, 5))
        other.groups.commit("g", {("T", 0): 7})
        await eventually(lambda: knows(one, 7))
        third = copies.side(is_leader=True)
        third.copy.log_role = LogRole()
        async with third.running() as late:
            await eventually(lambda: knows(late, 7))


async def test_a_log_that_gets_its_first_copy() -> None:
    """Commits before the log's first copy are in a copy record, and reach an Indexer that starts then."""
    copies = Copies()
    copies.leader.copy.log_role = LogRole()
    async with copies.leader.running() as one:
        one.groups.commit("g", {("T", 0): 5})
        await settle()
        copies.leader.copy.log_role = LogRole(is_leader=True, is_replicated=True)
        async with copies.follower.running() as other:
            await eventually(lambda: knows(other, 5))


async def test_who_comes_late_waits_for_a_copy() -> None:
    """Deleted records are in the copy that was made before; an Indexer that starts late answers after reading it."""
    copies = Copies()
    async with copies.leader.running() as one:
        await eventually(lambda: copies.copy_count == 1)
        for queue_offset in range(3):
            one.groups.commit("g", {("T", 0): queue_offset})
            await one.follow.shared_state.send()
        copies.log.append("T")
        end = copies.log.end_physical_offset
        await eventually(lambda: one.indexes.reached.indexed_physical_offset >= end)
        await one.follow.shared_state.keep(end)
        copies.log.trim(end)
        one.groups.commit("g", {("T", 1): 8})
        await one.follow.shared_state.send()
        parts = [record for record in copies.sink.shared if record.copy]
        assert parts[-1].offsets == {"g": {"T": {0: 2}}}
        async with copies.side(is_leader=False).running() as late:
            await eventually(lambda: knows(late, 2) and found(late, queue_id=1) == 8)


async def test_nothing_goes_before_the_log_says_whether_it_leads() -> None:
    """A trim is refused until the log reports whether it leads, so that no record is removed before a copy."""
    copies = Copies()
    async with copies.leader.running() as one:
        await eventually(lambda: copies.copy_count == 1)
        one.groups.commit("g", {("T", 0): 5})
        await one.follow.shared_state.send()
    end = copies.log.end_physical_offset
    copies.leader.copy.is_silent = True
    for fs in (copies.leader.fs, MemoryFs()):
        copies.leader.fs, copy_count = fs, copies.copy_count
        async with copies.leader.running() as again:
            await eventually(lambda: again.indexes.reached.indexed_physical_offset >= end)
            with pytest.raises(DependencyUnavailable, match="whether it leads"):
                await again.follow.shared_state.keep(end)
            copies.leader.copy.is_silent = False
            again.follow.flush.wake()
            await eventually(lambda: copies.copy_count > copy_count)  # noqa: B023 - it is awaited at once
            await again.follow.shared_state.keep(end)
            assert copies.sink.shared[-1].copy is not None
            copies.leader.copy.is_silent = True


async def test_no_trim_goes_by_what_a_former_epoch_said() -> None:
    """Consumer offsets' records stay until the log of the current epoch reports whether it leads."""
    copies = Copies()
    async with copies.follower.running() as one:
        await eventually(lambda: one.follow.shared_state.is_on)
        await one.follow.shared_state.keep(1)  # a follower's Indexer makes no copies
        copies.follower.copy.is_silent = True
        copies.change_places()
        await eventually(lambda: one.indexes.reached.epoch == copies.log.epoch)
        with pytest.raises(DependencyUnavailable, match="whether it leads"):
            await one.follow.shared_state.keep(1)


async def test_without_a_copy_nothing_is_said() -> None:
    """An Indexer that lacks the beginning does not answer that a group has no offset."""
    copies = Copies()
    copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=StateRecord(origin="x", offsets={"h": {"T": {0: 1}}}).encode())
    async with copies.follower.running() as late:
        await settle(30)
        with pytest.raises(GroupsUnknown):
            found(late)
        copy = StateRecord(origin="x", number=1, offsets={"g": {"T": {0: 4}}, "h": {"T": {0: 0}}})
        body = copy.encode()[:-1].replace(b'"copy":null', b'"copy":[0,1]') + b"}"
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=body)
        await eventually(lambda: knows(late, 4))
        assert found(late, "h") == 1, "a change counts more than a copy that comes behind it"


async def test_a_commit_of_here_is_not_taken_back() -> None:
    """A record before the own commit changes nothing; a record behind it does."""
    copies = Copies()
    async with copies.leader.running() as one, copies.follower.running() as other:
        await eventually(lambda: knows(other, None))
        copies.sink.is_leaderless = True
        other.groups.commit("g", {("T", 0): 50})
        before = StateRecord(origin="x", offsets={"g": {"T": {0: 1}}})
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=before.encode())
        await eventually(lambda: knows(one, 1))
        assert found(other) == 50
        copies.sink.is_leaderless = False
        await eventually(lambda: knows(one, 50))
        behind = StateRecord(origin="x", offsets={"g": {"T": {0: 2}}})
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=behind.encode())
        await eventually(lambda: knows(one, 2) and knows(other, 2))


async def test_changes_wait_for_a_leader() -> None:
    """Changes that can't be sent are sent later, at the latest at the Indexer's end; waiting callers get an error."""
    copies = Copies()
    async with copies.leader.running() as one:
        async with copies.follower.running() as other:
            await eventually(lambda: knows(other, None))
            copies.sink.is_leaderless = True
            other.groups.commit("g", {("T", 0): 5})
            with pytest.raises(DependencyUnavailable):
                await other.follow.shared_state.send()
            copies.sink.is_leaderless = False
        await eventually(lambda: knows(one, 5))


async def test_changes_that_wait_are_bounded() -> None:
    """Without a leader the number of deletions that an Indexer keeps is bounded."""
    copies = Copies()
    copies.follower.config = replace(copies.follower.config, consumer_offset_count_max=3)
    async with copies.leader.running(), copies.follower.running() as other:
        await eventually(lambda: knows(other, None))
        copies.sink.is_leaderless = True
        for number in range(3):
            other.follow.shared_state.check_room()
            other.groups.commit(f"g{number}", {("T", 0): 1})
            await other.groups.delete(f"g{number}")
        with pytest.raises(WindowFull):
            other.follow.shared_state.check_room()
        copies.sink.is_leaderless = False
        await other.follow.shared_state.send()
        other.follow.shared_state.check_room()


async def test_a_leader_s_indexer_that_lost_its_disk() -> None:
    """The Indexer reads all records of the log before it answers, also in the first epoch of the log."""
    copies = Copies()
    copies.log.segment_size_bytes = 1 << 12  # so that it comes in many steps
    async with copies.leader.running() as one:
        await eventually(lambda: copies.copy_count == 1)
        one.groups.commit("g", {("T", 0): 5})
        await one.follow.shared_state.send()
        begin = copies.log.end_physical_offset
        for number in range(5_000):
            copies.log.append("T", body=b"%d" % number)
        end = copies.log.end_physical_offset
        await eventually(lambda: one.indexes.reached.indexed_physical_offset >= end)
        await one.follow.shared_state.keep(begin)
        copies.log.trim(begin)
    copies.leader.fs = MemoryFs()
    async with copies.leader.running() as again:
        answers: set[int | str | None] = set()
        while not answers - {"unknown"}:
            answers.add(told(again))
            await asyncio.sleep(0)
        assert answers <= {"unknown", 5}


async def test_an_index_that_is_whole_before_the_log_says_what_it_is() -> None:
    """An Indexer that lost its disk knows no group before the log reports its role, even with complete indexes."""
    copies = Copies()
    async with copies.leader.running() as one:
        one.groups.commit("g", {("T", 0): 5})
        await one.follow.shared_state.send()
    begin = copies.log.end_physical_offset
    copies.log.append("T")
    end = copies.log.end_physical_offset
    copies.log.trim(begin)
    copies.leader.fs, copies.leader.copy.is_silent = MemoryFs(), True
    for _ in range(2):  # after an orderly stop its indexes are whole from the start
        async with copies.leader.running() as again:
            assert told(again) == "unknown"
            await eventually(lambda: again.indexes.reached.indexed_physical_offset >= end)
            assert again.indexes.completeness.is_complete
            assert told(again) == "unknown"
    copies.leader.copy.is_silent = False
    async with copies.leader.running() as again:
        await eventually(lambda: knows(again, None))  # the leader's Indexer knows all groups


def told(indexer: Indexer) -> int | str | None:
    """The answer of an Indexer at this moment."""
    try:
        return found(indexer)
    except GroupsUnknown:
        return "unknown"


async def test_a_restart_goes_on() -> None:
    """Records that were read before are not read again, after a stop and after a kill."""
    copies = Copies()
    for is_killed in (False, True):
        async with copies.leader.running() as one, copies.follower.running(is_killed=is_killed) as other:
            for queue_offset in range(20):
                one.groups.commit("g", {("T", 0): queue_offset})
                await one.follow.shared_state.send()
            await eventually(lambda: knows(other, 19))
            await eventually(lambda: copies.follower.fs.exists(PATH))
            await other.follow.shared_state.save()
        reads = copies.log.read_count
        async with copies.follower.running() as again:
            assert found(again) == 19
            await settle()
        assert copies.log.read_count - reads <= 1, "at most what came at the end"


async def test_saves_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancelled save continues in its thread; the next save, as at a stop, waits for it and writes last."""
    copies = Copies()
    async with copies.leader.running() as one:
        writers, most, may_end = 0, 0, threading.Event()
        write_atomic = copies.leader.fs.write_atomic

        def write_slowly(path: Path, data: bytes) -> None:
            nonlocal writers, most
            writers += path == PATH
            most = max(most, writers)
            assert path != PATH or may_end.wait(LIMIT_S)
            write_atomic(path, data)
            writers -= path == PATH

        monkeypatch.setattr(copies.leader.fs, "write_atomic", write_slowly)
        one.groups.commit("g", {("T", 0): 5})
        await eventually(lambda: writers == 1)
        await one.follow.shared_state.stop()
        saving = asyncio.create_task(one.follow.shared_state.save())
        await asyncio.sleep(0.05)
        may_end.set()
        await saving
        assert most == 1


async def test_a_damaged_file(caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file is logged, and all records are read again."""
    copies = Copies()
    async with copies.leader.running() as one, copies.follower.running() as other:
        one.groups.commit("g", {("T", 0): 5})
        await eventually(lambda: knows(other, 5))
    copies.follower.fs.write_atomic(PATH, b"nothing")
    async with copies.leader.running(), copies.follower.running() as again:
        assert "shared_state is damaged" in caplog.text
        await eventually(lambda: knows(again, 5))


async def test_records_that_were_lost_do_not_count() -> None:
    """Commits in a tail that the log lost do not count any more."""
    copies = Copies()
    async with copies.leader.running() as one, copies.follower.running() as other:
        one.groups.commit("g", {("T", 0): 5})
        await eventually(lambda: knows(other, 5))
        end = copies.log.end_physical_offset
        lost = StateRecord(origin="x", offsets={"g": {"T": {0: 6}}})
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=lost.encode())
        await eventually(lambda: knows(other, 6) and knows(one, 6))
        copies.log.lose_tail(end)
        await eventually(lambda: knows(other, 5) and knows(one, 5))


@pytest.mark.parametrize("later", [b'{"format":2,"origin":"x"}', b"not JSON"])
async def test_a_record_that_this_version_cannot_read_stops_answers(
    caplog: pytest.LogCaptureFixture, later: bytes
) -> None:
    """After a record of a newer version offsets are refused as unknown, and no copy is written."""
    copies = Copies()
    async with copies.leader.running() as one:
        one.groups.commit("g", {("T", 0): 5})
        await eventually(lambda: knows(one, 5))
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=later)
        good = StateRecord(origin="x", offsets={"g": {"T": {0: 6}}})
        copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=good.encode())
        await eventually(lambda: "can't be read" in caplog.text)
        with pytest.raises(GroupsUnknown, match="shared_state_skip_below"):
            one.follow.shared_state.check_known()
        with pytest.raises(DependencyUnavailable, match="can't be read"):
            await one.follow.shared_state.keep(copies.log.end_physical_offset)
        assert one.groups.find("g", "T", 0) == 5
    assert caplog.text.count("can't be read") == 1


async def test_delay_levels_of_an_older_version() -> None:
    """Older versions have the progress of delay levels in fields of their own: it becomes offsets of the system group.

    An offset that Delivery commits since counts.
    """
    copies = Copies()
    old = StateRecord(origin="x", delays={0: DelayProgress(5, 1, 3), 17: DelayProgress(2)}, copy=CopyPart(0, 1))
    copies.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=old.encode())
    async with copies.leader.running() as one, copies.follower.running() as other:
        for indexer in (one, other):
            await eventually(lambda it=indexer: levels_of(it) == {0: 5, 17: 2})
        one.groups.commit(LEVELS_GROUP, {(SCHEDULE_TOPIC, 0): 7})
        await eventually(lambda: levels_of(other) == {0: 7, 17: 2})
    for side in (copies.leader, copies.follower):
        file = delay_offsets_json.loads(side.fs.read(DATA_DIR / store_layout.DELAY_OFFSETS).decode())
        assert file.offsets == {1: 7, 18: 2}
