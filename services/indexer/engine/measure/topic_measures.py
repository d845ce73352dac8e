# SPDX-License-Identifier: Apache-2.0
"""TopicMeasures: measures the messages of topics and the lags of groups at an interval, for metrics.

A group's lag is the number of messages from its stored offset on, in the queues for which it has stored an offset.
Groups that share messages are measured, too: their stored offset is that of their first message that is not settled.
The bytes of records are the sizes in their units, so a look costs as much as there are new records.
Callers: the event loop's thread; other tasks run in between. The results: any thread.
Memory: a row for each of the first `topic_count_max` topics, and for ROW_COUNT_MAX groups of a topic at most. System
topics are left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from libs.formats.state.system_topics import is_system_topic
from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop, in_steps
from libs.segments.errors import IndexDamaged
from services.indexer.engine.answer.pulled import Pulled
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.log.source import RecordSource
from services.indexer.engine.measure.lag_bytes import LagBytes, add_sizes
from services.indexer.engine.measure.record_times import RecordTimes
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT, ConsumeQueueTable

Place: TypeAlias = tuple[int, int]
"""The physical offset and the size of a record."""


class Range(NamedTuple):
    """The stored messages of a queue."""

    first: int
    """The queue offset of the first message."""
    next: int
    """The queue offset behind the last message."""


Ranges: TypeAlias = dict[str, dict[int, Range]]
"""The stored messages of each queue, by topic and queue id."""

INTERVAL_MS = 15_000
ROW_COUNT_MAX = 10_000
OFFSET_COUNT_MAX = 100_000
"""With more stored offsets no lag is measured: a look would take a tenth of a second of the loop's time and more."""


class TopicMessages(Struct, frozen=True):
    """The messages of a topic."""

    indexed_messages_total: int = 0
    """Messages of the topic since its first message, also messages that are gone."""
    indexed_bytes_total: int = 0
    """Bytes of the topic's records that were indexed since the start of the Indexer."""
    pulled_messages_total: int = 0
    """Messages of the topic that pulls and subscriptions returned since the start, also to Delivery."""
    pulled_bytes_total: int = 0
    """Bytes of the records that pulls and subscriptions returned since the start, also to Delivery."""
    stored_messages: int = 0
    """Messages of the topic that are stored."""
    oldest_message_time_ms: int = 0
    """Store time of the oldest stored message, in seconds since the epoch; 0 without messages, or not read yet."""
    last_message_time_ms: int = 0
    """Store time of the last stored message, in seconds since the epoch; 0 without messages, or not read yet."""


class OffsetLag(Struct, frozen=True):
    """The lag of a group in a topic."""

    lag_messages: int = 0
    """Messages of the topic that are stored, from the group's stored offsets on."""
    lag_ms: int = 0
    """Time since the first of these messages was stored; 0 without such a message, or not read yet."""
    lag_bytes: int = 0
    """Bytes of the records of these messages; of a lag of millions an estimate until all sizes were added."""


class LeftOut(Struct, frozen=True):
    """What the measures do not have."""

    left_out_topics: int = 0
    """Topics without metrics of their own, because there are more than metrics_topic_count_max."""
    left_out_offsets: int = 0
    """Stored offsets of groups that no lag has, because there are too many groups or offsets."""


class _Lag(Struct):
    messages: int = 0
    size_bytes: int = 0
    first: Place | None = None
    """The first of the messages in the log."""

    def add(self, messages: int, size_bytes: int, place: Place | None) -> None:
        self.messages += messages
        self.size_bytes += size_bytes
        if place is not None and (self.first is None or place < self.first):
            self.first = place


class TopicMeasures:
    """The measures of an Indexer. `start` it; `stop` it in the end. With `topic_count_max` 0 it measures nothing."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        offsets: ConsumerOffsets,
        records: RecordSource,
        pulled: Pulled,
        clock: Clock,
        *,
        topic_count_max: int,
    ) -> None:
        self.topics: Mapping[tuple[str, ...], TopicMessages] = {}
        """By topic, as of the last look."""
        self.lags: Mapping[tuple[str, ...], OffsetLag] = {}
        """By group and topic, as of the last look."""
        self.left_out = LeftOut()
        self._queues, self._offsets, self._pulled, self._clock = queues, offsets, pulled, clock
        self._topic_count_max = topic_count_max
        self._times = RecordTimes(records)
        self._lag_bytes = LagBytes()
        self._former: Ranges | None = None
        """The ranges of the last look."""
        self._indexed_bytes: Counter[str] = Counter()
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
        await self._count_new(ranges)
        ends = {topic: self._ends(topic, queues) for topic, queues in ranges.items()}
        lags, left_out_count = await self._lags(ranges)
        firsts = [lag.first for lag in lags.values() if lag.first is not None]
        await self._times.look([*(place for found in ends.values() for place in found), *firsts])
        self.topics = {(topic,): self._of_topic(topic, ranges[topic], found) for topic, found in ends.items()}
        self.lags = {place: self._of_group(lag) for place, lag in lags.items()}
        self.left_out = LeftOut(max(0, len(names) - self._topic_count_max), left_out_count)

    def _of_topic(self, topic: str, queues: dict[int, Range], ends: list[Place]) -> TopicMessages:
        message_count, size_bytes = self._pulled.of(topic)
        return TopicMessages(
            indexed_messages_total=sum(found.next for found in queues.values()),
            indexed_bytes_total=self._indexed_bytes[topic],
            pulled_messages_total=message_count,
            pulled_bytes_total=size_bytes,
            stored_messages=sum(found.next - found.first for found in queues.values()),
            oldest_message_time_ms=self._times.find(ends[0][0]) if ends else 0,
            last_message_time_ms=self._times.find(ends[-1][0]) if ends else 0,
        )

    def _of_group(self, lag: _Lag) -> OffsetLag:
        stored_ms = 0 if lag.first is None else self._times.find(lag.first[0])
        lag_ms = max(0, self._clock.now_ms() - stored_ms) if stored_ms else 0
        return OffsetLag(lag.messages, lag_ms, lag.size_bytes)

    async def _ranges(self, topics: list[str]) -> Ranges:
        """Return the stored messages of each queue, by topic and queue id."""
        ranges: Ranges = {topic: {} for topic in topics}
        places = ((topic, queue_id) for topic in topics for queue_id in self._queues.queue_ids(topic))
        async for step in in_steps(places, count=STEP_QUEUE_COUNT):
            for topic, queue_id in step:
                if (queue := self._queues.find(topic, queue_id)) is not None:
                    ranges[topic][queue_id] = Range(queue.min_queue_offset, queue.max_queue_offset)
        return ranges

    async def _count_new(self, ranges: Ranges) -> None:
        """Add the bytes of the records that came since the last look. The first look counts none."""
        former, self._former = self._former, ranges
        if former is None:
            return
        for topic in self._indexed_bytes.keys() - ranges.keys():
            del self._indexed_bytes[topic]
        for topic, queues in ranges.items():
            before = former.get(topic, {})
            for queue_id, found in queues.items():
                start = max(found.first, before[queue_id].next if queue_id in before else 0)
                if start < found.next and (queue := self._queues.find(topic, queue_id)) is not None:
                    self._indexed_bytes[topic] += await add_sizes(queue, start, found.next)

    def _ends(self, topic: str, queues: dict[int, Range]) -> list[Place]:
        """Return the places of the first and of the last stored record of a topic. Empty without records."""
        edges = ((queue_id, offset) for queue_id, found in queues.items() for offset in (found.first, found.next - 1))
        places = list(self._places(topic, edges))
        return [min(places), max(places)] if places else []

    def _places(self, topic: str, edges: Iterable[tuple[int, int]]) -> Iterable[Place]:
        for queue_id, queue_offset in edges:
            if (place := self._place(topic, queue_id, queue_offset)) is not None:
                yield place

    def _place(self, topic: str, queue_id: int, queue_offset: int) -> Place | None:
        """Return the place of a message's record. None if it is gone, or its unit is damaged."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.min_queue_offset <= queue_offset < queue.max_queue_offset:
            return None
        try:
            return queue.place_at(queue_offset)
        except IndexDamaged:
            return None

    async def _lags(self, ranges: Ranges) -> tuple[dict[tuple[str, ...], _Lag], int]:
        """Return the lag of each group in each topic, and the number of stored offsets that are left out."""
        lags: dict[tuple[str, ...], _Lag] = {}
        left_out_count = 0
        if self._offsets.count > OFFSET_COUNT_MAX:
            return lags, self._offsets.count
        self._lag_bytes.begin()
        async for step in self._offsets.offsets():
            for group, topic, queue_id, queue_offset in step:
                if topic not in ranges:
                    continue
                place, found = (group, topic), ranges[topic].get(queue_id, Range(0, 0))
                if place in lags or len(lags) < ROW_COUNT_MAX:
                    start = max(found.first, queue_offset)
                    first = self._place(topic, queue_id, start) if start < found.next else None
                    size_bytes = await self._bytes((*place, queue_id), start, found.next)
                    lags.setdefault(place, _Lag()).add(max(0, found.next - start), size_bytes, first)
                else:
                    left_out_count += 1
        self._lag_bytes.end()
        return lags, left_out_count

    async def _bytes(self, place: tuple[str, str, int], start: int, end: int) -> int:
        """Return the bytes of a group's lag in a queue."""
        queue = self._queues.find(*place[1:])
        return await self._lag_bytes.find(place, queue, start, end) if queue is not None and start < end else 0
