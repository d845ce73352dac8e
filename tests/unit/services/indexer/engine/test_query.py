# SPDX-License-Identifier: Apache-2.0
"""Queries by key, time and id: verified, complete, without repetition, page by page."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from libs.filters.property_filter import parse_where
from libs.formats.indexes.index_file import key_hash
from libs.formats.java import string_hash
from libs.formats.records import record
from libs.formats.records.message_id import encode_offset_id
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import BadArgument, BadPageToken, DependencyUnavailable
from services.indexer.engine.answer import query as query_module
from services.indexer.engine.answer.query import FILTERED_COUNT_MAX, KeyQuery, TimeQuery
from services.indexer.engine.answer.time_search import first_at_or_after
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import RecordBlock
from services.indexer.errors import MessageNotFound
from tests.support.fake_log import START_TIME_MS, FakeLog, properties_text
from tests.support.indexer import SMALL, feed, make_indexer
from tests.support.records import BODY_AT_IPV4, IPV4_BORN, IPV6_STORE, make_record


def fed(log: FakeLog, **changes: int) -> Indexer:
    indexer = make_indexer(log, MemoryFs(), dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]
    feed(indexer, log)
    return indexer


async def keys_of(indexer: Indexer, query: KeyQuery, page_size: int = 7) -> list[int]:
    """Physical offsets over all pages."""
    found: list[int] = []
    token = ""
    for _ in range(10_000):
        page = await indexer.answers.queries.by_key(query, page_size=page_size, page_token=token)
        assert len(page.found.sizes) <= page_size
        found += [view.physical_offset for view in page.found.views()]
        token = page.next_page_token
        if not token:
            return found
    raise AssertionError("the pages never end")


async def times_of(indexer: Indexer, query: TimeQuery, page_size: int = 7) -> list[tuple[int, int]]:
    """Queue id and queue offset over all pages."""
    found: list[tuple[int, int]] = []
    token = ""
    for _ in range(10_000):
        page = await indexer.answers.queries.by_time(query, page_size=page_size, page_token=token)
        assert len(page.found.sizes) <= page_size
        found += [(view.queue_id, view.queue_offset) for view in page.found.views()]
        token = page.next_page_token
        if not token:
            return found
    raise AssertionError("the pages never end")


@pytest.mark.parametrize("page_size", [1, 3, 1024])
async def test_a_key_is_found_over_all_files_newest_first(page_size: int) -> None:
    """All messages with the key are found once each, newest first, with any page size; other topics' are not."""
    log = FakeLog()
    for index in range(60):
        log.append("TU"[index % 2], index % 3, keys=f"k{index % 5} x", unique_id=f"U{index}")
    indexer = fed(log)
    wanted = [r.physical_offset for r in reversed(log.records) if r.topic == "T" and b"k3 " in r.properties]
    assert len(wanted) == 6
    assert await keys_of(indexer, KeyQuery("T", "k3"), page_size) == wanted
    assert await keys_of(indexer, KeyQuery("T", "U4"), page_size) == [log.records[4].physical_offset]
    assert await keys_of(indexer, KeyQuery("T", "none"), page_size) == []
    assert await keys_of(indexer, KeyQuery("nowhere", "k3"), page_size) == []


@pytest.mark.parametrize(
    ("start_ms", "end_ms", "wanted"),
    [
        (0, 2**62, range(40)),
        (START_TIME_MS + 10_500, START_TIME_MS + 20_500, range(10, 20)),
        (START_TIME_MS + 11_000, START_TIME_MS + 20_000, range(10, 19)),
        (START_TIME_MS + 11_000, START_TIME_MS + 11_001, [10]),
        (START_TIME_MS + 11_000, START_TIME_MS + 11_000, []),
        (START_TIME_MS + 11_001, START_TIME_MS + 12_000, []),
        (0, START_TIME_MS + 1_000, []),
        (START_TIME_MS + 40_000, 2**62, [39]),
        (START_TIME_MS + 40_001, 2**62, []),
    ],
)
async def test_key_and_time_bounds_are_exact(start_ms: int, end_ms: int, wanted: range) -> None:
    """The range is [start, end) to the millisecond, although the index has whole seconds only."""
    log = FakeLog()
    for index in range(40):
        log.append(queue_id=index % 2, keys="k")
    indexer = fed(log)
    offsets = [log.records[index].physical_offset for index in wanted]
    assert await keys_of(indexer, KeyQuery("T", "k", start_ms, end_ms)) == offsets[::-1]
    by_time = await times_of(indexer, TimeQuery("T", None, start_ms, end_ms))
    assert by_time == sorted((index % 2, index // 2) for index in wanted)


@pytest.mark.parametrize("step_ms", [1, 7, 333, 999, 1001])
async def test_no_key_is_missed_between_the_seconds(step_ms: int) -> None:
    """For any spacing, a range around each single record finds it and only it."""
    log = FakeLog(step_ms=step_ms)
    for _ in range(25):
        log.append(keys="k")
    indexer = fed(log)
    for made in log.records:
        query = KeyQuery("T", "k", made.store_time_ms, made.store_time_ms + 1)
        assert await keys_of(indexer, query) == [made.physical_offset]


async def test_equal_hashes_are_told_apart() -> None:
    """Keys and topics with the same hash share their entries and are still never taken for each other."""
    twins = ["".join(pair) for pair in itertools.product(("Aa", "BB"), repeat=3)]
    assert len({string_hash(twin) for twin in twins}) == 1
    log = FakeLog()
    for index in range(64):
        log.append("T", 0, keys=twins[index % 8])
    # `T#Aa...` and `T#BB...` collide as whole key texts, and a topic may collide with another as well.
    assert key_hash(f"T#{twins[0]}") == key_hash(f"T#{twins[7]}")
    for twin in ("Aa", "BB"):
        log.append(twin, 0, keys="k")
    indexer = fed(log)
    for number, twin in enumerate(twins):
        wanted = [log.records[index].physical_offset for index in range(number, 64, 8)][::-1]
        assert await keys_of(indexer, KeyQuery("T", twin), 3) == wanted
    for twin, made in zip(("Aa", "BB"), log.records[-2:], strict=True):
        assert await keys_of(indexer, KeyQuery(twin, "k")) == [made.physical_offset]


async def test_many_collisions_end_a_page_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key behind many keys with its hash is found, in pages that may be short or empty."""
    monkeypatch.setattr(query_module, "STEP_COUNT_MAX", 3)
    log = FakeLog()
    log.append(keys="Aa")
    for _ in range(300):
        log.append(keys="BB")
    indexer = fed(log, index_entry_capacity=4)
    page = await indexer.answers.queries.by_key(KeyQuery("T", "Aa"), page_size=1, page_token="")
    assert len(page.found.sizes) == 0
    assert page.next_page_token
    assert log.read_count <= 3
    assert await keys_of(indexer, KeyQuery("T", "Aa"), 1) == [0]


@pytest.mark.parametrize("page_size", [1, 2, 5])
async def test_a_record_comes_once_although_it_has_the_key_twice(page_size: int) -> None:
    """`a a` makes two entries (Q40), and UNIQ_KEY may repeat a key: the record is still returned once."""
    log = FakeLog()
    for _ in range(9):
        log.append(keys="a b a a", unique_id="a")
    indexer = fed(log)
    wanted = [made.physical_offset for made in reversed(log.records)]
    assert await keys_of(indexer, KeyQuery("T", "a"), page_size) == wanted


async def test_a_page_ends_at_its_bytes() -> None:
    """Pages are bounded in bytes, and a message larger than a page is returned alone."""
    log = FakeLog()
    for size in (10, 3000, 10, 10, 10):
        log.append(keys="k", body=b"x" * size)
    indexer = fed(log, query_size_bytes_max=1024)
    sizes = []
    token = "start"
    while token:
        page = await indexer.answers.queries.by_key(
            KeyQuery("T", "k"), page_size=100, page_token="" if token == "start" else token
        )
        sizes.append(len(page.found.sizes))
        token = page.next_page_token
    assert sizes == [3, 1, 1]
    assert len(await times_of(indexer, TimeQuery("T", None), 100)) == 5


async def test_messages_that_come_between_two_pages_change_neither() -> None:
    """Pages continue in spite of new messages, rolled files and a rebuilt index."""
    log = FakeLog()
    for _ in range(50):
        log.append(keys="k")
    indexer = fed(log)
    wanted = [made.physical_offset for made in reversed(log.records)]
    page = await indexer.answers.queries.by_key(KeyQuery("T", "k"), page_size=10, page_token="")
    found = [view.physical_offset for view in page.found.views()]
    for _ in range(50):
        log.append(keys="k")
    feed(indexer, log)
    while page.next_page_token:
        indexer.indexes.index.truncate(log.records[20].physical_offset)
        for batch in log.batches(indexer.indexes.index.next_physical_offset):
            indexer.indexes.index.put(batch)
        page = await indexer.answers.queries.by_key(KeyQuery("T", "k"), page_size=10, page_token=page.next_page_token)
        found += [view.physical_offset for view in page.found.views()]
    assert found == wanted


async def test_expired_messages_are_left_out() -> None:
    """Messages that the log has deleted are not found by key, nor by time."""
    log = FakeLog()
    for _ in range(20):
        log.append(keys="k")
    indexer = fed(log)
    log.trim(log.records[12].physical_offset)
    assert len(await keys_of(indexer, KeyQuery("T", "k"))) == 8
    assert await times_of(indexer, TimeQuery("T", None)) == [(0, index) for index in range(12, 20)]
    indexer.upkeep.trim.trim(log.min_physical_offset)
    assert await times_of(indexer, TimeQuery("T", None)) == [(0, index) for index in range(12, 20)]


@pytest.mark.parametrize("page_size", [1, 4, 1024])
async def test_by_time_comes_by_queue_and_offset(page_size: int) -> None:
    """The messages of a time range are ordered by queue; with a queue id only its messages are returned."""
    log = FakeLog()
    for index in range(60):
        log.append("T", index % 4)
        log.append("U", 0)
    indexer = fed(log)
    start, end = log.records[20].store_time_ms, log.records[80].store_time_ms
    inside = [r for r in log.records if r.topic == "T" and start <= r.store_time_ms < end]
    wanted = sorted((r.queue_id, r.queue_offset) for r in inside)
    assert await times_of(indexer, TimeQuery("T", None, start, end), page_size) == wanted
    assert await times_of(indexer, TimeQuery("T", 2, start, end), page_size) == [w for w in wanted if w[0] == 2]
    assert await times_of(indexer, TimeQuery("T", 9, start, end), page_size) == []
    assert await times_of(indexer, TimeQuery("nowhere", None, start, end), page_size) == []


async def test_by_time_reads_few_records_to_find_the_start() -> None:
    """The start of a range in a long queue is found with few reads, and not by a scan."""
    log = FakeLog()
    for _ in range(3000):
        log.append()
    indexer = fed(log, queue_file_size_bytes=20 * 1000)
    made = log.records[1777]
    log.read_count = 0
    query = TimeQuery("T", 0, made.store_time_ms, made.store_time_ms + 1)
    assert await times_of(indexer, query) == [(0, 1777)]
    assert log.read_count <= 6


async def test_by_offset_id() -> None:
    """An offset id finds exactly its record; an id with another host or place, or an invalid id, is not found."""
    log = FakeLog()
    log.append()
    made = log.append(store_host=IPV6_STORE)
    indexer = fed(log)
    for kept in log.records:
        found = await indexer.answers.queries.by_offset_id(encode_offset_id(kept.store_host, kept.physical_offset))
        assert [view.physical_offset for view in found.views()] == [kept.physical_offset]
    for wrong in (
        encode_offset_id(made.store_host, made.physical_offset + 1),
        encode_offset_id(made.store_host, log.end_physical_offset),
        encode_offset_id(made.store_host, 2**62),
        encode_offset_id(IPV4_BORN, made.physical_offset),
    ):
        with pytest.raises(MessageNotFound):
            await indexer.answers.queries.by_offset_id(wrong)
    for nonsense in ("", "0A", "x" * 32, "F" * 32, "\u00e9" * 56):
        with pytest.raises(BadArgument) as caught:
            await indexer.answers.queries.by_offset_id(nonsense)
        assert caught.value.field == "message_id"
    log.trim(made.physical_offset)
    with pytest.raises(MessageNotFound):
        await indexer.answers.queries.by_offset_id(encode_offset_id(log.records[0].store_host, 0))


@pytest.mark.parametrize("queue_offset", [0, 1, 5])
async def test_a_record_in_a_body_has_no_id(queue_offset: int) -> None:
    """A valid record inside a body is in no queue, so its id finds no message."""
    log = FakeLog()
    real = log.append("payments", store_host=IPV6_STORE)
    place = log.end_physical_offset + BODY_AT_IPV4
    forged = make_record(
        physical_offset=place, topic="payments", queue_id=0, queue_offset=queue_offset, store_host=IPV6_STORE
    )
    log.append(body=record.encode(forged))
    indexer = fed(log)
    log.records.append(forged)  # the log has the record, too
    with pytest.raises(MessageNotFound):
        await indexer.answers.queries.by_offset_id(encode_offset_id(forged.store_host, place))
    assert await indexer.answers.queries.by_offset_id(encode_offset_id(real.store_host, real.physical_offset))


async def test_by_unique_id() -> None:
    """A unique id finds the newest message that has it as UNIQ_KEY, not a message that has it as a key."""
    log = FakeLog()
    log.append(unique_id="U")
    wanted = log.append(unique_id="U")
    for _ in range(70):
        log.append(keys="U")
    indexer = fed(log)
    found = await indexer.answers.queries.by_unique_id("T", "U")
    assert [view.physical_offset for view in found.views()] == [wanted.physical_offset]
    with pytest.raises(MessageNotFound):
        await indexer.answers.queries.by_unique_id("T", "V")


async def test_tokens_belong_to_their_query() -> None:
    """A token of another query or other arguments, or an invented token, is refused."""
    log = FakeLog()
    for index in range(20):
        log.append(queue_id=index % 2, keys="k l")
    indexer = fed(log)
    queries = indexer.answers.queries
    key_token = (await queries.by_key(KeyQuery("T", "k"), page_size=2, page_token="")).next_page_token
    time_token = (await queries.by_time(TimeQuery("T", None), page_size=2, page_token="")).next_page_token
    for query in (KeyQuery("T", "l"), KeyQuery("U", "k"), KeyQuery("T", "k", 1), KeyQuery("T", "k", 0, 9)):
        with pytest.raises(BadPageToken):
            await queries.by_key(query, page_size=2, page_token=key_token)
    # the last character has unused bits
    flipped = key_token[:-2] + ("A" if key_token[-2] != "A" else "B") + key_token[-1]
    for token in (time_token, flipped, key_token[:-4], "x", "!", "A" * 600, "\u00e9", key_token + "AAAA"):
        with pytest.raises(BadPageToken):
            await queries.by_key(KeyQuery("T", "k"), page_size=2, page_token=token)
    for query in (TimeQuery("T", 0), TimeQuery("T", None, 5), TimeQuery("U", None)):
        with pytest.raises(BadPageToken):
            await queries.by_time(query, page_size=2, page_token=time_token)
    # The page size does not belong to the query.
    page = await queries.by_key(KeyQuery("T", "k"), page_size=5, page_token=key_token)
    assert len(page.found.sizes) == 5


async def test_without_the_log_queries_say_so() -> None:
    """A query that needs records fails with the name of the missing service."""
    log = FakeLog()
    log.append(keys="k")
    indexer = fed(log)
    log.go_down()
    with pytest.raises(DependencyUnavailable) as caught:
        await indexer.answers.queries.by_key(KeyQuery("T", "k"), page_size=5, page_token="")
    assert caught.value.service == "commitlog"


class Meddling(FakeLog):
    """A log that does something behind the reader's back before the n-th read."""

    def __init__(self) -> None:
        super().__init__()
        self.meddle: dict[int, Callable[[], object]] = {}

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """As FakeLog does, and then meddle."""
        found = await super().read(physical_offsets, record_sizes)
        self.meddle.pop(self.read_count, lambda: None)()
        return found


@pytest.mark.parametrize("read_count", range(1, 8))
async def test_a_trim_during_a_query_by_time_hides_nothing_that_is_kept(read_count: int) -> None:
    """If files of a queue are removed during a query, all kept messages are found."""
    log = Meddling()
    for _ in range(2_000):
        log.append("T")
    indexer = fed(log)
    kept = log.records[1_500]
    log.read_count = 0
    log.meddle[read_count] = lambda: indexer.upkeep.trim.trim(kept.physical_offset)
    found = await times_of(indexer, TimeQuery("T", None), page_size=1_024)
    assert set(found) >= {(0, offset) for offset in range(1_500, 2_000)}
    assert len(found) == len(set(found))


@pytest.mark.parametrize("end", [0, 1, 1_000])
async def test_a_search_by_time_ends_when_the_queue_shrinks(end: int) -> None:
    """If a queue loses its tail during a search, the rest is searched, with few reads."""
    log = Meddling()
    for _ in range(2_000):
        log.append("T")
    indexer = fed(log)
    queue = indexer.indexes.queues.find("T", 0)
    assert queue is not None
    log.read_count = 0
    bound = log.records[end].physical_offset
    log.meddle[1] = lambda: indexer.indexes.queues.truncate(bound)
    assert await first_at_or_after(queue, log, log.records[-1].store_time_ms) == end
    assert log.read_count < 10


WHERE = parse_where("price > 10 AND KEYS CONTAINS 'k'", field="where")


def priced(count: int) -> FakeLog:
    """A log whose messages have a key, and a property that passes WHERE for every tenth of them."""
    log = FakeLog()
    for index in range(count):
        log.append(queue_id=index % 2, properties=properties_text(keys="k", price=str(11 if index % 10 == 3 else 9)))
    return log


@pytest.mark.parametrize("page_size", [1, 2, 100])
async def test_properties_decide(page_size: int) -> None:
    """A query returns only messages that pass, over all pages; a token is for a single filter."""
    log = priced(100)
    indexer = fed(log)
    wanted = [made for made in log.records if b"price\x0111\x02" in made.properties]
    by_key = await keys_of(indexer, KeyQuery("T", "k", where=WHERE), page_size)
    assert by_key == [made.physical_offset for made in reversed(wanted)]
    start, end = log.records[20].store_time_ms, log.records[90].store_time_ms
    by_time = await times_of(indexer, TimeQuery("T", None, start, end, WHERE), page_size)
    inside = [(made.queue_id, made.queue_offset) for made in wanted if start <= made.store_time_ms < end]
    assert by_time == sorted(inside)
    page = await indexer.answers.queries.by_time(TimeQuery("T", None, where=WHERE), page_size=1, page_token="")
    with pytest.raises(BadPageToken):
        await indexer.answers.queries.by_time(TimeQuery("T", None), page_size=1, page_token=page.next_page_token)


async def test_a_page_of_little_that_passes_ends_early() -> None:
    """A page reads a bounded number of messages, and may be empty; the next page continues there."""
    log = FakeLog()
    for _ in range(FILTERED_COUNT_MAX + 300):
        log.append(properties=properties_text(price="9"))
    log.append(properties=properties_text(keys="k", price="11"))
    indexer = fed(log)
    query = TimeQuery("T", None, where=WHERE)
    page = await indexer.answers.queries.by_time(query, page_size=5, page_token="")
    assert len(page.found.sizes) == 0
    assert page.next_page_token
    page = await indexer.answers.queries.by_time(query, page_size=5, page_token=page.next_page_token)
    assert [view.queue_offset for view in page.found.views()] == [FILTERED_COUNT_MAX + 300]
