# SPDX-License-Identifier: Apache-2.0
"""Lists of queues, which are collected in steps."""

import asyncio

import pytest
from reput.indexer.v1 import queue_service_pb2
from reput.indexer.v1.queue_service_pb2 import GetQueueRangeRequest, ListQueuesRequest, ListQueuesResponse

from libs.formats.limits import MIB
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT
from services.indexer.errors import Incomplete
from services.indexer.rpc.needs import around
from services.indexer.rpc.queue_servicer import QueueServicer
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer


async def test_a_list_that_a_rebuild_comes_into() -> None:
    """A list during which a rebuild begins is refused, because it would lack the dropped queues."""
    log = FakeLog()
    for queue_id in range(3 * STEP_QUEUE_COUNT):
        log.append("T", queue_id)
    indexer = make_indexer(log)
    feed(indexer, log)
    servicer = QueueServicer(indexer.answers, stream_count_max=1)
    request = ListQueuesRequest(page_size=1_000)
    assert len((await servicer.ListQueues(request, None)).queues) == 3 * STEP_QUEUE_COUNT
    (service,) = queue_service_pb2.DESCRIPTOR.services_by_name.values()
    block = around(service, indexer.follow.completeness)["ListQueues"]

    async def listed() -> ListQueuesResponse:
        with block():
            return await servicer.ListQueues(request, None)

    listing = asyncio.create_task(listed())
    await asyncio.sleep(0)  # its first step
    indexer.follow.completeness.lose()
    indexer.indexes.queues.detach()
    with pytest.raises(Incomplete):
        await listing


async def test_lists_have_times_if_they_are_wanted() -> None:
    """The times at the ends of each queue are those that GetQueueRange gives; a queue without messages has none."""
    log = FakeLog()
    for number in range(6):
        log.append("T", number % 2)
    indexer = make_indexer(log)
    feed(indexer, log)
    servicer = QueueServicer(indexer.answers, stream_count_max=1)
    plain = (await servicer.ListQueues(ListQueuesRequest(), None)).queues
    timed = (await servicer.ListQueues(ListQueuesRequest(wants_times=True), None)).queues
    ranges = [await servicer.GetQueueRange(GetQueueRangeRequest(topic="T", queue_id=at), None) for at in (0, 1)]
    assert list(timed) == [one.queue for one in ranges]
    assert all(one.first_store_time.ToMilliseconds() < one.last_store_time.ToMilliseconds() for one in timed)
    assert not any(one.HasField("first_store_time") or one.HasField("last_store_time") for one in plain)


async def test_a_page_with_times_ends_after_a_size() -> None:
    """Large messages are not all read for one page: each queue is in exactly one of the pages, with its times."""
    log = FakeLog()
    for queue_id in range(8):
        log.append("T", queue_id, body=bytes(MIB))
    indexer = make_indexer(log)
    feed(indexer, log)
    servicer = QueueServicer(indexer.answers, stream_count_max=1)
    counts, request = list[int](), ListQueuesRequest(page_size=5, wants_times=True)
    seen = list[int]()
    while not counts or request.page_token:
        page = await servicer.ListQueues(request, None)
        assert all(queue.HasField("first_store_time") for queue in page.queues)
        seen += [queue.queue_id for queue in page.queues]
        counts.append(len(page.queues))
        request.page_token = page.next_page_token
    assert (seen, counts) == (list(range(8)), [1] * 8)
