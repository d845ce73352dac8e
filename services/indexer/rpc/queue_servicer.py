# SPDX-License-Identifier: Apache-2.0
"""QueueService over the engine's queues and pulls. Answers with messages are assembled as bytes."""

import itertools
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterator, Sequence

from msgspec.structs import replace
from reput.indexer.v1 import queue_service_pb2 as messages

from libs.filters.property_filter import parse_where
from libs.formats import fields
from libs.formats.limits import MIB
from libs.formats.protobuf_wire import int_field
from libs.log.answer_sizes import answer_sizes
from libs.machine.loop import in_steps
from libs.requests import arguments
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument, WindowFull
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.timestamps import timestamp
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.entry_times import Entry, entry_times_ms
from services.indexer.engine.answer.measures import Measure, Part, measures, size_bytes_of
from services.indexer.engine.answer.pull import PullQuery, PullResult, PullStatus
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.answer.time_search import first_at_or_after, last_at_or_before
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT
from services.indexer.errors import QueueNotFound
from services.indexer.rpc.responses import PULL, SUBSCRIBE, with_messages

PULL_COUNT_DEFAULT, SUBSCRIBE_COUNT_DEFAULT, COUNT_MAX = 32, 256, 4_096
PULL_SIZE_DEFAULT, SUBSCRIBE_SIZE_DEFAULT, SIZE_MAX = MIB // 4, MIB, 8 * MIB
WAIT_MAX_S = 30.0
HEARTBEAT_S = 5.0
PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
SIZE_OFFSET_COUNT_MAX = 10_000
PART_COUNT_MAX = 1_000
TIMED_SIZE_BYTES_MAX, MEASURED_SIZE_BYTES_MAX = 4 * MIB, 64 * MIB
"""Bytes of messages that an answer reads for their store times."""

# The statuses of a stream for a queue that does not exist yet, or has other bounds than the reader assumes.
_STREAM_STATUSES = {
    PullStatus.NO_MATCHED_LOGIC_QUEUE: PullStatus.OFFSET_OVERFLOW_BADLY,
    PullStatus.NO_MESSAGE_IN_QUEUE: PullStatus.OFFSET_OVERFLOW_BADLY,
    PullStatus.OFFSET_FOUND_NULL: PullStatus.MESSAGE_WAS_REMOVING,
}


class QueueServicer:
    """Serves reput.indexer.v1.QueueService."""

    def __init__(self, answers: Answers, *, stream_count_max: int) -> None:
        self._answers = answers
        self._queues = answers.indexes.queues
        self.stream_count_max = stream_count_max
        self._stream_count = 0

    async def Pull(self, request: messages.PullRequest, _: object) -> bytes:
        """Read messages. Wait for the first message if the request says so."""
        query = self._query(request, count_default=PULL_COUNT_DEFAULT, size_default=PULL_SIZE_DEFAULT)
        wait_s = arguments.wait_s(request, "wait", most_s=WAIT_MAX_S)
        result = await self._answers.puller.pull(query, wait_s=wait_s)
        head = b"".join(
            (
                int_field(fields.PULL_RESPONSE_STATUS, result.status),
                int_field(fields.PULL_RESPONSE_NEXT_QUEUE_OFFSET, result.next_queue_offset),
                int_field(fields.PULL_RESPONSE_MIN_QUEUE_OFFSET, result.min_queue_offset),
                int_field(fields.PULL_RESPONSE_MAX_QUEUE_OFFSET, result.max_queue_offset),
            )
        )
        return with_messages(head, result.found, PULL, wants_records=request.wants_records)

    async def Subscribe(self, request: messages.SubscribeRequest, _: object) -> AsyncGenerator[bytes, None]:
        """Pull repeatedly. Each answer waits until the reader has received the answer before."""
        query = self._query(request, count_default=SUBSCRIBE_COUNT_DEFAULT, size_default=SUBSCRIBE_SIZE_DEFAULT)
        sizes_bytes = answer_sizes(query.size_bytes_max)
        query = replace(query, size_bytes_max=next(sizes_bytes))
        if self._stream_count >= self.stream_count_max:
            raise WindowFull("subscriptions", limit=self.stream_count_max)
        self._stream_count += 1
        try:
            while True:
                result = await self._answers.puller.pull(query, wait_s=HEARTBEAT_S)
                yield _subscribe_response(query, result, wants_records=request.wants_records)
                if len(result.found.sizes):
                    query = replace(query, size_bytes_max=next(sizes_bytes))
                query = replace(query, queue_offset=result.next_queue_offset)
        finally:
            self._stream_count -= 1

    async def GetOffsetByTime(
        self, request: messages.GetOffsetByTimeRequest, _: object
    ) -> messages.GetOffsetByTimeResponse:
        """Search by store time."""
        topic = self._answers.served(arguments.topic(request.topic))
        queue_id = arguments.queue_id(request.queue_id)
        time_ms = arguments.time_ms(request, "time")
        if time_ms is None:
            raise BadArgument("is missing", field="time")
        if request.boundary not in messages.Boundary.values():
            raise BadArgument("is unknown", field="boundary", value=request.boundary)
        is_upper = request.boundary == messages.BOUNDARY_UPPER
        search = last_at_or_before if is_upper else first_at_or_after
        queue_offset = await search(self._queue(topic, queue_id), self._answers.records, time_ms)
        return messages.GetOffsetByTimeResponse(queue_offset=queue_offset)

    async def GetQueueRange(self, request: messages.GetQueueRangeRequest, _: object) -> messages.GetQueueRangeResponse:
        """Return the bounds of a queue and the times at its ends."""
        topic = self._answers.served(arguments.topic(request.topic))
        queue_id = arguments.queue_id(request.queue_id)
        queue = self._queue(topic, queue_id)
        entry = _entry(queue)
        await self._put_times([queue], [entry])
        if not request.HasField("size_start_queue_offset"):
            return messages.GetQueueRangeResponse(queue=entry)
        start, others = request.size_start_queue_offset, request.size_queue_offsets
        check_range(start, "size_start_queue_offset")
        _check_count(len(others), "size_queue_offsets", most=SIZE_OFFSET_COUNT_MAX)
        return messages.GetQueueRangeResponse(queue=entry, size_bytes=await size_bytes_of(queue, start, others))

    async def ListQueues(self, request: messages.ListQueuesRequest, _: object) -> messages.ListQueuesResponse:
        """Return a page of queues. The token is the last queue of the page before.

        Messages at their ends are read for times: a page ends after `TIMED_SIZE_BYTES_MAX` of them.
        """
        if request.topic:
            self._answers.served(arguments.topic(request.topic))
        page_size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        filters = (request.topic,)
        last = decode_token("queues", filters, request.page_token, tuple[str, int]) or ("", -1)
        queues: list[ConsumeQueue] = []
        entries: list[messages.Queue] = []
        listed = itertools.islice(self._queues_behind(request.topic, last), page_size + 1)
        async for step in in_steps(listed, count=STEP_QUEUE_COUNT):
            queues += step
            entries += map(_entry, step)
        kept = entries[:page_size]
        if request.wants_times:
            kept = kept[: await self._put_times(queues[:page_size], kept)]
        token = ""
        if len(kept) < len(entries):
            token = encode_token("queues", filters, (kept[-1].topic, kept[-1].queue_id))
        return messages.ListQueuesResponse(queues=kept, next_page_token=token)

    async def MeasureQueues(self, request: messages.MeasureQueuesRequest, _: object) -> messages.MeasureQueuesResponse:
        """Return sizes and times of parts of queues."""
        _check_count(len(request.parts), "parts", most=PART_COUNT_MAX)
        offset_count = sum(len(part.queue_offsets) for part in request.parts)
        _check_count(offset_count, "parts.queue_offsets", most=SIZE_OFFSET_COUNT_MAX)
        parts = [self._part(part, f"parts[{index}]") for index, part in enumerate(request.parts)]
        found = await measures(parts, self._answers.records, time_size_bytes_max=MEASURED_SIZE_BYTES_MAX)
        return messages.MeasureQueuesResponse(measures=map(_measure, parts, found))

    def _part(self, part: messages.QueuePart, field: str) -> Part | None:
        """Return a part of a queue, None if there is no such queue."""
        topic = self._answers.served(arguments.topic(part.topic, f"{field}.topic"), f"{field}.topic")
        queue = self._queues.find(topic, arguments.queue_id(part.queue_id, f"{field}.queue_id"))
        start = check_range(part.start_queue_offset, f"{field}.start_queue_offset")
        time_offset = part.time_queue_offset if part.HasField("time_queue_offset") else None
        return None if queue is None else Part(queue, start, part.queue_offsets, time_offset)

    async def _put_times(self, queues: Sequence[ConsumeQueue], entries: Sequence[messages.Queue]) -> int:
        """Give the first entries the times at their ends, and return how many have them, at least 1."""
        ends = [
            [Entry(queue, entry.min_queue_offset), Entry(queue, entry.max_queue_offset - 1)]
            if entry.min_queue_offset < entry.max_queue_offset
            else []
            for queue, entry in zip(queues, entries, strict=True)
        ]
        found = await entry_times_ms(ends, self._answers.records, size_bytes_max=TIMED_SIZE_BYTES_MAX)
        for entry, times in zip(entries, found, strict=False):
            for store_time, time_ms in zip((entry.first_store_time, entry.last_store_time), times, strict=False):
                if (shown := timestamp(time_ms)) is not None:
                    store_time.CopyFrom(shown)
        return len(found)

    def _queues_behind(self, topic: str, last: tuple[str, int]) -> Iterator[ConsumeQueue]:
        """Yield the queues of a topic, or of all topics, behind the last queue of a page."""
        topics = [topic] if topic else self._queues.topics()
        for name in topics[bisect_left(topics, last[0]) :]:
            for queue_id in self._queues.queue_ids(name):
                if (name, queue_id) > last:
                    queue = self._queues.find(name, queue_id)
                    if queue is not None:  # else it was removed meanwhile
                        yield queue

    def _query(
        self, request: messages.PullRequest | messages.SubscribeRequest, *, count_default: int, size_default: int
    ) -> PullQuery:
        return PullQuery(
            topic=self._answers.served(arguments.topic(request.topic)),
            queue_id=arguments.queue_id(request.queue_id),
            queue_offset=check_range(request.queue_offset, "queue_offset"),
            message_count_max=size_of_page(request, "message_count_max", default=count_default, most=COUNT_MAX),
            size_bytes_max=size_of_page(request, "size_bytes_max", default=size_default, most=SIZE_MAX),
            tags=parse_tag_expression(request.tag_expression, field="tag_expression"),
            where=parse_where(request.where, field="where"),
        )

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_queue_offset == 0:
            raise QueueNotFound(topic, queue_id)
        return queue


def _entry(queue: ConsumeQueue) -> messages.Queue:
    return messages.Queue(
        topic=queue.topic,
        queue_id=queue.queue_id,
        min_queue_offset=queue.min_queue_offset,
        max_queue_offset=queue.max_queue_offset,
    )


def _check_count(count: int, field: str, *, most: int) -> None:
    if count > most:
        raise BadArgument(f"must be at most {most}", field=field, value=count, limit=most)


def _measure(part: Part | None, measure: Measure) -> messages.QueueMeasure:
    if part is None:
        return messages.QueueMeasure()
    return messages.QueueMeasure(
        min_queue_offset=part.queue.min_queue_offset,
        max_queue_offset=part.queue.max_queue_offset,
        size_bytes=measure.size_bytes,
        store_time=timestamp(measure.store_time_ms),
    )


def _subscribe_response(query: PullQuery, result: PullResult, *, wants_records: bool) -> bytes:
    status = _STREAM_STATUSES.get(result.status, result.status)
    if result.next_queue_offset == query.queue_offset == result.max_queue_offset:
        status = PullStatus.OFFSET_OVERFLOW_ONE
    head = b"".join(
        (
            int_field(fields.SUBSCRIBE_RESPONSE_STATUS, status),
            int_field(fields.SUBSCRIBE_RESPONSE_NEXT_QUEUE_OFFSET, result.next_queue_offset),
            int_field(fields.SUBSCRIBE_RESPONSE_MAX_QUEUE_OFFSET, result.max_queue_offset),
        )
    )
    return with_messages(head, result.found, SUBSCRIBE, wants_records=wants_records)
