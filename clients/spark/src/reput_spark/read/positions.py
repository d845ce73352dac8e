# SPDX-License-Identifier: Apache-2.0
"""Positions and bounds of queues, from options, offset JSON and the Indexer, as plain dictionaries.

The JSON of a stream's offsets has the form of Spark's Kafka source, `{"topic": {"0": 23}}`: the next entry of each
queue. Names that begin with `$` are additions of this package, for no topic has such a name. Invariant: the same
positions give the same JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grpc import StatusCode
from reput.indexer.v1 import index_service_pb2, queue_service_pb2
from reput_client.core.call import Call, method_of
from reput_client.core.errors import ReputError
from reput_client.core.types import to_timestamp
from reput_client.frames import plan as client_plan
from reput_client.frames.calls import BEYOND_END, Attempts

from reput_spark import calls
from reput_spark.errors import DataLoss, NoMessageAtTime
from reput_spark.read.options import EARLIEST, LATEST

if TYPE_CHECKING:
    from reput_spark.read.options import ReadOptions

Queue = tuple[str, int]
Positions = dict[Queue, int]
"""Queue offsets by topic and queue id."""
Bounds = dict[Queue, tuple[int, int]]
"""First stored entry and end, exclusive, by topic and queue id."""

BEHIND = ReputError("a queue ends before what was read of it", code=StatusCode.OUT_OF_RANGE, reason=BEYOND_END)

SYSTEM_TOPIC = re.compile(r"SCHEDULE_TOPIC_XXXX|TBW102|rmq_sys_.*|RMQ_SYS_.*|SELF_TEST_TOPIC|OFFSET_MOVED_EVENT|%.*")
"""Topics that a pattern does not match: the store's own topics, and topics of consumer groups."""


def bounds(options: ReadOptions) -> Bounds:
    """Return the queues that the options name and that have had a message. Raises CallFailed."""
    names = options.topics or tuple(options.assigned) or ("",)
    found: Bounds = {}
    for topic in names:
        for queue in queues_of(options, topic):
            found[queue.topic, queue.queue_id] = queue.min_queue_offset, queue.max_queue_offset
    return {queue: found[queue] for queue in sorted(found) if is_chosen(options, queue)}


def bounds_from(options: ReadOptions, begin: Positions, read: Positions) -> Bounds:
    """Return the `bounds` of an Indexer that has indexed at least up to `begin`, if possible: some may lag behind.

    If there are no new entries after `read`, an Indexer that does not reach its log is replaced by the next Indexer of
    the list. Raises CallFailed.
    """
    left_count = len(options.endpoints) - 1
    attempts = Attempts(calls.servers(options), method_of(queue_service_pb2.ListQueuesRequest.DESCRIPTOR).path)
    while True:
        at = options.endpoints.index(attempts.endpoint)
        asked = replace(options, endpoints=options.endpoints[at:] + options.endpoints[:at])
        found = bounds(asked)
        if all(end <= found.get(queue, (0, 0))[1] for queue, end in begin.items()):
            is_new = any(end > read.get(queue, start) for queue, (start, end) in found.items())
            if is_new or left_count == 0 or not is_log_away(asked):
                attempts.answered()
                return found
            left_count -= 1
            attempts.go_on()
            continue
        if not attempts.goes_on(BEHIND):
            return found


def is_log_away(options: ReadOptions) -> bool:
    """Return whether an Indexer does not reach its log, and so lacks new entries. Raises CallFailed."""
    status: index_service_pb2.GetStatusResponse = calls.run(options, Call(index_service_pb2.GetStatusRequest()))
    return status.is_log_away


def queues_of(options: ReadOptions, topic: str) -> Iterator[queue_service_pb2.Queue]:
    """Yield the queues of a topic, or of all topics for an empty name. Raises CallFailed."""
    with calls.told():
        yield from client_plan.queues_of(calls.servers(options), topic)


def is_chosen(options: ReadOptions, queue: Queue) -> bool:
    """Return whether the options name a queue."""
    topic, queue_id = queue
    if options.topic_pattern:
        is_meant = re.fullmatch(options.topic_pattern, topic) and not SYSTEM_TOPIC.fullmatch(topic)
        return bool(is_meant) and (not options.queue_ids or queue_id in options.queue_ids)
    if options.assigned:
        return queue_id in options.assigned.get(topic, ())
    return topic in options.topics and (not options.queue_ids or queue_id in options.queue_ids)


def starts(options: ReadOptions, kept: Bounds) -> Positions:
    """Return the start offset of a stream in each queue. Raises DataLoss, NoMessageAtTime, CallFailed."""
    return {queue: start(options, queue, kept[queue]) for queue in kept}


def start(options: ReadOptions, queue: Queue, kept: tuple[int, int]) -> int:
    """Return the start offset of a read in a queue. Raises DataLoss, NoMessageAtTime, CallFailed."""
    topic, queue_id = queue
    time_ms = options.starting_times_ms.get(topic, {}).get(queue_id)
    if time_ms is not None:
        found = at_time(options, queue, time_ms)
        if found == kept[1] and options.fails_without_time:
            raise NoMessageAtTime(topic, queue_id, time_ms)
        return found
    named = options.starting_offsets.get(topic, {}).get(queue_id)
    if named is not None:
        return resolved(options, "startingOffsets", queue, named, kept)
    if options.starts_latest and options.start_time_ms is not None:
        return at_time(options, queue, options.start_time_ms)
    return kept[1] if options.starts_latest else kept[0]


def resolved(options: ReadOptions, option: str, queue: Queue, value: int, kept: tuple[int, int]) -> int:
    """Return an option's offset within the queue's bounds. Raises DataLoss outside, if fail_on_data_loss is set."""
    if value in (EARLIEST, LATEST):
        return kept[0] if value == EARLIEST else kept[1]
    if not kept[0] <= value <= kept[1] and options.fail_on_data_loss:
        raise DataLoss(topic=queue[0], queue_id=queue[1], option=option, value=value, kept=kept)
    return min(max(value, kept[0]), kept[1])


def at_time(options: ReadOptions, queue: Queue, time_ms: int) -> int:
    """Return the first entry at or after a store time, the end if there is none. Raises CallFailed."""
    request = queue_service_pb2.GetOffsetByTimeRequest(
        topic=queue[0],
        queue_id=queue[1],
        time=to_timestamp(time_ms),
        boundary=queue_service_pb2.BOUNDARY_LOWER,
    )
    return calls.run(options, Call(request, lambda answer: int(answer.queue_offset)))


def limited(begin: Positions, ends: Positions, row_count_max: int) -> Positions:
    """Return ends with at most `row_count_max` new entries, shared in proportion, at least a single entry per queue."""
    waiting = {queue: end - begin[queue] for queue, end in ends.items()}
    total = sum(waiting.values())
    if total <= row_count_max:
        return ends
    return {
        queue: begin[queue] + min(count, max(1, row_count_max * count // total)) if count else begin[queue]
        for queue, count in waiting.items()
    }


def to_json(positions: Mapping[Queue, int]) -> dict[str, Any]:
    """Return positions as offset JSON."""
    found: dict[str, Any] = {}
    for topic, queue_id in sorted(positions):
        found.setdefault(topic, {})[str(queue_id)] = positions[topic, queue_id]
    return found


def from_json(offset: Mapping[str, Any]) -> Positions:
    """Return the positions of offset JSON, without names that begin with `$`."""
    return {
        (topic, int(queue_id)): value
        for topic, queues in offset.items()
        if not topic.startswith("$")
        for queue_id, value in queues.items()
    }
