# SPDX-License-Identifier: Apache-2.0
"""Messages of a deleted topic: no reader gets them, whether the topic is created again or not."""

import pytest

from libs.formats.records.message_id import encode_offset_id
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.answer.plan import ScanScope
from services.indexer.engine.answer.pull import PullStatus
from services.indexer.engine.answer.query import KeyQuery, TimeQuery
from services.indexer.engine.indexer import Indexer
from services.indexer.errors import MessageNotFound, OffsetTrimmed
from tests.support.fake_log import FakeLog
from tests.support.indexer import make_indexer, running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_online_rebuild import caught_up
from tests.unit.services.indexer.engine.test_pull import query
from tests.unit.services.indexer.engine.test_query import keys_of, times_of
from tests.unit.services.indexer.engine.test_scan import rows, scan

OLD_COUNT = 5


def grown() -> FakeLog:
    """A log with messages of two topics, all with the same key."""
    log = FakeLog()
    for number in range(OLD_COUNT):
        log.append("T", keys="k", unique_id=f"U{number}")
        log.append("other", keys="k")
    return log


async def deleted(indexer: Indexer, log: FakeLog) -> None:
    """Delete the topic, and wait until the Indexer has received it."""
    log.delete("T")
    await eventually(lambda: indexer.indexes.history.topic_begins == log.topic_begins)


async def shown(indexer: Indexer) -> dict[str, list[int]]:
    """The queue offsets of the topic that each kind of reader gets."""
    found, queries = {}, indexer.answers.queries
    queue = indexer.indexes.queues.find("T", 0)
    assert queue is not None
    pulled = await indexer.answers.puller.pull(query(queue.min_queue_offset), wait_s=0)
    found["pull"] = [view.queue_offset for view in pulled.found.views()]
    by_place = {view.physical_offset: view.queue_offset for view in pulled.found.views()}
    found["key"] = sorted(by_place.get(place, -1) for place in await keys_of(indexer, KeyQuery("T", "k")))
    found["time"] = [place for _, place in await times_of(indexer, TimeQuery("T", None))]
    found["scan"] = [
        place
        for partition in await indexer.answers.planner.plan(ScanScope(("T",)))
        for _, _, place in rows(await scan(indexer, partition))
    ]
    keyed = await indexer.answers.planner.plan(ScanScope(("T",), keys=("k",)))
    found["scan of keys"] = [place for one in keyed for _, _, place in rows(await scan(indexer, one))]
    ids = []
    for number in range(2 * OLD_COUNT):
        try:
            (view,) = (await queries.by_unique_id("T", f"U{number}")).views()
        except MessageNotFound:
            continue
        ids.append(view.queue_offset)
    found["id"] = ids
    return found


KINDS = ("pull", "key", "time", "scan", "scan of keys", "id")


def in_each(places: list[int]) -> dict[str, list[int]]:
    """These queue offsets for each kind of reader."""
    return dict.fromkeys(KINDS, places)


async def test_no_reader_gets_a_message_of_a_deleted_topic() -> None:
    """Readers get only the new messages of a topic that is created again, also after a start without the log."""
    log, fs = grown(), MemoryFs()
    async with running(log, fs) as indexer:
        await caught_up(indexer, log)
        assert await shown(indexer) == in_each(list(range(OLD_COUNT)))
        await deleted(indexer, log)
        assert await shown(indexer) == in_each([])
        log.append("T", keys="k", unique_id=f"U{OLD_COUNT}")
        await caught_up(indexer, log)
        assert await shown(indexer) == in_each([OLD_COUNT])
        assert len(await keys_of(indexer, KeyQuery("other", "k"))) == OLD_COUNT
    indexer = make_indexer(log, fs)
    assert await shown(indexer) == in_each([OLD_COUNT])
    await indexer.close()


async def test_a_place_in_the_deleted_part_is_like_an_expired_one() -> None:
    """A pull reports where the messages begin now; a scan that was planned before fails as for expired messages."""
    log = grown()
    async with running(log) as indexer:
        await caught_up(indexer, log)
        (partition,) = await indexer.answers.planner.plan(ScanScope(("T",)))
        await deleted(indexer, log)
        log.append("T")
        await caught_up(indexer, log)
        pulled = await indexer.answers.puller.pull(query(0), wait_s=0)
        assert pulled.status is PullStatus.OFFSET_TOO_SMALL
        assert (pulled.next_queue_offset, pulled.min_queue_offset) == (OLD_COUNT, OLD_COUNT)
        with pytest.raises(OffsetTrimmed):
            await scan(indexer, partition)


async def test_an_id_of_a_place_in_the_log() -> None:
    """An offset id finds no message of the deleted topic, although the index of keys has it."""
    log = grown()
    place = log.records[0]
    async with running(log) as indexer:
        await caught_up(indexer, log)
        message_id = encode_offset_id(place.store_host, place.physical_offset)
        await indexer.answers.queries.by_offset_id(message_id)
        await deleted(indexer, log)
        with pytest.raises(MessageNotFound):
            await indexer.answers.queries.by_offset_id(message_id)


async def test_a_rebuild_does_not_bring_them_back() -> None:
    """After a rebuild the units of the deleted topic exist, and no reader gets their messages."""
    log = grown()
    async with running(log) as indexer:
        await caught_up(indexer, log)
        await deleted(indexer, log)
        log.append("T", keys="k", unique_id=f"U{OLD_COUNT}")
        await caught_up(indexer, log)
        indexer.upkeep.rebuild.begin()
        assert [state async for state in indexer.upkeep.rebuild.watch()][-1].is_done
        await caught_up(indexer, log)
        assert await shown(indexer) == in_each([OLD_COUNT])


async def test_a_log_that_lost_the_deletion_has_the_messages() -> None:
    """If the log lost the deletion, the messages are visible again, as the log's last report counts.

    An example is a failover to a copy that had not received it.
    """
    log = grown()
    async with running(log) as indexer:
        await caught_up(indexer, log)
        await deleted(indexer, log)
        assert await shown(indexer) == in_each([])
        log.topic_begins = {}
        log.epoch += 1
        await eventually(lambda: not indexer.indexes.history.topic_begins)
        await caught_up(indexer, log)
        assert await shown(indexer) == in_each(list(range(OLD_COUNT)))
