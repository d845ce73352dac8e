# SPDX-License-Identifier: Apache-2.0
"""Plans: the partitions that the Indexer cuts, for any number of topics, and an order of them."""

from collections.abc import Iterator, Sequence

from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest, ListQueuesResponse, Queue
from reput.indexer.v1.scan_service_pb2 import PlanScanRequest, ScanPartition, ScanRange

from reput_client.core.call import PAGE_SIZE, Call
from reput_client.frames.calls import Servers, run
from reput_client.frames.columns import bad_answer

TOPIC_COUNT_MAX = 1_000
"""Most topics of a plan; the Indexer's own limit."""
RANGE_COUNT_MAX = 10_000
"""Most ranges that are put together into a partition, which each of its calls names."""


def plan(servers: Servers, request: PlanScanRequest) -> list[ScanPartition]:
    """Return the partitions of a plan, which may have more topics than a call. Raises CallEnded."""
    found: list[ScanPartition] = []
    topics = list(request.topics)
    for first in range(0, len(topics), TOPIC_COUNT_MAX):
        part = PlanScanRequest()
        part.CopyFrom(request)
        if len(topics) > TOPIC_COUNT_MAX:
            chosen = topics[first : first + TOPIC_COUNT_MAX]
            ranges = [asked for asked in request.ranges if asked.topic in set(chosen)]
            del part.topics[:], part.ranges[:]
            part.topics.extend(chosen)
            part.ranges.extend(ranges)
        found += run(servers, Call(part, lambda response: list(response.partitions)))
    return found


def queues_of(servers: Servers, topic: str) -> Iterator[Queue]:
    """Yield the queues of a topic, or of all topics for an empty name. Raises CallEnded."""
    request = ListQueuesRequest(topic=topic, page_size=PAGE_SIZE)
    while True:
        answer: ListQueuesResponse = run(servers, Call(request))
        yield from answer.queues
        request.page_token = answer.next_page_token
        if not request.page_token:
            return


def in_order(partitions: Sequence[ScanPartition], topics: Sequence[str]) -> list[ScanPartition]:
    """Return partitions with the same entries, ordered by topic (as `topics` has them), queue id and queue offset.

    The Indexer packs small queues together in any order. Partitions of keys stay as they are. Raises BadAnswerError.
    """
    if any(partition.keys for partition in partitions):
        return list(partitions)
    places = {topic: place for place, topic in enumerate(topics)}
    ranges = [planned for partition in partitions for planned in partition.ranges]
    for planned in ranges:
        if planned.topic not in places:
            raise bad_answer(f"a plan has topic {planned.topic!r}, which was not asked for")
    row_count_max = max((partition.row_count for partition in partitions), default=0)
    ordered: list[ScanPartition] = []
    for planned in sorted(ranges, key=lambda one: (places[one.topic], one.queue_id, one.start_queue_offset)):
        row_count = _row_count(planned)
        is_room = ordered and ordered[-1].row_count + row_count <= row_count_max
        if not is_room or len(ordered[-1].ranges) >= RANGE_COUNT_MAX:
            ordered.append(ScanPartition())
        ordered[-1].ranges.append(planned)
        ordered[-1].row_count += row_count
    return ordered


def _row_count(planned: ScanRange) -> int:
    return planned.end_queue_offset - planned.start_queue_offset
