# SPDX-License-Identifier: Apache-2.0
"""The measures of topics and groups: messages, bytes, times, lags, and what is left out."""

import pytest

from libs.formats.records.record import Record
from libs.machine.testing.manual_clock import ManualClock
from services.indexer.engine.answer.pull import PullQuery
from services.indexer.engine.answer.pulled import Pulled
from services.indexer.engine.answer.tags import TagFilter
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.measure import lag_bytes, record_times, topic_measures
from services.indexer.engine.measure.topic_measures import LeftOut, OffsetLag, TopicMeasures
from services.indexer.engine.tables.queue import ConsumeQueue
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer

NOW_MS = 1_800_000_000_000


def _filled() -> tuple[FakeLog, Indexer]:
    """10 messages in each of three queues, and messages of another and of a system's topic."""
    log = FakeLog()
    for number in range(30):
        log.append("T", number % 3)
    log.append("U")
    log.append("SCHEDULE_TOPIC_XXXX", 2)
    indexer = make_indexer(log, clock=ManualClock(now_ms=NOW_MS))
    feed(indexer, log)
    return log, indexer


def _size_bytes(log: FakeLog, first: int) -> int:
    """The bytes of a third of the 30 messages, from the first on."""
    return sum(record.size_bytes for record in log.records[first:30:3])


async def test_messages_and_lags() -> None:
    """Messages of all queues; the lag of each group from its stored offsets on, but not of messages that are gone."""
    log, indexer = _filled()
    indexer.groups.commit("near", {("T", 0): 10, ("T", 1): 9})
    indexer.groups.commit("far", {("T", 0): 0, ("U", 0): 0, ("U", 7): 3})
    indexer.groups.commit("done", {("T", 0): 10})
    measures = indexer.upkeep.measures
    await measures.look()
    assert set(measures.topics) == {("T",), ("U",)}
    assert _counts(measures, "T") == (30, 30)
    assert _counts(measures, "U") == (1, 1)
    assert _times(measures, "T") == (log.records[0].store_time_ms, log.records[29].store_time_ms)
    assert measures.lags == {
        ("near", "T"): OffsetLag(1, _age_ms(log.records[28]), log.records[28].size_bytes),
        ("far", "T"): OffsetLag(10, _age_ms(log.records[0]), _size_bytes(log, 0)),
        ("far", "U"): OffsetLag(1, _age_ms(log.records[30]), log.records[30].size_bytes),
        ("done", "T"): OffsetLag(0, 0, 0),
    }
    assert measures.left_out == LeftOut()
    indexer.indexes.queues.trim(log.records[15].physical_offset)  # entries 0 to 4 of each queue are gone
    await measures.look()
    assert _counts(measures, "T") == (30, 15)
    assert _times(measures, "T")[0] == log.records[15].store_time_ms
    assert measures.lags["far", "T"] == OffsetLag(5, _age_ms(log.records[15]), _size_bytes(log, 15))


async def test_bytes_of_a_lag_follow_the_group_and_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are right after each commit, a reset and new messages, and no unit is read again at each look."""
    log, indexer = _filled()
    measures = indexer.upkeep.measures
    read_counts: list[int] = []
    add_sizes = lag_bytes.add_sizes

    async def counted(queue: ConsumeQueue, start: int, end: int) -> int:
        read_counts.append(end - start)
        return await add_sizes(queue, start, end)

    monkeypatch.setattr(lag_bytes, "add_sizes", counted)
    for committed, new_count, expected_read_count in (
        (0, 0, 10),
        (2, 0, 2),
        (2, 3, 3),
        (9, 0, 4),
        (1, 0, 12),
        (13, 0, 0),
    ):
        for number in range(new_count):
            log.append("T", 0, body=b"x" * number)
        feed(indexer, log)
        indexer.groups.commit("g", {("T", 0): committed})
        read_counts.clear()
        await measures.look()
        stored = [record.size_bytes for record in log.records if (record.topic, record.queue_id) == ("T", 0)]
        assert measures.lags["g", "T"].lag_bytes == sum(stored[committed:])
        assert sum(read_counts) == expected_read_count


async def test_a_look_reads_few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units beyond the limit of a look are estimated, and the next looks add them."""
    monkeypatch.setattr(lag_bytes, "UNIT_COUNT_MAX", 4)
    log = FakeLog()
    for number in range(10):
        log.append("T", 0, body=b"x" * number)
    indexer = make_indexer(log)
    feed(indexer, log)
    indexer.groups.commit("g", {("T", 0): 0})
    stored = [record.size_bytes for record in log.records]
    found = []
    for _ in range(3):
        await indexer.upkeep.measures.look()
        found.append(indexer.upkeep.measures.lags["g", "T"].lag_bytes)
    assert found == [sum(stored[:4]) * 10 // 4, sum(stored[:8]) * 10 // 8, sum(stored)]


async def test_bytes_count_from_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of records that came since, also in new queues and with many units, and each once."""
    monkeypatch.setattr(lag_bytes, "STEP_UNIT_COUNT", 2)
    log, indexer = _filled()
    measures = indexer.upkeep.measures
    await measures.look()
    assert measures.topics["T",].indexed_bytes_total == 0
    for queue_id in (0, 0, 0, 0, 0, 7):
        log.append("T", queue_id, body=b"new")
    feed(indexer, log)
    for _ in range(2):
        await measures.look()
        assert measures.topics["T",].indexed_bytes_total == sum(one.size_bytes for one in log.records[-6:])
        assert measures.topics["U",].indexed_bytes_total == 0


async def test_pulled_messages_count() -> None:
    """Each pull that returns messages counts, with their bytes."""
    log, indexer = _filled()
    for offset in (0, 4, 10):  # the messages 0 to 4 and 4 to 8, and none
        query = PullQuery("T", 1, offset, 5, 1 << 20, TagFilter())
        await indexer.answers.puller.pull(query, wait_s=0)
    await indexer.upkeep.measures.look()
    stored = [one.size_bytes for one in log.records if (one.topic, one.queue_id) == ("T", 1)]
    found = indexer.upkeep.measures.topics["T",]
    assert found.pulled_messages_total == 10
    assert found.pulled_bytes_total == sum(stored[:5]) + sum(stored[4:9])


async def test_a_look_reads_few_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records beyond the limit of a look are read by the next looks, and then all times are known."""
    monkeypatch.setattr(record_times, "COUNT_MAX", 2)
    _, indexer = _filled()
    measures = indexer.upkeep.measures
    known = []
    for _ in range(2):
        await measures.look()
        known.append(sum(time_ms > 0 for topic in "TU" for time_ms in _times(measures, topic)))
    assert known == [2, 4]


async def test_topics_and_groups_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first topics by name have measures; the others, and the offsets of further groups, are counted."""
    log = FakeLog()
    for topic in "ABC":
        log.append(topic)
    indexer = make_indexer(log)
    feed(indexer, log)
    for group in ("g", "h"):
        indexer.groups.commit(group, {(topic, 0): 0 for topic in "ABC"})
    measures = TopicMeasures(
        indexer.indexes.queues, indexer.groups, log, Pulled(topic_count_max=2), ManualClock(), topic_count_max=2
    )
    monkeypatch.setattr(topic_measures, "ROW_COUNT_MAX", 3)
    await measures.look()
    assert set(measures.topics) == {("A",), ("B",)}
    assert len(measures.lags) == 3
    assert measures.left_out == LeftOut(left_out_topics=1, left_out_offsets=1)
    monkeypatch.setattr(topic_measures, "OFFSET_COUNT_MAX", 5)
    await measures.look()
    assert measures.lags == {}
    assert measures.left_out == LeftOut(left_out_topics=1, left_out_offsets=6)


def _counts(measures: TopicMeasures, topic: str) -> tuple[int, int]:
    found = measures.topics[topic,]
    return found.indexed_messages_total, found.stored_messages


def _times(measures: TopicMeasures, topic: str) -> tuple[int, int]:
    found = measures.topics[topic,]
    return found.oldest_message_time_ms, found.last_message_time_ms


def _age_ms(record: Record) -> int:
    return NOW_MS - record.store_time_ms
