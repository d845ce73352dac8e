# SPDX-License-Identifier: Apache-2.0
"""Lists of queues, which are collected in steps."""

import asyncio

import pytest
from reput.indexer.v1 import queue_service_pb2
from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest, ListQueuesResponse

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
