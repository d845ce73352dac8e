# SPDX-License-Identifier: Apache-2.0
"""Calls of the Indexer's QueueService and QueryService."""

from google.protobuf.duration_pb2 import Duration
from reput.indexer.v1 import query_service_pb2 as query
from reput.indexer.v1 import queue_service_pb2 as queue

from reput_client.core.calls.call import Call, Pages, same
from reput_client.core.types import Message, PullResult, PullStatus, Queue, TimeLike, from_ms, to_timestamp

_QUEUES = "reput.indexer.v1.QueueService"
_QUERIES = "reput.indexer.v1.QueryService"


def pull(
    topic: str, queue_id: int, queue_offset: int, *, count: int, size_bytes: int, tags: str, wait_s: float
) -> Call[PullResult]:
    """Read messages from a queue offset on."""
    request = queue.PullRequest(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        message_count_max=count,
        size_bytes_max=size_bytes,
        tag_expression=tags,
        wait=Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9)),
    )
    return Call("indexer", f"{_QUEUES}/Pull", request, queue.PullResponse, _pull_result, extra_timeout_s=wait_s)


def subscribe(topic: str, queue_id: int, queue_offset: int, tags: str) -> Call[queue.SubscribeResponse]:
    """Follow a queue from a queue offset on; streams answers."""
    request = queue.SubscribeRequest(topic=topic, queue_id=queue_id, queue_offset=queue_offset, tag_expression=tags)
    return Call("indexer", f"{_QUEUES}/Subscribe", request, queue.SubscribeResponse, same)


def offset_by_time(topic: str, queue_id: int, time: TimeLike, *, is_upper: bool) -> Call[int]:
    """The queue offset for a store time."""
    request = queue.GetOffsetByTimeRequest(
        topic=topic,
        queue_id=queue_id,
        time=to_timestamp(time),
        boundary=queue.BOUNDARY_UPPER if is_upper else queue.BOUNDARY_LOWER,
    )
    path = f"{_QUEUES}/GetOffsetByTime"
    return Call("indexer", path, request, queue.GetOffsetByTimeResponse, lambda response: int(response.queue_offset))


def queue_range(topic: str, queue_id: int) -> Call[Queue]:
    """The bounds of a queue."""
    request = queue.GetQueueRangeRequest(topic=topic, queue_id=queue_id)
    path = f"{_QUEUES}/GetQueueRange"
    return Call("indexer", path, request, queue.GetQueueRangeResponse, lambda response: _queue(response.queue))


def queues(topic: str) -> Pages[Queue]:
    """All queues, or those of one topic."""
    request = queue.ListQueuesRequest(topic=topic, page_size=1000)
    call = Call("indexer", f"{_QUEUES}/ListQueues", request, queue.ListQueuesResponse, same)
    return Pages(call, lambda page: [_queue(entry) for entry in page.queues])


def by_key(topic: str, key: str, start: TimeLike | None, end: TimeLike | None, *, page_size: int) -> Pages[Message]:
    """Messages with a key, newest first."""
    request = query.QueryByKeyRequest(
        topic=topic, key=key, start_time=to_timestamp(start), end_time=to_timestamp(end), page_size=page_size
    )
    call = Call("indexer", f"{_QUERIES}/QueryByKey", request, query.QueryByKeyResponse, same)
    return Pages(call, lambda page: [Message(raw) for raw in page.messages])


def by_time(
    topic: str, start: TimeLike | None, end: TimeLike | None, *, queue_id: int | None, page_size: int
) -> Pages[Message]:
    """Messages by store time."""
    request = query.QueryByTimeRequest(
        topic=topic,
        queue_id=queue_id,
        start_time=to_timestamp(start),
        end_time=to_timestamp(end),
        page_size=page_size,
    )
    call = Call("indexer", f"{_QUERIES}/QueryByTime", request, query.QueryByTimeResponse, same)
    return Pages(call, lambda page: [Message(raw) for raw in page.messages])


def by_id(message_id: str, topic: str) -> Call[Message]:
    """The message with an id."""
    request = query.QueryByIdRequest(message_id=message_id, topic=topic)
    path = f"{_QUERIES}/QueryById"
    return Call("indexer", path, request, query.QueryByIdResponse, lambda response: Message(response.message))


def _pull_result(response: queue.PullResponse) -> PullResult:
    return PullResult(
        status=PullStatus(response.status),
        messages=[Message(raw) for raw in response.messages],
        next_queue_offset=response.next_queue_offset,
        min_queue_offset=response.min_queue_offset,
        max_queue_offset=response.max_queue_offset,
    )


def _queue(entry: queue.Queue) -> Queue:
    first = from_ms(entry.first_store_time.ToMilliseconds()) if entry.HasField("first_store_time") else None
    last = from_ms(entry.last_store_time.ToMilliseconds()) if entry.HasField("last_store_time") else None
    return Queue(entry.topic, entry.queue_id, entry.min_queue_offset, entry.max_queue_offset, first, last)
