# SPDX-License-Identifier: Apache-2.0
"""Measures of many and of large parts of queues, which take several calls of a real Indexer's servicer."""

from services.delivery.engine.ports.messages import Measure, Part
from services.delivery.rpc.log.index_client import IndexClient
from services.indexer.rpc.error_table import ERROR_TABLE
from services.indexer.rpc.queue_servicer import PART_COUNT_MAX, SIZE_OFFSET_COUNT_MAX, QueueServicer
from tests.support.calls import connection_to
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer

MESSAGE_COUNT = SIZE_OFFSET_COUNT_MAX + 500


async def test_parts_beyond_the_limits_of_a_call() -> None:
    """Each part is measured once, whether it has too many offsets for a call, or there are too many parts."""
    log = FakeLog()
    for number in range(MESSAGE_COUNT):
        log.append("T", 0, body=b"x" * (number % 7))
    indexer = make_indexer(log)
    feed(indexer, log)
    services = {"reput.indexer.v1.QueueService": QueueServicer(indexer.answers, stream_count_max=1)}
    client = IndexClient(connection_to(lambda: services, table=ERROR_TABLE))
    sizes, times = [one.size_bytes for one in log.records], [one.store_time_ms for one in log.records]
    small = [Part("T", 0, at, (), at) for at in range(MESSAGE_COUNT - PART_COUNT_MAX - 10, MESSAGE_COUNT)]
    large = Part("T", 0, MESSAGE_COUNT - 1, range(MESSAGE_COUNT - 1), 0)
    found = await client.measures([large, *small, large, Part("gone", 3, 0, [1], 0)])
    assert found[0] == found[-2] == Measure(sum(sizes), times[0])
    assert found[1:-2] == [Measure(sum(sizes[part.start :]), times[part.start]) for part in small]
    assert found[-1] == Measure(0, None)
    assert await client.measures([]) == []
