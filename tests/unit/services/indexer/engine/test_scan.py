# SPDX-License-Identifier: Apache-2.0
"""PlanScan and Scan: every row in exactly one partition and frame, filters as requested, resumable, bounded."""

import asyncio
import dataclasses
import itertools
import time

import pyarrow as pa
import pytest
from msgspec import structs

from libs.filters.property_filter import parse_where
from libs.formats.limits import INT64_MAX
from libs.formats.records import properties
from libs.formats.records.message_id import encode_offset_id
from libs.formats.records.record import Record
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import BadArgument, DependencyUnavailable, TopicNotFound, WindowFull
from services.indexer.engine.answer import plan as scan_plan
from services.indexer.engine.answer.frames import (
    COLUMNS,
    COMPRESSIONS,
    DEFAULT_COLUMNS,
    FrameEncoder,
    column_types,
)
from services.indexer.engine.answer.plan import ScanPartition, ScanRange, ScanScope
from services.indexer.engine.answer.scan import ScanChunk, ScanFilter
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import NO_RECORDS
from services.indexer.engine.statistics import statistics
from services.indexer.errors import OffsetBeyondEnd, OffsetTrimmed
from tests.support.fake_log import FakeLog, properties_text
from tests.support.indexer import SMALL, feed, make_indexer
from tests.support.records import IPV6_STORE


def fed(log: FakeLog, **changes: int) -> Indexer:
    indexer = make_indexer(log, MemoryFs(), dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]
    feed(indexer, log)
    return indexer


def filled(count: int = 120) -> FakeLog:
    log = FakeLog()
    for index in range(count):
        log.append("TU"[index % 2], index % 3, tag="abc"[index % 3], keys=f"k{index % 10} x", body=bytes(index % 50))
    return log


async def scan(
    indexer: Indexer, partition: ScanPartition, scan_filter: ScanFilter | None = None, size: int = 1 << 20
) -> list[ScanChunk]:
    return [
        chunk
        async for chunk in indexer.answers.scanner.scan(partition, scan_filter or ScanFilter(), chunk_size_bytes=size)
    ]


def rows(chunks: list[ScanChunk]) -> list[tuple[bytes, int, int]]:
    return [(view.topic, view.queue_id, view.queue_offset) for chunk in chunks for view in chunk.found.views()]


def tags(expression: str) -> ScanFilter:
    return ScanFilter(parse_tag_expression(expression, field="f"))


async def planned_rows(indexer: Indexer, scope: ScanScope, scan_filter: ScanFilter) -> list[tuple[bytes, int, int]]:
    found = []
    for partition in await indexer.answers.planner.plan(scope):
        found += rows(await scan(indexer, partition, scan_filter))
    return found


def place(made: Record) -> tuple[bytes, int, int]:
    return made.topic.encode(), made.queue_id, made.queue_offset


@pytest.mark.parametrize("count_min", [1, 2, 5, 6, 7, 13, 60, 61, 200])
@pytest.mark.parametrize("row_count_max", [1, 7, 10, 1_000_000])
async def test_every_row_is_in_one_partition(count_min: int, row_count_max: int) -> None:
    """With any bounds a plan covers each entry once, in enough and small enough partitions."""
    log = filled()
    indexer = fed(log)
    scope = ScanScope(("T",), partition_count_min=count_min, row_count_max=row_count_max)
    partitions = await indexer.answers.planner.plan(scope)
    covered = [
        (one.queue_id, offset)
        for partition in partitions
        for one in partition.ranges
        for offset in range(one.start_queue_offset, one.end_queue_offset)
    ]
    assert sorted(covered) == [(queue_id, offset) for queue_id in range(3) for offset in range(20)]
    assert len(covered) == 60
    assert len(partitions) >= min(count_min, 60)
    for partition in partitions:
        assert partition.row_count == sum(one.row_count for one in partition.ranges) <= row_count_max
        assert partition.size_bytes > 0


async def test_small_queues_are_packed() -> None:
    """Many nearly empty queues are packed into few, evenly filled partitions, because each costs a task."""
    log = FakeLog()
    for index in range(640):
        log.append(queue_id=index % 64)
    indexer = fed(log)
    sizes = [p.row_count for p in await indexer.answers.planner.plan(ScanScope(("T",), partition_count_min=4))]
    assert sizes == [160] * 4
    assert len(await indexer.answers.planner.plan(ScanScope(("T",)))) == 1


async def test_partitions_are_bounded_in_bytes() -> None:
    """Large records make smaller partitions."""
    log = FakeLog()
    for _ in range(50):
        log.append(body=bytes(900))
    size = log.records[0].size_bytes
    partitions = await fed(log).answers.planner.plan(ScanScope(("T",), size_bytes_max=size * 5))
    assert [partition.row_count for partition in partitions] == [5] * 10
    assert all(partition.size_bytes == size * 5 for partition in partitions)


async def test_plans_are_cut_to_queues_ranges_and_times() -> None:
    """Queues, ranges and times narrow a plan exactly; topics without messages and empty ranges add nothing."""
    log = filled()
    log.topics.add("nowhere")
    indexer = fed(log)
    start, end = log.records[30].store_time_ms, log.records[90].store_time_ms

    async def wanted(scope: ScanScope, inside: object) -> None:
        found = await planned_rows(
            indexer, scope, ScanFilter(start_time_ms=scope.start_time_ms, end_time_ms=scope.end_time_ms)
        )
        assert found == sorted(place(made) for made in log.records if inside(made))  # type: ignore[operator]

    await wanted(ScanScope(("T", "U", "nowhere")), lambda made: True)
    await wanted(ScanScope(("T",), frozenset({0, 2})), lambda m: m.topic == "T" and m.queue_id != 1)
    times = ScanScope(("T",), start_time_ms=start, end_time_ms=end)
    await wanted(times, lambda m: m.topic == "T" and start <= m.store_time_ms < end)
    cut = ScanScope(("T",), ranges=(ScanRange("T", 1, 5, 9), ScanRange("T", 2, 18, INT64_MAX)))
    await wanted(
        cut,
        lambda m: (
            m.topic == "T"
            and (
                m.queue_id == 0
                or (m.queue_id == 1 and 5 <= m.queue_offset < 9)
                or (m.queue_id == 2 and m.queue_offset >= 18)
            )
        ),
    )
    assert (
        await indexer.answers.planner.plan(ScanScope(("T",), ranges=tuple(ScanRange("T", q, 3, 3) for q in range(3))))
        == []
    )
    assert await indexer.answers.planner.plan(ScanScope(("nowhere",))) == []


@pytest.mark.parametrize("keys", [(), ("k1",)])
@pytest.mark.parametrize("missing", [ScanRange("T", 2, 18, 21), ScanRange("T", 7, 0, 9)])
async def test_an_end_that_is_not_indexed_here(keys: tuple[str, ...], missing: ScanRange) -> None:
    """An end that is not indexed here is refused, because fewer rows would be lost without notice.

    The caller may have seen this end at another member's Indexer.
    """
    indexer = fed(filled())
    with pytest.raises(OffsetBeyondEnd):
        await indexer.answers.planner.plan(ScanScope(("T",), ranges=(missing,), keys=keys))
    partition = ScanPartition(ranges=(missing,), key_topic="T" if keys else "", keys=keys)
    with pytest.raises(OffsetBeyondEnd):
        async for _ in indexer.answers.scanner.scan(partition, ScanFilter(), chunk_size_bytes=1 << 20):
            pass


@pytest.mark.parametrize("keys", [(), ("k1",)])
async def test_a_topic_that_nobody_made_is_no_empty_result(keys: tuple[str, ...]) -> None:
    """A misspelt topic fails the plan with its name; a topic that exists without messages does not."""
    log = filled()
    indexer = fed(log)
    with pytest.raises(TopicNotFound) as caught:
        await indexer.answers.planner.plan(ScanScope(("T", "flihgts"), keys=keys))
    assert caught.value.topic == "flihgts"
    log.topics.add("flihgts")
    assert await indexer.answers.planner.plan(ScanScope(("flihgts",), row_count_max=1)) == []
    log.go_down()
    with pytest.raises(DependencyUnavailable):
        await indexer.answers.planner.plan(ScanScope(("nowhere",)))
    assert len(await indexer.answers.planner.plan(ScanScope(("T",)))) == 1


@pytest.mark.parametrize(
    ("field", "bounds"), [("partition_row_count_max", (1, 1 << 30)), ("partition_size_bytes_max", (1 << 30, 1))]
)
async def test_a_plan_of_too_many_partitions_is_refused(
    monkeypatch: pytest.MonkeyPatch, field: str, bounds: tuple[int, int]
) -> None:
    """A bound that gives too many partitions is refused, and the error names the smallest bound that is accepted."""
    monkeypatch.setattr(scan_plan, "PIECE_COUNT_MAX", 59)
    indexer = fed(filled())
    rows_max, bytes_max = bounds
    with pytest.raises(BadArgument) as caught:
        await indexer.answers.planner.plan(ScanScope(("T",), row_count_max=rows_max, size_bytes_max=bytes_max))
    assert (caught.value.field, caught.value.value) == (field, 1)
    monkeypatch.setattr(scan_plan, "PIECE_COUNT_MAX", 60)
    assert (
        len(await indexer.answers.planner.plan(ScanScope(("T",), row_count_max=rows_max, size_bytes_max=bytes_max)))
        == 60
    )


async def test_a_plan_of_many_ranges_is_quick_and_lets_others_work() -> None:
    """Thousands of small ranges are packed quickly, while the event loop serves other tasks."""
    log = filled(60)
    indexer = fed(log)
    ranges = tuple(ScanRange("T", 0, index % 10, index % 10 + 1) for index in range(10_000))
    turn_count = 0

    async def work() -> None:
        nonlocal turn_count
        while True:
            await asyncio.sleep(0)
            turn_count += 1

    others = asyncio.create_task(work())
    started_s = time.process_time()
    (partition,) = await indexer.answers.planner.plan(ScanScope(("T",), queue_ids=frozenset({0}), ranges=ranges))
    assert partition.row_count == len(partition.ranges) == 10_000
    assert time.process_time() - started_s < 10  # it took minutes when each range summed up all ranges before it
    assert turn_count > 1_000
    others.cancel()


async def test_a_partition_has_no_more_ranges_than_can_be_sent_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition has no more ranges than a request may have, and no row is lost."""
    monkeypatch.setattr(scan_plan, "PARTITION_RANGE_COUNT_MAX", 7)
    ranges = tuple(ScanRange("T", 0, index % 10, index % 10 + 1) for index in range(50))
    plan = await fed(filled(60)).answers.planner.plan(ScanScope(("T",), queue_ids=frozenset({0}), ranges=ranges))
    assert [len(partition.ranges) for partition in plan] == [7] * 7 + [1]
    assert [one for partition in plan for one in partition.ranges] == list(ranges)


async def test_a_scan_without_a_match_lets_others_work() -> None:
    """A filter that drops every unit of a long range does not block the event loop."""
    indexer = fed(filled(1_200))
    partition = ScanPartition(ranges=(ScanRange("T", 0, 0, 200),))
    turn_count = 0

    async def work() -> None:
        nonlocal turn_count
        while True:
            await asyncio.sleep(0)
            turn_count += 1

    others = asyncio.create_task(work())
    assert rows(await scan(indexer, partition, tags("nobody"), size=1)) == []
    assert turn_count >= 200
    others.cancel()


@pytest.mark.parametrize("size", [1, 500, 1 << 20])
async def test_chunks_cover_their_ranges_without_a_hole(size: int) -> None:
    """The ranges of the chunks follow each other from start to end, also if the filter drops all rows."""
    log = filled()
    indexer = fed(log)
    partition = ScanPartition(ranges=(ScanRange("T", 0, 2, 19), ScanRange("U", 1, 0, 20), ScanRange("T", 1, 4, 5)))
    for scan_filter in (ScanFilter(), tags("a"), tags("nobody"), ScanFilter(end_time_ms=log.records[50].store_time_ms)):
        chunks = await scan(indexer, partition, scan_filter, size)
        done = [chunk.range for chunk in chunks]
        for one in partition.ranges:
            mine = [r for r in done if r is not None and (r.topic, r.queue_id) == (one.topic, one.queue_id)]
            edges = [one.start_queue_offset, *(r.end_queue_offset for r in mine)]
            assert [(r.start_queue_offset, r.end_queue_offset) for r in mine] == list(itertools.pairwise(edges))
            assert edges[-1] == one.end_queue_offset
        for chunk in chunks:
            assert chunk.range is not None
            for view in chunk.found.views():
                assert chunk.range.start_queue_offset <= view.queue_offset < chunk.range.end_queue_offset
                assert (view.topic.decode(), view.queue_id) == (chunk.range.topic, chunk.range.queue_id)
                assert scan_filter.passes(view)


async def test_a_scan_resumes_where_it_was() -> None:
    """After any chunk the rest of the ranges gives the rest of the rows."""
    log = filled()
    indexer = fed(log)
    whole = rows(chunks := await scan(indexer, ScanPartition(ranges=(ScanRange("T", 0, 0, 20),)), size=300))
    assert len(chunks) > 5
    for count in range(1, len(chunks)):
        last = chunks[count - 1].range
        assert last is not None
        rest = ScanPartition(ranges=(ScanRange("T", 0, last.end_queue_offset, 20),))
        assert rows(chunks[:count]) + rows(await scan(indexer, rest, size=300)) == whole


async def test_chunks_are_bounded_in_bytes() -> None:
    """A chunk has about the requested bytes of records, except for a single larger record."""
    log = FakeLog()
    for size in [10, 10, 5000, 10, *[200] * 20]:
        log.append(body=bytes(size))
    chunks = await scan(fed(log), ScanPartition(ranges=(ScanRange("T", 0, 0, 24),)), size=1000)
    for chunk in chunks:
        assert len(chunk.found.sizes) == 1 or chunk.found.sizes.sum() <= 1000
    assert len(rows(chunks)) == 24


async def test_what_is_gone_fails_the_scan() -> None:
    """A partition whose rows expired, or are not indexed (again), is an error, never a smaller result."""
    log = filled()
    indexer = fed(log)
    partition = ScanPartition(ranges=(ScanRange("T", 0, 0, 20),))
    with pytest.raises(OffsetBeyondEnd):
        await scan(indexer, ScanPartition(ranges=(ScanRange("T", 0, 0, 21),)))
    with pytest.raises(OffsetBeyondEnd):
        await scan(indexer, ScanPartition(ranges=(ScanRange("V", 0, 0, 1),)))
    log.trim(log.records[13].physical_offset)  # of queue 0, the records 0, 6, 12... are kept from the third on
    with pytest.raises(OffsetTrimmed) as caught:
        await scan(indexer, partition)
    assert (caught.value.value, caught.value.min) == (0, 3)
    indexer.upkeep.trim.trim(log.records[10].physical_offset)
    with pytest.raises(OffsetTrimmed):
        await scan(indexer, partition)
    log.go_down()
    with pytest.raises(DependencyUnavailable):
        await scan(indexer, ScanPartition(ranges=(ScanRange("T", 0, 10, 20),)))
    assert indexer.answers.scanner.count == 0


async def test_keys_are_looked_up() -> None:
    """A scan of keys gives each matching message once, by queue, within the times, tags and ranges."""
    log = filled()
    indexer = fed(log)
    scope = ScanScope(("T",), keys=("k0", "k2", "none", "k0"))
    (partition,) = await indexer.answers.planner.plan(scope)
    assert partition == ScanPartition(key_topic="T", keys=("k0", "k2", "none"))
    wanted = [
        r for r in log.records if r.topic == "T" and {b"k0", b"k2"} & set(properties.keys_of(r.properties))
    ]  # fmt: skip
    chunks = await scan(indexer, partition)
    assert rows(chunks) == sorted(map(place, wanted))
    assert statistics(indexer).scanned_rows_total == len(wanted)
    assert [len({view.queue_id for view in chunk.found.views()}) for chunk in chunks] == [1] * len(chunks)
    assert all(chunk.range is None for chunk in chunks)
    assert sorted(rows(await scan(indexer, partition, size=1))) == sorted(map(place, wanted))
    both = ScanPartition(key_topic="T", keys=("k0", "x"))
    assert len(rows(await scan(indexer, both))) == len({place(r) for r in log.records if r.topic == "T"})
    tagged = [r for r in wanted if b"TAGS\x01a" in r.properties]
    assert rows(await scan(indexer, partition, tags("a"))) == sorted(map(place, tagged))
    start = log.records[60].store_time_ms
    late = [r for r in wanted if r.store_time_ms >= start]
    assert rows(await scan(indexer, partition, ScanFilter(start_time_ms=start))) == sorted(map(place, late))
    (ranged,) = await indexer.answers.planner.plan(structs.replace(scope, queue_ids=frozenset({1})))
    assert rows(await scan(indexer, ranged)) == sorted(place(r) for r in wanted if r.queue_id == 1)


@pytest.mark.parametrize("key_count", [1, 2, 3, 100])
async def test_a_message_with_several_keys_comes_from_one_partition(key_count: int) -> None:
    """With keys spread over partitions in any way, all partitions together give each message once."""
    log = FakeLog()
    for index in range(200):
        log.append("T", index % 3, keys=f"k{index % 7} l{index % 5} m{index % 3}", unique_id=f"U{index}")
    log.append("T", keys="k1 k1", unique_id="k1")
    indexer = fed(log, scan_partition_key_count=key_count)
    keys = ("k3", "none", "m1", "l4", "k0", "m1", "U8", "l2", "k1")
    wanted = [r for r in log.records if set(map(str.encode, keys)) & set(properties.keys_of(r.properties))]
    partitions = await indexer.answers.planner.plan(ScanScope(("T",), keys=keys))
    found = [row for one in partitions for row in rows(await scan(indexer, one, ScanFilter(keys=keys)))]
    assert len(partitions) == -(-8 // key_count)
    assert sorted(found) == sorted(map(place, wanted))


async def test_chunks_of_keys_keep_only_their_records() -> None:
    """Records of a page of keys that do not pass are not kept until the chunk is full."""
    log = FakeLog()
    for index in range(100):
        log.append("T", index % 50, keys="hot", body=bytes(1000))
    partition = ScanPartition(ranges=(ScanRange("T", 7, 0, 2),), key_topic="T", keys=("hot",))
    (chunk,) = await scan(fed(log), partition)
    assert len(rows([chunk])) == 2
    assert len(chunk.found.records) == int(chunk.found.sizes.sum())


async def test_many_keys_are_many_partitions() -> None:
    """Keys are cut into partitions of the configured count, for each topic."""
    indexer = fed(filled(), scan_partition_key_count=10)
    partitions = await indexer.answers.planner.plan(
        ScanScope(("T", "U"), keys=tuple(f"k{index}" for index in range(25)))
    )
    assert [(p.key_topic, len(p.keys)) for p in partitions] == [(topic, n) for topic in "TU" for n in (10, 10, 5)]


async def test_scans_are_bounded_and_read_ahead_little() -> None:
    """Too many scans at once are refused; an unread scan keeps few chunks in memory, a closed scan none."""
    log = filled()
    indexer = fed(log, scan_count_max=1)
    log.read_count = 0
    partition = ScanPartition(ranges=(ScanRange("T", 0, 0, 20),))
    slow = indexer.answers.scanner.scan(partition, ScanFilter(), chunk_size_bytes=1)
    await anext(slow)
    with pytest.raises(WindowFull):
        await scan(indexer, partition)
    assert log.read_count <= 4
    await slow.aclose()
    assert indexer.answers.scanner.count == 0
    assert len(rows(await scan(indexer, partition))) == 20


def arrow_row(made: Record) -> dict[str, object]:
    """The values of a record in every column, by the formats' own readers."""
    texts = properties.decode(made.properties)
    return {
        "key": texts.get("KEYS"),
        "value": made.body,
        "topic": made.topic,
        "partition": made.queue_id,
        "offset": made.queue_offset,
        "timestamp": made.store_time_ms * 1000,
        "tag": texts.get("TAGS"),
        "properties": list(texts.items()),
        "born_timestamp": made.born_time_ms * 1000,
        "physical_offset": made.physical_offset,
        "message_id": encode_offset_id(made.store_host, made.physical_offset),
        "flag": made.flag,
        "sys_flag": made.sys_flag,
    }


async def test_frames_have_every_value() -> None:
    """A frame is a whole Arrow stream with the types that Spark wants and the record's values, nulls included."""
    log = FakeLog()
    log.append(tag="t", keys="a b", unique_id="U", body=b"\x00\xff", flag=-5)
    log.append(body=b"", queue_id=0)
    log.append(tag="\u8ba2", properties=properties_text("\u8ba2\u5355", PLACE="\u00e9"))
    log.append(store_host=IPV6_STORE, sys_flag=0x20)
    indexer = fed(log)
    (chunk,) = await scan(indexer, ScanPartition(ranges=(ScanRange("T", 0, 0, 4),)))
    for compression in COMPRESSIONS.values():
        table = pa.ipc.open_stream(FrameEncoder(COLUMNS, compression).encode(chunk.found)).read_all()
        table.validate(full=True)
        assert table.schema.types == list(column_types().values())
        assert all(field.nullable for field in table.schema)
        for name in ("timestamp", "born_timestamp"):
            table = table.set_column(table.schema.get_field_index(name), name, table[name].cast(pa.int64()))
        assert table.to_pylist() == [arrow_row(made) for made in log.records]


@pytest.mark.parametrize("columns", [("offset",), ("value", "key"), DEFAULT_COLUMNS, ("properties", "tag")])
async def test_frames_have_only_the_asked_columns(columns: tuple[str, ...]) -> None:
    """A frame has the requested columns in the requested order; a body that is not requested is not in it."""
    log = FakeLog()
    log.append(body=b"NEEDLE" * 10, keys="k", tag="t")
    (chunk,) = await scan(fed(log), ScanPartition(ranges=(ScanRange("T", 0, 0, 1),)))
    frame = FrameEncoder(columns, None).encode(chunk.found)
    assert pa.ipc.open_stream(frame).read_all().column_names == list(columns)
    assert (b"NEEDLE" in bytes(frame)) == ("value" in columns)


def test_a_frame_without_rows_has_the_schema() -> None:
    """A frame for the end of a range without rows is still a valid stream."""
    table = pa.ipc.open_stream(FrameEncoder(DEFAULT_COLUMNS, "lz4").encode(NO_RECORDS)).read_all()
    assert (table.num_rows, tuple(table.column_names)) == (0, DEFAULT_COLUMNS)


@pytest.mark.parametrize("size", [1, 1 << 20])
async def test_properties_decide(size: int) -> None:
    """A scan of ranges, and a scan of keys, yield the rows that pass; ranges are scanned to their ends."""
    log = filled()
    indexer = fed(log)
    where = parse_where("TAGS IN ('a', 'b') AND KEYS STARTSWITH 'k4'", field="where")
    of_topic = [made for made in log.records if made.topic == "T"]
    wanted = [place(made) for made in of_topic if b"\x01k4 " in made.properties and b"\x01c" not in made.properties]
    assert wanted
    for tag_filter in ("*", "a||b"):
        scan_filter = ScanFilter(parse_tag_expression(tag_filter, field="f"), where=where)
        ranges = tuple(ScanRange("T", queue_id, 0, 20) for queue_id in range(3))
        chunks = await scan(indexer, ScanPartition(ranges), scan_filter, size)
        assert sorted(rows(chunks)) == sorted(wanted)
        assert [chunk.range.end_queue_offset for chunk in chunks if chunk.range][-1] == 20
    scan_filter = ScanFilter(keys=("k4",), where=where)
    partition = ScanPartition(key_topic="T", keys=("k4",))
    assert sorted(rows(await scan(indexer, partition, scan_filter, size))) == sorted(wanted)
