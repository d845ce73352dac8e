# SPDX-License-Identifier: Apache-2.0
"""The measures of topics and groups: messages, lags, and what is left out."""

import pytest

from services.indexer.engine.upkeep import topic_measures
from services.indexer.engine.upkeep.topic_measures import LeftOut, OffsetLag, TopicMeasures, TopicMessages
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer


async def test_messages_and_lags() -> None:
    """Messages of all queues; the lag of each group from its stored offsets on, but not of messages that are gone."""
    log = FakeLog()
    for number in range(30):
        log.append("T", number % 3)  # 10 a queue
    log.append("U")
    log.append("SCHEDULE_TOPIC_XXXX", 2)
    indexer = make_indexer(log)
    feed(indexer, log)
    indexer.groups.commit("near", {("T", 0): 10, ("T", 1): 9})
    indexer.groups.commit("far", {("T", 0): 0, ("U", 0): 0, ("U", 7): 3})
    measures = indexer.upkeep.measures
    await measures.look()
    assert measures.topics == {("T",): TopicMessages(30, 30), ("U",): TopicMessages(1, 1)}
    assert measures.lags == {("near", "T"): OffsetLag(1), ("far", "T"): OffsetLag(10), ("far", "U"): OffsetLag(1)}
    assert measures.left_out == LeftOut()
    indexer.indexes.queues.trim(log.records[15].physical_offset)  # entries 0 to 4 of each queue are gone
    await measures.look()
    assert measures.topics["T",] == TopicMessages(30, 15)
    assert measures.lags["far", "T"] == OffsetLag(5)


async def test_topics_and_groups_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first topics by name have measures; the others, and the offsets of further groups, are counted."""
    log = FakeLog()
    for topic in "ABC":
        log.append(topic)
    indexer = make_indexer(log)
    feed(indexer, log)
    for group in ("g", "h"):
        indexer.groups.commit(group, {(topic, 0): 0 for topic in "ABC"})
    measures = TopicMeasures(indexer.indexes.queues, indexer.groups, topic_count_max=2)
    monkeypatch.setattr(topic_measures, "ROW_COUNT_MAX", 3)
    await measures.look()
    assert set(measures.topics) == {("A",), ("B",)}
    assert len(measures.lags) == 3
    assert measures.left_out == LeftOut(left_out_topics=1, left_out_offsets=1)
    monkeypatch.setattr(topic_measures, "OFFSET_COUNT_MAX", 5)
    await measures.look()
    assert measures.lags == {}
    assert measures.left_out == LeftOut(left_out_topics=1, left_out_offsets=6)
