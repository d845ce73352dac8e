# SPDX-License-Identifier: Apache-2.0
"""ScanService over the engine's planner and scanner."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from reput.indexer.v1 import scan_service_pb2 as messages

from libs.filters.property_filter import parse_where
from libs.formats import fields
from libs.formats.limits import INT64_MAX, MIB, QUEUE_COUNT_MAX
from libs.formats.protobuf_wire import LENGTH_DELIMITED, int_field, length_delimited, tag, varint
from libs.machine.loop import in_steps
from libs.requests import arguments
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.frames import COLUMNS, COMPRESSIONS, DEFAULT_COLUMNS, FrameEncoder
from services.indexer.engine.answer.plan import ScanPartition, ScanRange, ScanScope
from services.indexer.engine.answer.scan import ScanFilter, ScanFrame
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.rpc import requests

RANGE_STEP_COUNT = 250
KEY_OVERHEAD_BYTES = 3
PLAN_KEYS_SIZE_BYTES_MAX = 32 * MIB
"""Keys in the answer of a plan, once for each topic."""
TOPIC_COUNT_MAX, KEY_COUNT_MAX, RANGE_COUNT_MAX = 1_000, 10_000, 65_536
PARTITION_COUNT_DEFAULT, PARTITION_COUNT_MAX = 1, 10_000
ROW_COUNT_DEFAULT, SIZE_DEFAULT = 1_000_000, 128 * MIB
FRAME_SIZE_DEFAULT, FRAME_SIZE_MAX = MIB, 8 * MIB


class ScanServicer:
    """Serves reput.indexer.v1.ScanService."""

    def __init__(self, answers: Answers, polls: LongPolls) -> None:
        self._answers = answers
        self._polls = polls

    async def PlanScan(self, request: messages.PlanScanRequest, _: object) -> messages.PlanScanResponse:
        """Cut the matching entries into partitions."""
        if not 1 <= len(request.topics) <= TOPIC_COUNT_MAX:
            limit = TOPIC_COUNT_MAX if request.topics else 1
            reason = f"must be 1 to {TOPIC_COUNT_MAX}"
            raise BadArgument(reason, field="topics", value=len(request.topics), limit=limit)
        topics = [self._topic(topic, f"topics[{index}]") for index, topic in enumerate(request.topics)]
        scan_filter = _filter(request.filter)
        _check_answer(scan_filter.keys, topic_count=len(topics))
        scope = ScanScope(
            topics=tuple(dict.fromkeys(topics)),
            queue_ids=await _queue_ids(request.queue_ids),
            ranges=await _ranges(request.ranges, "ranges", frozenset(topics), "is not among the topics"),
            keys=scan_filter.keys,
            start_time_ms=scan_filter.start_time_ms,
            end_time_ms=scan_filter.end_time_ms,
            partition_count_min=size_of_page(
                request, "partition_count_min", default=PARTITION_COUNT_DEFAULT, most=PARTITION_COUNT_MAX
            ),
            row_count_max=size_of_page(request, "partition_row_count_max", default=ROW_COUNT_DEFAULT, most=INT64_MAX),
            size_bytes_max=size_of_page(request, "partition_size_bytes_max", default=SIZE_DEFAULT, most=INT64_MAX),
        )
        indexed = self._answers.indexes.reached.indexed_physical_offset
        partitions = await self._answers.planner.plan(scope)
        response = messages.PlanScanResponse(indexed_physical_offset=indexed)
        partitions.reverse()
        while partitions:  # a partition at a time: freeing all of them at once would block, too
            await _add_partition(response, partitions.pop())
        return response

    async def Scan(self, request: messages.ScanRequest, _: object) -> AsyncGenerator[bytes, None]:
        """Read a partition as Arrow frames."""
        partition, scan_filter = await _partition(request), _filter(request.filter)
        self._answers.served(partition.key_topic, "partition.key_topic")
        async for step in in_steps(enumerate(partition.ranges)):
            for number, one in step:
                self._answers.served(one.topic, f"partition.ranges[{number}].topic")
        columns = tuple(request.columns) or DEFAULT_COLUMNS
        for index, name in enumerate(columns):
            if name not in COLUMNS:
                raise BadArgument("is no column", field=f"columns[{index}]", value=name[: arguments.TEXT_SHOWN])
            if name in columns[:index]:
                raise BadArgument("is named twice", field=f"columns[{index}]", value=name)
        if request.compression not in COMPRESSIONS:
            shown = request.compression[: arguments.TEXT_SHOWN]
            raise BadArgument("must be empty, lz4 or zstd", field="compression", value=shown)
        frame_size = size_of_page(request, "frame_size_bytes", default=FRAME_SIZE_DEFAULT, most=FRAME_SIZE_MAX)
        encoder = await asyncio.to_thread(FrameEncoder, columns, COMPRESSIONS[request.compression])
        frames = self._answers.scanner.frames(partition, scan_filter, encoder, chunk_size_bytes=frame_size)
        async with contextlib.aclosing(frames):
            async for frame in frames:
                self._polls.check_open()
                yield _answer(frame)

    def _topic(self, name: str, field: str) -> str:
        return self._answers.served(arguments.topic(name, field), field)


def _answer(frame: ScanFrame) -> bytes:
    """Encode a ScanResponse, with a single copy of the frame. The frame is first: clients that copy nothing need it."""
    head = tag(fields.SCAN_RESPONSE_ARROW_IPC, LENGTH_DELIMITED) + varint(len(frame.data))
    tail = int_field(fields.SCAN_RESPONSE_ROW_COUNT, frame.row_count)
    if frame.range is not None:
        done = messages.ScanRange(**frame.range._asdict())
        tail += length_delimited(fields.SCAN_RESPONSE_RANGE, done.SerializeToString())
    return b"".join((head, frame.data, tail))


def _filter(message: messages.ScanFilter) -> ScanFilter:
    start_ms, end_ms = requests.time_range(message, "filter.")
    tags = parse_tag_expression(message.tag_expression, field="filter.tag_expression")
    where = parse_where(message.where, field="filter.where")
    return ScanFilter(tags, start_ms, end_ms, _keys(message.keys, "filter.keys"), where)


async def _partition(request: messages.ScanRequest) -> ScanPartition:
    message = request.partition
    keys = _keys(message.keys, "partition.keys")
    if not keys:
        ranges = await _ranges(message.ranges, "partition.ranges")
        if not ranges:
            raise BadArgument("has neither ranges nor keys", field="partition")
        if message.key_topic:
            raise BadArgument("has a topic but no keys", field="partition.key_topic", value=message.key_topic)
        if request.filter.keys:
            raise BadArgument("needs a partition of keys", field="filter.keys", value=len(request.filter.keys))
        return ScanPartition(ranges=ranges)
    known = set(request.filter.keys) or set(keys)
    for index, key in enumerate(keys):
        if key not in known:
            raise BadArgument(
                "is not among filter.keys", field=f"partition.keys[{index}]", value=key[: arguments.TEXT_SHOWN]
            )
    topic = arguments.topic(message.key_topic, "partition.key_topic")
    ranges = await _ranges(message.ranges, "partition.ranges", frozenset({topic}), "is not the keys' topic")
    return ScanPartition(ranges=ranges, key_topic=topic, keys=keys)


def _check_answer(keys: Sequence[str], *, topic_count: int) -> None:
    """Refuse keys with too many bytes in the answer: each topic has partitions of its own with all keys."""
    size_bytes = topic_count * sum(KEY_OVERHEAD_BYTES + len(key) for key in keys)
    if size_bytes > PLAN_KEYS_SIZE_BYTES_MAX:
        reason = "are too many bytes for so many topics"
        raise BadArgument(reason, field="filter.keys", value=size_bytes, limit=PLAN_KEYS_SIZE_BYTES_MAX)


async def _queue_ids(found: Sequence[int]) -> frozenset[int]:
    if len(found) > QUEUE_COUNT_MAX:
        raise BadArgument("has too many queues", field="queue_ids", value=len(found), limit=QUEUE_COUNT_MAX)
    queue_ids: set[int] = set()
    async for step in in_steps(enumerate(found)):
        queue_ids.update(arguments.queue_id(value, f"queue_ids[{index}]") for index, value in step)
    return frozenset(queue_ids)


async def _ranges(
    found: Sequence[messages.ScanRange], field: str, topics: frozenset[str] | None = None, reason: str = ""
) -> tuple[ScanRange, ...]:
    """Return checked ranges, of these topics if any are given."""
    if len(found) > RANGE_COUNT_MAX:
        raise BadArgument("has too many ranges", field=field, value=len(found), limit=RANGE_COUNT_MAX)
    ranges: list[ScanRange] = []
    async for step in in_steps(enumerate(found), count=RANGE_STEP_COUNT):
        for index, message in step:
            ranges.append(_range(message, f"{field}[{index}]"))
            if topics is not None and message.topic not in topics:
                raise BadArgument(reason, field=f"{field}[{index}].topic", value=message.topic)
    return tuple(ranges)


def _range(message: messages.ScanRange, field: str) -> ScanRange:
    start = check_range(message.start_queue_offset, f"{field}.start_queue_offset")
    end = check_range(message.end_queue_offset, f"{field}.end_queue_offset")
    if start > end:
        raise BadArgument("is before the start", field=f"{field}.end_queue_offset", value=end, limit=start)
    return ScanRange(
        arguments.topic(message.topic, f"{field}.topic"),
        arguments.queue_id(message.queue_id, f"{field}.queue_id"),
        start,
        end,
    )


def _keys(found: Sequence[str], field: str) -> tuple[str, ...]:
    if len(found) > KEY_COUNT_MAX:
        raise BadArgument("has too many keys", field=field, value=len(found), limit=KEY_COUNT_MAX)
    return tuple(requests.key(value, f"{field}[{index}]") for index, value in enumerate(found))


async def _add_partition(response: messages.PlanScanResponse, partition: ScanPartition) -> None:
    added = response.partitions.add(
        key_topic=partition.key_topic,
        keys=partition.keys,
        row_count=partition.row_count,
        size_bytes=partition.size_bytes,
    )
    await asyncio.sleep(0)
    async for step in in_steps(partition.ranges, count=RANGE_STEP_COUNT):
        added.ranges.extend(messages.ScanRange(**one._asdict()) for one in step)
