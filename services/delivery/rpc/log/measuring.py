# SPDX-License-Identifier: Apache-2.0
"""Parts of queues as requests of the Indexer's MeasureQueues, within the limits that queue_service.proto names."""

from collections.abc import Iterator, Sequence

from reput.indexer.v1.queue_service_pb2 import MeasureQueuesRequest, QueuePart

from libs.formats.limits import INT64_MAX
from services.delivery.engine.ports.messages import Part

PART_COUNT_MAX, OFFSET_COUNT_MAX = 1_000, 10_000


def pieces(part: Part) -> Iterator[QueuePart]:
    """Yield a part in pieces that requests have room for. The first piece asks for the time."""
    for first in range(0, max(len(part.others), 1), OFFSET_COUNT_MAX):
        yield QueuePart(
            topic=part.topic,
            queue_id=part.queue_id,
            start_queue_offset=INT64_MAX if first else part.start,
            queue_offsets=part.others[first : first + OFFSET_COUNT_MAX],
            time_queue_offset=None if first else part.oldest,
        )


def measure_request(left: Sequence[QueuePart]) -> MeasureQueuesRequest:
    """Return a request for the first of these pieces, as many as it has room for."""
    request, offset_count = MeasureQueuesRequest(), 0
    for piece in left[:PART_COUNT_MAX]:
        offset_count += len(piece.queue_offsets)
        if offset_count > OFFSET_COUNT_MAX:
            break
        request.parts.append(piece)
    return request
