# SPDX-License-Identifier: Apache-2.0
"""Lists of queues, which are made in steps."""

import asyncio

import pytest
from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest

from services.indexer.errors import Incomplete
from services.indexer.rpc.queue_servicer import STEP_QUEUE_COUNT, QueueServicer
from tests.support.fake_log import FakeLog
from tests.unit.services.indexer.support import feed, make_indexer


async def test_a_list_that_a_rebuild_comes_into() -> None:
    """It would lack the queues that are gone meanwhile: nobody gets it."""
    log = FakeLog()
    for queue_id in range(3 * STEP_QUEUE_COUNT):
        log.append("T", queue_id)
    indexer = make_indexer(log)
    feed(indexer, log)
    servicer = QueueServicer(indexer, stream_count_max=1)
    request = ListQueuesRequest(page_size=1_000)
    assert len((await servicer.ListQueues(request, None)).queues) == 3 * STEP_QUEUE_COUNT
    listing = asyncio.create_task(servicer.ListQueues(request, None))
    await asyncio.sleep(0)  # its first step
    indexer.completeness.lose()
    indexer.queues.detach()
    with pytest.raises(Incomplete):
        await listing
