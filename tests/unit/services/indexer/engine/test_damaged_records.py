# SPDX-License-Identifier: Apache-2.0
"""A damaged record blocks no other record: answers end before it, and fail if they would begin with it."""

import pytest

from libs.filters.property_filter import parse_where
from libs.formats.limits import MIB
from libs.requests.errors import RecordDamaged
from services.indexer.engine.answer.plan import ScanPartition, ScanRange
from services.indexer.engine.answer.pull import PullQuery, PullStatus
from services.indexer.engine.answer.query import KeyQuery, TimeQuery
from services.indexer.engine.answer.scan import ScanFilter
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.statistics import statistics
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer

COUNT, DAMAGED = 10, 4


def damaged(tag: str = "A") -> tuple[Indexer, FakeLog]:
    """A queue of records, of which one can't be read."""
    log = FakeLog()
    for _ in range(COUNT):
        log.append(tag=tag, keys="k")
    indexer = make_indexer(log)
    feed(indexer, log)
    log.damaged.add(log.records[DAMAGED].physical_offset)
    return indexer, log


def query(queue_offset: int, *, where: str = "", tags: str = "*") -> PullQuery:
    """All messages from this queue offset on."""
    passing = parse_tag_expression(tags, field="tags"), parse_where(where, field="where")
    return PullQuery("T", 0, queue_offset, 100, MIB, *passing)


async def test_a_pull_ends_before_it() -> None:
    """A pull ends before the damaged record; the next pull fails with its place, which the status has, too.

    Pulls behind it work.
    """
    indexer, log = damaged()
    pull = indexer.answers.puller.pull
    first = await pull(query(0), wait_s=0)
    assert (first.status, len(first.found.sizes), first.next_queue_offset) == (PullStatus.FOUND, DAMAGED, DAMAGED)
    for _ in range(2):
        with pytest.raises(RecordDamaged) as refused:
            await pull(query(DAMAGED), wait_s=0)
        assert refused.value.position == log.records[DAMAGED].physical_offset
    assert (await pull(query(DAMAGED + 1), wait_s=0)).next_queue_offset == COUNT
    (place,) = indexer.answers.damage.places()
    assert (place.position, place.reason) == (log.records[DAMAGED].physical_offset, "checksum")
    assert statistics(indexer).damaged_record_count == 1


async def test_what_does_not_pass_is_stepped_over_up_to_it() -> None:
    """A pull with a filter steps over other records up to the damaged record, which then fails it once."""
    indexer, _ = damaged()
    stepped = await indexer.answers.puller.pull(query(0, where="colour = 'red'"), wait_s=0)
    assert (stepped.status, stepped.next_queue_offset) == (PullStatus.NO_MATCHED_MESSAGE, DAMAGED)
    with pytest.raises(RecordDamaged):
        await indexer.answers.puller.pull(query(DAMAGED, where="colour = 'red'"), wait_s=0)
    unread = await indexer.answers.puller.pull(query(0, tags="B"), wait_s=0)
    assert unread.next_queue_offset == COUNT


async def test_a_scan_ends_before_it() -> None:
    """The chunks have the ranges that were read, so that a reader resumes without loss."""
    indexer, _ = damaged()
    partition = ScanPartition(ranges=(ScanRange("T", 0, 0, COUNT),))
    chunks = indexer.answers.scanner.scan(partition, ScanFilter(), chunk_size_bytes=MIB)
    chunk = await anext(chunks)
    assert (len(chunk.found.sizes), chunk.range) == (DAMAGED, ScanRange("T", 0, 0, DAMAGED))
    with pytest.raises(RecordDamaged):
        await anext(chunks)


async def test_pages_of_queries_end_before_it() -> None:
    """A page ends before the damaged record: by time with the older messages, by key with the newer messages."""
    indexer, _ = damaged()
    queries = indexer.answers.queries
    page = await queries.by_time(TimeQuery("T", 0), page_size=100, page_token="")
    assert [view.queue_offset for view in page.found.views()] == list(range(DAMAGED))
    with pytest.raises(RecordDamaged):
        await queries.by_time(TimeQuery("T", 0), page_size=100, page_token=page.next_page_token)
    found: list[int] = []
    page = await queries.by_key(KeyQuery("T", "k"), page_size=100, page_token="")
    while len(found) < COUNT - 1 - DAMAGED:
        found += [view.queue_offset for view in page.found.views()]
        token = page.next_page_token
        if len(found) < COUNT - 1 - DAMAGED:
            page = await queries.by_key(KeyQuery("T", "k"), page_size=100, page_token=token)
    assert found == list(range(COUNT - 1, DAMAGED, -1))
    with pytest.raises(RecordDamaged):
        await queries.by_key(KeyQuery("T", "k"), page_size=100, page_token=token)
