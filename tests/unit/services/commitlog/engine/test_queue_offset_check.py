# SPDX-License-Identifier: Apache-2.0
"""No queue offset is assigned twice: starts that can't know all numbers, and the Indexer's ends of its queues."""

import pytest

from libs.formats import store_layout
from libs.requests.errors import BadArgument
from services.commitlog.engine.follow.queue_offset_check import QueueEnd, QueueVerdict
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.engine.write.gate import Reason
from services.commitlog.errors import QueueOffsetsUnknown, StaleEpoch
from tests.support.commitlog import DATA_DIR, Machine, append, fill, message

SPENT = "spent"
"""Topic whose records are gone from the log."""


async def expired(machine: Machine, *, loses: str = "snapshot") -> None:
    """A store whose first segment is gone, and with it all records of a topic; the snapshot is lost, too."""
    async with machine.running() as log:
        await append(log, *(message(topic=SPENT) for _ in range(7)))
        await fill(log, 3)
        await log.segments.delete([0], allow_unindexed=True)
    if loses == "snapshot":
        machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    elif loses == "damaged snapshot":
        machine.fs.write_atomic(DATA_DIR / store_layout.QUEUE_SNAPSHOT, b"?")


def queue_offset_of(log: OpenLog) -> int:
    return log.topics.table.next_queue_offset(SPENT.encode(), 0)


@pytest.mark.parametrize("loses", ["snapshot", "damaged snapshot"])
async def test_appends_wait_until_the_queues_are_known(loses: str) -> None:
    """Appends wait, and a queue without records continues at the Indexer's end, and not at 0."""
    machine = Machine()
    await expired(machine, loses=loses)
    async with machine.running() as log:
        assert log.gate.refusals() == ["QUEUE_OFFSETS_UNKNOWN"]
        with pytest.raises(QueueOffsetsUnknown, match="accept_scanned_queue_offsets"):
            await append(log, message(topic=SPENT))
        assert queue_offset_of(log) == 0
        assert await log.queue_offsets.compare([QueueEnd(SPENT, 0, 7, 0)]) == QueueVerdict(1, 0)
        log.queue_offsets.finish(is_complete=True)
        batch = await append(log, message(topic=SPENT))
        assert memoryview(batch.queue_offsets).cast("q")[0] == 7
        assert statistics_of(log).raised_queues_total == 1


async def test_who_does_not_know_opens_nothing() -> None:
    """An Indexer that lacks the records reports so, and appends continue to wait, also after a restart."""
    machine = Machine()
    await expired(machine)
    for _ in range(2):
        async with machine.running() as log:
            log.queue_offsets.finish(is_complete=False)
            assert not log.gate.is_open
    assert not machine.exists(store_layout.QUEUE_SNAPSHOT)


async def test_numbers_are_kept_once_they_are_known() -> None:
    """Numbers that the Indexer reported are in the next snapshot, and a later start asks no Indexer."""
    machine = Machine()
    await expired(machine)
    async with machine.running() as log:
        await log.queue_offsets.compare([QueueEnd(SPENT, 0, 7, 0)])
        log.queue_offsets.finish(is_complete=True)
    async with machine.running() as log:
        assert log.gate.is_open
        assert queue_offset_of(log) == 7


async def test_an_operator_accepts_the_log_that_is_left() -> None:
    """The setting is needed for a single start, because the snapshot of that start counts afterwards."""
    machine = Machine()
    await expired(machine)
    async with machine.running(accept_scanned_queue_offsets=True) as log:
        await append(log, message(topic=SPENT))
    async with machine.running() as log:
        assert log.gate.is_open
        assert queue_offset_of(log) == 1


async def test_a_log_from_its_first_byte_on_knows_all() -> None:
    """A full scan of a complete log needs no Indexer."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
    machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
    async with machine.running() as log:
        assert log.gate.is_open


async def test_an_end_that_the_log_contradicts_changes_nothing() -> None:
    """If the record at an end is not the queue's last record, the index is wrong, and the log changes nothing."""
    machine = Machine()
    async with machine.running() as log:
        first = await append(log, message(), message())
        second = await append(log, message(topic="other"))
        end = log.chain.max_physical_offset
        cases = [
            QueueEnd("orders", 0, 3, first.start_physical_offset),
            QueueEnd("orders", 0, 3, second.start_physical_offset),
            QueueEnd("orders", 0, 3, second.start_physical_offset + 1),
            QueueEnd("orders", 0, 3, end),
        ]
        for case in cases:
            assert await log.queue_offsets.compare([case]) == QueueVerdict(0, 1), case
        assert log.topics.table.next_queue_offset(b"orders", 0) == 2
        assert statistics_of(log).contradicting_queues_total == len(cases)


@pytest.mark.parametrize("topic", ["orders", SPENT, "new"])
async def test_a_number_that_the_log_knows_is_not_raised_for_a_word(topic: str) -> None:
    """After segments expired, a reported far end below them does not raise a known queue offset.

    The queue is live, its records are gone, or it never existed.
    """
    machine = Machine()
    await expired(machine, loses="nothing")
    async with machine.running() as log:
        known = log.topics.table.next_queue_offset(topic.encode(), 0)
        assert await log.queue_offsets.compare([QueueEnd(topic, 0, 10**15, 0)]) == QueueVerdict(0, 1)
        batch = await append(log, message(topic=topic))
        assert memoryview(batch.queue_offsets).cast("q")[0] == known


async def test_a_queue_that_the_log_still_has_is_not_raised_while_others_are_unknown() -> None:
    """Only queues without any record are raised by an Indexer's end.

    The scan that lost the snapshot has read the last record of each other queue.
    """
    machine = Machine()
    await expired(machine)
    async with machine.running() as log:
        known = log.topics.table.next_queue_offset(b"orders", 0)
        assert known > 0
        ends = [QueueEnd("orders", 0, known + 5, 0), QueueEnd(SPENT, 0, 7, 0)]
        assert await log.queue_offsets.compare(ends) == QueueVerdict(1, 1)
        assert log.topics.table.next_queue_offset(b"orders", 0) == known
        assert queue_offset_of(log) == 7


async def test_names_in_log_lines_are_quoted(caplog: pytest.LogCaptureFixture) -> None:
    """Characters of a topic reach no terminal, and begin no new line in the log."""
    machine = Machine()
    async with machine.running() as log:
        await log.queue_offsets.compare([QueueEnd("a\x1b[2J\nb", 0, 3, 0)])
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "\\x1b[2J\\nb" in record.getMessage()
    assert record.getMessage().isprintable()


async def test_a_page_has_few_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """4,096 wrong queues are logged in a dozen lines, and counted."""
    async with Machine().running() as log:
        verdict = await log.queue_offsets.compare([QueueEnd("t", queue_id, 9, 0) for queue_id in range(4_096)])
        assert verdict == QueueVerdict(0, 4_096)
        assert statistics_of(log).contradicting_queues_total == 4_096
    lines = [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "WARNING")]
    assert len(lines) <= 12
    assert "4096 contradict" in lines[-1]


async def test_an_end_that_the_log_proves_is_raised() -> None:
    """While the numbers are unknown, an end that the log proves raises the number.

    Otherwise the log has dropped its own records, and the Indexer does not know it yet.
    """
    machine = Machine()
    async with machine.running() as log:
        batch = await append(log, message())
        log.topics.table.set_next_queue_offset(b"orders", 0, 0)
        end = QueueEnd("orders", 0, 1, batch.start_physical_offset)
        assert await log.queue_offsets.compare([end]) == QueueVerdict(0, 0)
        log.gate.put(Reason.QUEUE_OFFSETS_UNKNOWN, holds=True)
        assert await log.queue_offsets.compare([end]) == QueueVerdict(1, 0)
        assert log.topics.table.next_queue_offset(b"orders", 0) == 1


async def test_ends_below_the_number_and_foreign_queues_are_nothing() -> None:
    """Ends below the log's number, and queues to which no append is possible, change nothing."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(), message())
        ends = [QueueEnd("orders", 0, 1, 0), QueueEnd("orders", 70_000, 5, 0), QueueEnd("x" * 200, 0, 5, 0)]
        assert await log.queue_offsets.compare(ends) == QueueVerdict(0, 0)


@pytest.mark.parametrize(
    ("end", "field"),
    [
        (QueueEnd("", 0, 1, 0), "queues[1].topic"),
        (QueueEnd("x" * 256, 0, 1, 0), "queues[1].topic"),
        (QueueEnd("t", -1, 1, 0), "queues[1].queue_id"),
        (QueueEnd("t", 0, -1, 0), "queues[1].end_queue_offset"),
        (QueueEnd("t", 0, 2**63 // 20 + 1, 0), "queues[1].end_queue_offset"),
        (QueueEnd("t", 0, 1, -1), "queues[1].last_physical_offset"),
    ],
)
async def test_what_is_out_of_range(end: QueueEnd, field: str) -> None:
    """A value out of range is refused with its field, and nothing of its page is applied."""
    async with Machine().running() as log:
        with pytest.raises(BadArgument) as caught:
            await log.queue_offsets.compare([QueueEnd("orders", 0, 9, 0), end])
        assert caught.value.field == field
        assert log.topics.table.counters() == []
        with pytest.raises(BadArgument, match="too many"):
            await log.queue_offsets.compare([QueueEnd("orders", 0, 9, 0)] * 4_097)


async def test_followers_of_another_history() -> None:
    """A follower of another log is refused with any epoch."""
    async with Machine().running() as log:
        log.followers.check(1, log.epochs.history_id)
        log.followers.check(1, "")
        with pytest.raises(StaleEpoch, match="another history"):
            log.followers.check(1, "other")
        with pytest.raises(BadArgument, match="no such epoch"):
            log.followers.check(2, log.epochs.history_id)
