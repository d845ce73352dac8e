# SPDX-License-Identifier: Apache-2.0
"""Files of the indexes that another program changes under a running Indexer: every answer is right or refused."""

import random

import pytest

from libs.formats.indexes import index_file
from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.errors import IndexDamaged
from services.indexer.engine.answer.pull import PullQuery
from services.indexer.engine.answer.query import KeyQuery, TimeQuery
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SMALL, derived, feed, make_indexer, running
from tests.support.patience import eventually

KEY_COUNT = 40
QUEUE = "consumequeue/T/0/"


def stretches(kind: str, size_bytes: int) -> bytes:
    """The bytes that replace a part of a file."""
    return bytes(size_bytes) if kind == "zeros" else random.Random(size_bytes).randbytes(size_bytes)


def filled() -> FakeLog:
    log = FakeLog()
    for number in range(150):
        log.append("T", number % 3, tag="A" if number % 2 else "B", keys=f"k{number % KEY_COUNT}")
    return log


async def looked_up(indexer: Indexer, log: FakeLog) -> int:
    """Compare the answers for all keys with the log.

    Returns the number of answers that are refused with the harmed place.
    """
    refused = []
    for key in range(KEY_COUNT):
        wanted = [record.physical_offset for number, record in enumerate(log.records) if number % KEY_COUNT == key]
        try:
            page = await indexer.answers.queries.by_key(KeyQuery("T", f"k{key}"), page_size=200, page_token="")
        except IndexDamaged as error:
            refused.append(error.path.parent.name)
        else:
            assert [view.physical_offset for view in page.found.views()] == wanted[::-1]
    assert set(refused) <= {"index"}
    return len(refused)


@pytest.mark.parametrize("kind", ["zeros", "random"])
@pytest.mark.parametrize("part", ["slots", "some slots", "entries", "one entry", "header"])
async def test_an_index_file(kind: str, part: str) -> None:
    """A key in a harmed index file is found or refused, in a finished file or the newest."""
    log, fs = filled(), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    slots_at, entries_at = index_file.HEADER_SIZE_BYTES, index_file.entry_position(1, SMALL.index_slot_count)
    start, end = {
        "slots": (slots_at, entries_at - 20),
        "some slots": (slots_at + 16, slots_at + 32),
        "entries": (entries_at, entries_at + 20 * 20),
        "one entry": (entries_at + 20 * 5, entries_at + 20 * 6),
        "header": (0, 36),
    }[part]
    assert await looked_up(indexer, log) == 0
    for name in derived(fs, "index/"):
        buffer = fs.open_mapped(DATA_DIR / name).buffer
        sound = bytes(buffer)
        buffer[start:end] = stretches(kind, end - start)
        assert await looked_up(indexer, log) > 0
        buffer[:] = sound
    assert await looked_up(indexer, log) == 0


async def test_nothing_is_entered_into_a_harmed_index_file(caplog: pytest.LogCaptureFixture) -> None:
    """No record is entered into a harmed file, and all indexes are built anew.

    The record would make its header look valid again.
    """
    log, fs = filled(), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        fs.open_mapped(DATA_DIR / max(derived(fs, "index/"))).buffer[:40] = bytes(40)
        log.append("T", 0, keys="k30")
        await eventually(lambda: "all indexes are built anew" in caplog.text)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        assert await looked_up(indexer, log) == 0


@pytest.mark.parametrize("kind", ["zeros", "random"])
@pytest.mark.parametrize("tags", ["*", "A", "B"])
async def test_a_queue_file(kind: str, tags: str) -> None:
    """Units before the harm are read; a pull at its first unit is refused, with any tags, and so is the time."""
    log, fs = filled(), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    name = sorted(derived(fs, QUEUE))[1]
    buffer = fs.open_mapped(DATA_DIR / name).buffer
    buffer[5 * UNIT_SIZE_BYTES : 9 * UNIT_SIZE_BYTES] = stretches(kind, 4 * UNIT_SIZE_BYTES)
    query = PullQuery(
        "T", 0, 0, message_count_max=100, size_bytes_max=1 << 20, tags=parse_tag_expression(tags, field="tags")
    )
    wanted = [record for number, record in enumerate(log.records) if number % 3 == 0 and number < 3 * 21]
    result = await indexer.answers.puller.pull(query, wait_s=0)
    odd = {"*": (0, 1), "A": (1,), "B": (0,)}[tags]
    expected = [one.physical_offset for number, one in enumerate(wanted) if number % 2 in odd]
    assert [view.physical_offset for view in result.found.views()] == expected
    with pytest.raises(IndexDamaged) as caught:
        await indexer.answers.puller.pull(
            PullQuery("T", 0, 21, 100, 1 << 20, parse_tag_expression(tags, field="tags")), wait_s=0
        )
    assert (caught.value.path, caught.value.position) == (DATA_DIR / name, 5 * UNIT_SIZE_BYTES)
    with pytest.raises(IndexDamaged):
        await indexer.answers.queries.by_time(TimeQuery("T", 0), page_size=100, page_token="")
