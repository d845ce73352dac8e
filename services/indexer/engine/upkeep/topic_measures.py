# SPDX-License-Identifier: Apache-2.0
"""TopicMeasures: measures the messages of topics and the lags of groups at an interval, for metrics.

A group's lag is the number of messages from its stored offset on, in the queues for which it has stored an offset.
Groups that share messages are measured, too: their stored offset is that of their first message that is not settled.
Callers: the event loop's thread; other tasks run in between. The results: any thread.
Memory: a row for each of the first `topic_count_max` topics, and for ROW_COUNT_MAX groups of a topic at most. System
topics are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from libs.formats.state.system_topics import is_system_topic
from libs.machine.loop import SupervisedLoop, in_steps
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT, ConsumeQueueTable

Ranges: TypeAlias = dict[str, dict[int, tuple[int, int]]]
"""The first and the next queue offset of each queue, by topic and queue id."""

INTERVAL_MS = 15_000
ROW_COUNT_MAX = 10_000
OFFSET_COUNT_MAX = 100_000
"""With more stored offsets no lag is measured: a look would take a tenth of a second of the loop's time and more."""


@dataclass(frozen=True, slots=True)
class TopicMessages:
    """The messages of a topic."""

    indexed_messages_total: int = 0
    """Messages of the topic since its first message, also messages that are gone."""
    stored_messages: int = 0
    """Messages of the topic that are stored."""


@dataclass(frozen=True, slots=True)
class OffsetLag:
    """The lag of a group in a topic."""

    lag_messages: int = 0
    """Messages of the topic that are stored, from the group's stored offsets on."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the measures do not have."""

    left_out_topics: int = 0
    """Topics without metrics of their own, because there are more than metrics_topic_count_max."""
    left_out_offsets: int = 0
    """Stored offsets of groups that no lag has, because there are too many groups or offsets."""


class TopicMeasures:
    """The measures of an Indexer. `start` it; `stop` it in the end. With `topic_count_max` 0 it measures nothing."""

    def __init__(self, queues: ConsumeQueueTable, offsets: ConsumerOffsets, *, topic_count_max: int) -> None:
        self.topics: Mapping[tuple[str, ...], TopicMessages] = {}
        """By topic, as of the last look."""
        self.lags: Mapping[tuple[str, ...], OffsetLag] = {}
        """By group and topic, as of the last look."""
        self.left_out = LeftOut()
        self._queues, self._offsets, self._topic_count_max = queues, offsets, topic_count_max
        self._loop = SupervisedLoop("measures of topics", self.look, interval_ms=INTERVAL_MS)

    def start(self) -> None:
        """Begin to measure at the interval."""
        if self._topic_count_max:
            self._loop.start()

    async def stop(self) -> None:
        """Stop measuring."""
        await self._loop.stop()

    async def look(self) -> None:
        """Measure all topics and groups."""
        names = [topic for topic in self._queues.topics() if not is_system_topic(topic)]
        ranges = await self._ranges(names[: self._topic_count_max])
        self.topics = {
            (topic,): TopicMessages(sum(last for _, last in found), sum(last - first for first, last in found))
            for topic, queues in ranges.items()
            for found in [list(queues.values())]
        }
        lags, left_out_count = await self._lags(ranges)
        self.lags = {place: OffsetLag(lag) for place, lag in lags.items()}
        self.left_out = LeftOut(max(0, len(names) - self._topic_count_max), left_out_count)

    async def _ranges(self, topics: list[str]) -> Ranges:
        """Return the first and the next queue offset of each queue, by topic and queue id."""
        ranges: Ranges = {topic: {} for topic in topics}
        places = ((topic, queue_id) for topic in topics for queue_id in self._queues.queue_ids(topic))
        async for step in in_steps(places, count=STEP_QUEUE_COUNT):
            for topic, queue_id in step:
                if (queue := self._queues.find(topic, queue_id)) is not None:
                    ranges[topic][queue_id] = queue.min_queue_offset, queue.max_queue_offset
        return ranges

    async def _lags(self, ranges: Ranges) -> tuple[dict[tuple[str, str], int], int]:
        """Return the lag of each group in each topic, and the number of stored offsets that are left out."""
        lags: dict[tuple[str, str], int] = {}
        left_out_count = 0
        if self._offsets.count > OFFSET_COUNT_MAX:
            return lags, self._offsets.count
        async for step in self._offsets.offsets():
            for group, topic, queue_id, queue_offset in step:
                if topic not in ranges:
                    continue
                place, (first, last) = (group, topic), ranges[topic].get(queue_id, (0, 0))
                if place in lags or len(lags) < ROW_COUNT_MAX:
                    lags[place] = lags.get(place, 0) + max(0, last - max(first, queue_offset))
                else:
                    left_out_count += 1
        return lags, left_out_count
