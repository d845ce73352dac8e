# SPDX-License-Identifier: Apache-2.0
"""Waiting for a record: the sender finds its message from then on, or gets the indexed offset."""

import asyncio

import pytest

from libs.requests.errors import Stopping
from services.indexer.engine.answer.query import KeyQuery
from services.indexer.errors import NotIndexed
from tests.support.fake_log import FakeLog, properties_text
from tests.support.indexer import make_indexer, running
from tests.support.patience import LIMIT_S, eventually

ALWAYS_MS = 1 << 62


async def test_what_was_waited_for_is_found() -> None:
    """Each message is found by its key and in its queue after the wait, if it arrived before it or during it."""
    log = FakeLog()
    async with running(log) as indexer, asyncio.timeout(LIMIT_S):
        for number in range(20):
            wait = asyncio.create_task(indexer.indexes.wait_for(log.end_physical_offset, LIMIT_S))
            await asyncio.sleep(0)
            assert not wait.done()
            record = log.append(properties=properties_text(KEYS=f"k{number}"))
            await wait
            await indexer.indexes.wait_for(record.physical_offset, 0.0)
            query = KeyQuery("T", f"k{number}", 0, ALWAYS_MS)
            page = await indexer.answers.queries.by_key(query, page_size=1, page_token="")
            assert [view.physical_offset for view in page.found.views()] == [record.physical_offset]


async def test_a_wait_that_was_too_short_says_how_far_it_is() -> None:
    """NotIndexed has the indexed offset, the end of the log, and the target, the record that begins there."""
    log = FakeLog()
    log.append()
    async with running(log) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        with pytest.raises(NotIndexed) as caught:
            await indexer.indexes.wait_for(log.end_physical_offset, 0.01)
        assert (caught.value.indexed, caught.value.target) == (log.end_physical_offset, log.end_physical_offset + 1)


async def test_a_wait_ends_with_the_service() -> None:
    """A wait ends when the service stops, because nothing is indexed any more."""
    indexer = make_indexer(FakeLog())
    wait = asyncio.create_task(indexer.indexes.wait_for(0, LIMIT_S))
    await asyncio.sleep(0)
    assert not wait.done()
    indexer.drain()
    with pytest.raises(Stopping):
        await wait
