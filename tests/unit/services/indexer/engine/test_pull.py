# SPDX-License-Identifier: Apache-2.0
"""Pull: every status with its next offset, limits, tags as text, properties, and waiting for the first message."""

import asyncio
import dataclasses
from collections.abc import Callable

import pytest

from libs.filters.property_filter import parse_where
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import BadArgument, DependencyUnavailable, Stopping, WindowFull
from services.indexer.engine.answer.pull import FILTERED_UNIT_COUNT, PullQuery, PullResult, PullStatus
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog, properties_text
from tests.support.indexer import SMALL, feed, make_indexer, running
from tests.support.patience import LIMIT_S, eventually

# Two texts with the same hash: Java's String.hashCode of "Aa" and "BB" is 2112.
TWINS = ("Aa", "BB")


def query(
    offset: int = 0, *, count: int = 100, size: int = 1 << 20, tags: str = "*", topic: str = "T", where: str = ""
) -> PullQuery:
    passing = parse_tag_expression(tags, field="tag_expression"), parse_where(where, field="where")
    return PullQuery(topic, 0, offset, count, size, *passing)


def fed(log: FakeLog, **changes: int) -> Indexer:
    indexer = make_indexer(log, MemoryFs(), dataclasses.replace(SMALL, **changes))  # type: ignore[arg-type]
    feed(indexer, log)
    return indexer


def tagged(*tags: str) -> FakeLog:
    log = FakeLog()
    for tag in tags:
        log.append(tag=tag)
    return log


def priced(*prices: object, tag: str = "", body: bytes = b"body") -> FakeLog:
    """A log whose messages have a property `price`; a price of None gives a message without it."""
    log = FakeLog()
    for price in prices:
        text = "" if price is None else str(price)
        log.append(body=body, properties=properties_text(tag, price=text, region="eu"))
    return log


def bodies(result: PullResult) -> list[int]:
    return [view.queue_offset for view in result.found.views()]


def nothing(log: FakeLog, indexer: Indexer) -> None:
    """Leave the queue with its ten messages as it is."""


def all_gone(log: FakeLog, indexer: Indexer) -> None:
    """Delete all records; the Indexer does not know it yet."""
    log.trim(log.end_physical_offset)


def half_gone(log: FakeLog, indexer: Indexer) -> None:
    """Delete the first five records; the Indexer does not know it yet."""
    log.trim(log.records[5].physical_offset)


def half_trimmed(log: FakeLog, indexer: Indexer) -> None:
    """Delete the first five records; the Indexer trims its indexes."""
    log.trim(log.records[5].physical_offset)
    indexer.upkeep.trim.trim(log.records[5].physical_offset)


def all_trimmed(log: FakeLog, indexer: Indexer) -> None:
    """Delete all records; the Indexer trims its indexes."""
    log.trim(log.end_physical_offset)
    indexer.upkeep.trim.trim(log.end_physical_offset)


def file_gone(log: FakeLog, indexer: Indexer) -> None:
    """Remove the queue's bytes while the offsets stay."""
    queue = indexer.indexes.queues.find("T", 0)
    assert queue is not None
    queue.read = lambda *_: type(queue).read(queue, 10, 0)  # type: ignore[method-assign]


STATUSES = [
    # situation, offset, tags, status, next, returned queue offsets
    (nothing, 0, "*", PullStatus.FOUND, 10, range(10)),
    (nothing, 7, "*", PullStatus.FOUND, 10, range(7, 10)),
    (nothing, 10, "*", PullStatus.OFFSET_OVERFLOW_ONE, 10, ()),
    (nothing, 11, "*", PullStatus.OFFSET_OVERFLOW_BADLY, 10, ()),
    (nothing, 2**62, "*", PullStatus.OFFSET_OVERFLOW_BADLY, 10, ()),
    (nothing, 0, "nobody", PullStatus.NO_MATCHED_MESSAGE, 10, ()),
    (nothing, 0, "odd", PullStatus.FOUND, 10, range(1, 10, 2)),
    (nothing, 0, "odd||even", PullStatus.FOUND, 10, range(10)),
    (all_gone, 0, "*", PullStatus.MESSAGE_WAS_REMOVING, 10, ()),
    (all_gone, 0, "odd", PullStatus.MESSAGE_WAS_REMOVING, 10, ()),
    (all_gone, 0, "even", PullStatus.NO_MATCHED_MESSAGE, 10, ()),
    (half_gone, 0, "*", PullStatus.FOUND, 10, range(5, 10)),
    (half_gone, 0, "even", PullStatus.FOUND, 10, (6, 8)),
    (half_trimmed, 0, "*", PullStatus.OFFSET_TOO_SMALL, 5, ()),
    (half_trimmed, 4, "*", PullStatus.OFFSET_TOO_SMALL, 5, ()),
    (half_trimmed, 5, "*", PullStatus.FOUND, 10, range(5, 10)),
    (all_trimmed, 9, "*", PullStatus.OFFSET_TOO_SMALL, 10, ()),
    (all_trimmed, 10, "*", PullStatus.OFFSET_OVERFLOW_ONE, 10, ()),
    (file_gone, 3, "*", PullStatus.OFFSET_FOUND_NULL, 16, ()),
]


@pytest.mark.parametrize(
    ("change", "offset", "tags", "status", "next_offset", "returned"),
    STATUSES,
    ids=[f"{row[0].__name__}-{row[1]}-{row[2]}" for row in STATUSES],
)
async def test_statuses(
    change: Callable[[FakeLog, Indexer], None], offset: int, tags: str, status: PullStatus, next_offset: int,
    returned: range,
) -> None:  # fmt: skip
    """Each situation has RocketMQ's status and next offset, and exactly the messages that pass."""
    log = tagged(*["even", "odd"] * 5)
    indexer = fed(log)
    change(log, indexer)
    result = await indexer.answers.puller.pull(query(offset, tags=tags), wait_s=0)
    assert (result.status, result.next_queue_offset, bodies(result)) == (status, next_offset, list(returned))
    assert result.max_queue_offset == 10


async def test_a_queue_that_is_not_there() -> None:
    """An unknown queue and a queue that never had a message have different statuses."""
    log = tagged("A")
    indexer = fed(log)
    result = await indexer.answers.puller.pull(query(3, topic="unknown"), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    indexer.indexes.queues.truncate(0)
    result = await indexer.answers.puller.pull(query(3), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.NO_MESSAGE_IN_QUEUE, 0)


@pytest.mark.parametrize(
    ("count", "size", "returned"),
    [(3, 1 << 20, 3), (100, 1, 1), (100, 350, 3), (100, 300, 3), (100, 299, 2), (4096, 8 << 20, 20)],
)
async def test_limits_of_an_answer(count: int, size: int, returned: int) -> None:
    """An answer ends at its count or size, the first message always fits, and the next answer begins where it ended."""
    log = FakeLog()
    for _ in range(20):
        log.append(body=b"x" * 8)
    assert log.records[0].size_bytes == 100
    indexer = fed(log)
    result = await indexer.answers.puller.pull(query(0, count=count, size=size), wait_s=0)
    assert bodies(result) == list(range(returned))
    assert result.next_queue_offset == returned


async def test_filtered_messages_before_the_limit_are_stepped_over() -> None:
    """The next offset is past the filtered messages, but not past the message that did not fit any more."""
    indexer = fed(tagged("b", "a", "b", "a", "b", "b", "a"))
    result = await indexer.answers.puller.pull(query(0, count=2, tags="a"), wait_s=0)
    assert (bodies(result), result.next_queue_offset) == ([1, 3], 6)
    result = await indexer.answers.puller.pull(query(6, count=2, tags="a"), wait_s=0)
    assert (bodies(result), result.next_queue_offset) == ([6], 7)


async def test_tags_are_compared_as_text() -> None:
    """Tags with the same hash do not pass for each other, also if the first page is full of the wrong tag."""
    log = tagged(*[TWINS[1]] * 6, TWINS[0], TWINS[1])
    indexer = fed(log)
    result = await indexer.answers.puller.pull(query(0, count=2, tags=TWINS[0]), wait_s=0)
    assert (result.status, bodies(result), result.next_queue_offset) == (PullStatus.FOUND, [6], 8)
    result = await indexer.answers.puller.pull(query(7, count=2, tags=TWINS[0]), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.NO_MATCHED_MESSAGE, 8)


async def test_a_scan_is_bounded() -> None:
    """A pull checks at least 800 entries, and few more, even if none passes."""
    indexer = fed(tagged(*["b"] * 1000, "a"), queue_file_size_bytes=20 * 300)
    result = await indexer.answers.puller.pull(query(0, tags="a"), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.NO_MATCHED_MESSAGE, 800)
    result = await indexer.answers.puller.pull(query(800, tags="a"), wait_s=0)
    assert (bodies(result), result.next_queue_offset) == ([1000], 1001)


async def test_properties_decide() -> None:
    """A message passes if the condition is true and its tag passes.

    A condition with an unknown result does not pass.
    """
    log = priced(5, 15, "dear", None, 25, tag="a")
    log.append(properties=properties_text("b", price="35"))
    indexer = fed(log)
    result = await indexer.answers.puller.pull(query(where="price > 10"), wait_s=0)
    assert (result.status, bodies(result), result.next_queue_offset) == (PullStatus.FOUND, [1, 4, 5], 6)
    result = await indexer.answers.puller.pull(query(where="price > 10", tags="a"), wait_s=0)
    assert (bodies(result), result.next_queue_offset) == ([1, 4], 6)
    result = await indexer.answers.puller.pull(query(where="TAGS = 'b' OR price IS NULL"), wait_s=0)
    assert bodies(result) == [3, 5]
    result = await indexer.answers.puller.pull(query(where="price > 99"), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.NO_MATCHED_MESSAGE, 6)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("size", [1, 500, 1 << 20])
async def test_what_passes_is_pulled_once_and_in_order(count: int, size: int) -> None:
    """Matching messages are pulled once and in order, with answers of any size and any number of records read."""
    log = priced(*[11 if number % 5 == 0 or 40 < number < 60 else 9 for number in range(200)])
    wanted = [number for number in range(200) if number % 5 == 0 or 40 < number < 60]
    indexer = fed(log)
    position, found = 0, []
    while position < 200:
        asked = query(position, count=count, size=size, where="price > 10")
        result = await indexer.answers.puller.pull(asked, wait_s=0)
        assert len(result.found.sizes) <= count
        assert len(result.found.sizes) == 1 or result.found.sizes.sum() <= size
        assert result.next_queue_offset > position
        found += bodies(result)
        position = result.next_queue_offset
    assert found == wanted


async def test_a_scan_with_a_filter_is_bounded() -> None:
    """A scan with a filter is bounded in entries and in bytes read.

    The next offset is the offset of the first entry that was not checked.
    """
    indexer = fed(priced(*[1] * (FILTERED_UNIT_COUNT + 100), 11), queue_file_size_bytes=20 * 3_000)
    result = await indexer.answers.puller.pull(query(where="price > 10"), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.NO_MATCHED_MESSAGE, FILTERED_UNIT_COUNT)
    result = await indexer.answers.puller.pull(query(FILTERED_UNIT_COUNT, where="price > 10"), wait_s=0)
    assert bodies(result) == [FILTERED_UNIT_COUNT + 100]
    log = priced(*[1] * 30, body=bytes(900_000))
    indexer = fed(log)
    log.read_size_bytes_max = 3_000_000
    result = await indexer.answers.puller.pull(query(where="price > 10"), wait_s=0)
    assert result.status is PullStatus.NO_MATCHED_MESSAGE
    assert 8 <= result.next_queue_offset <= 13


async def test_records_that_are_gone_do_not_pass() -> None:
    """A filter skips deleted records; if none exist any more, the answer is MESSAGE_WAS_REMOVING."""
    log = priced(*[11] * 10)
    indexer = fed(log)
    log.trim(log.records[5].physical_offset)
    result = await indexer.answers.puller.pull(query(where="price > 10"), wait_s=0)
    assert (bodies(result), result.next_queue_offset) == ([5, 6, 7, 8, 9], 10)
    log.trim(log.end_physical_offset)
    result = await indexer.answers.puller.pull(query(where="price > 10"), wait_s=0)
    assert (result.status, result.next_queue_offset) == (PullStatus.MESSAGE_WAS_REMOVING, 10)


async def test_an_answer_of_the_log_may_be_short() -> None:
    """If the log returns fewer records than requested, the pull ends there with the right next offset."""
    log = tagged(*["a"] * 10)
    indexer = fed(log)
    log.read_size_bytes_max = log.records[0].size_bytes * 4
    result = await indexer.answers.puller.pull(query(0), wait_s=0)
    assert (bodies(result), result.next_queue_offset) == ([0, 1, 2, 3], 4)


@pytest.mark.parametrize("expression", ["||", " || ", "||||"])
def test_an_expression_without_tags_is_refused(expression: str) -> None:
    """An expression of separators alone is refused, because it would never match."""
    with pytest.raises(BadArgument):
        parse_tag_expression(expression, field="f")


@pytest.mark.parametrize(
    ("expression", "tags"), [("", ()), ("*", ()), (" * ", ()), ("A", ("A",)), (" A || B ||", ("A", "B"))]
)
def test_expressions(expression: str, tags: tuple[str, ...]) -> None:
    """`*` and empty pass everything; spaces around tags do not count."""
    assert parse_tag_expression(expression, field="f").tags == {tag.encode() for tag in tags}


async def test_a_waiting_pull_gets_the_first_message() -> None:
    """A pull at the end waits, and returns as soon as there is a message, in an existing queue or a new queue."""
    log = tagged("a")
    async with running(log) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        old = asyncio.create_task(indexer.answers.puller.pull(query(1), wait_s=30))
        new = asyncio.create_task(indexer.answers.puller.pull(query(0, topic="N"), wait_s=30))
        await eventually(lambda: indexer.follow.polls.count == 2)
        log.append(tag="a")
        log.append("N")
        assert (await old).status is PullStatus.FOUND
        assert bodies(await new) == [0]
        assert indexer.follow.polls.count == 0


async def test_a_waiting_pull_steps_over_what_does_not_pass() -> None:
    """Messages that do not pass do not end the wait; its answer has the offset behind them."""
    log = tagged("b")
    async with running(log) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        patient = asyncio.create_task(indexer.answers.puller.pull(query(0, tags="a"), wait_s=30))
        hasty = asyncio.create_task(indexer.answers.puller.pull(query(0, tags="a"), wait_s=2.0))
        await eventually(lambda: indexer.follow.polls.count == 2)
        log.append(tag="b")
        result = await hasty
        assert (result.status, result.next_queue_offset) == (PullStatus.NO_MATCHED_MESSAGE, 2)
        log.append(tag="a")
        result = await patient
        assert (bodies(result), result.next_queue_offset) == ([2], 3)


async def test_a_waiting_pull_goes_on_with_its_filter() -> None:
    """A message whose properties do not pass ends no wait; a later message that passes does."""
    log = priced(1)
    async with running(log) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        waiting = asyncio.create_task(indexer.answers.puller.pull(query(0, where="price > 10"), wait_s=30))
        await eventually(lambda: indexer.follow.polls.count == 1)
        log.append(properties=properties_text(price="2"))
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        await eventually(lambda: indexer.follow.polls.count == 1)
        assert not waiting.done()
        log.append(properties=properties_text(price="12"))
        result = await waiting
        assert (bodies(result), result.next_queue_offset) == ([2], 3)


@pytest.mark.parametrize("offset", [0, 2, 99])
async def test_what_waiting_cannot_change_is_answered_at_once(offset: int) -> None:
    """Only a pull at the end of a queue waits; all other answers are immediate."""
    log = tagged("a", "a", "a")
    indexer = fed(log)
    if offset == 0:
        indexer.upkeep.trim.trim(log.records[1].physical_offset)
    async with asyncio.timeout(LIMIT_S):
        result = await indexer.answers.puller.pull(query(offset), wait_s=2 * LIMIT_S)
    assert result.status is not PullStatus.OFFSET_OVERFLOW_ONE


async def test_waiting_is_bounded_and_ends_with_the_service() -> None:
    """A wait beyond the limit is refused; a stop of the service ends waits; a cancelled wait frees its place."""
    indexer = fed(tagged("a"), long_poll_count_max=2)
    waits = [asyncio.create_task(indexer.answers.puller.pull(query(1), wait_s=30)) for _ in range(2)]
    await eventually(lambda: indexer.follow.polls.count == 2)
    with pytest.raises(WindowFull):
        await indexer.answers.puller.pull(query(1), wait_s=30)
    waits[0].cancel()
    await eventually(lambda: indexer.follow.polls.count == 1)
    indexer.drain()
    with pytest.raises(Stopping):
        await waits[1]
    with pytest.raises(Stopping):
        await indexer.answers.puller.pull(query(0), wait_s=0)
    assert indexer.follow.polls.count == 0


async def test_without_the_log_a_pull_says_so() -> None:
    """Records can't be read while the log is away; a pull that needs no record is answered all the same."""
    log = tagged("a")
    indexer = fed(log)
    log.go_down()
    with pytest.raises(DependencyUnavailable):
        await indexer.answers.puller.pull(query(0), wait_s=0)
    assert (await indexer.answers.puller.pull(query(1), wait_s=0)).status is PullStatus.OFFSET_OVERFLOW_ONE
