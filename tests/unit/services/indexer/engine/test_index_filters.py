# SPDX-License-Identifier: Apache-2.0
"""Filters of finished index files: made while the service runs, believed only for their own file, never missed."""

import logging
from collections.abc import Iterable

import pytest

from libs.formats import store_layout
from libs.formats.state.index_filter import FILTER_HEADER_SIZE_BYTES, decode_filter_header
from libs.machine.errors import DiskFull
from libs.machine.failpoints import armed
from libs.machine.fs import DiskUsage
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from services.indexer.engine.answer.query import KeyQuery
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.upkeep.filter_loop import FilterLoop
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, feed, make_indexer, running
from tests.support.patience import eventually

FILTERS, INDEX = DATA_DIR / store_layout.INDEX_FILTERS, DATA_DIR / store_layout.INDEX
MESSAGE_COUNT = 200


def keyed(count: int = MESSAGE_COUNT, *, prefix: str = "key") -> FakeLog:
    """A log whose messages have a key each."""
    log = FakeLog()
    for number in range(count):
        log.append("T", keys=f"{prefix}-{number}")
    return log


def listed(fs: MemoryFs) -> list[str]:
    """The names of the filters."""
    return fs.list(FILTERS) if fs.exists(FILTERS) else []


async def give_all(indexer: Indexer) -> FilterLoop:
    """Give all finished files their filters, as the loop does."""
    loop, index = FilterLoop(indexer.indexes.index, interval_ms=1), indexer.indexes.index
    for _ in range(index.file_count + 2):
        await loop.give()
    return loop


async def unfiltered(log: FakeLog, fs: MemoryFs) -> Indexer:
    """An Indexer that has all of the log on the disk, in finished files but for the newest."""
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    await indexer.follow.flush.flush(is_thorough=True)
    return indexer


async def filtered(log: FakeLog, fs: MemoryFs) -> Indexer:
    """The same with filters for all finished files."""
    indexer = await unfiltered(log, fs)
    await give_all(indexer)
    assert indexer.indexes.index.filter_count == indexer.indexes.index.file_count - 1 > 3
    return indexer


async def found(indexer: Indexer, numbers: Iterable[int], *, prefix: str = "key") -> list[int]:
    """The numbers of the messages that are found by their keys."""
    queries = indexer.answers.queries
    pages = [await queries.by_key(KeyQuery("T", f"{prefix}-{one}"), page_size=9, page_token="") for one in numbers]
    return [number for number, page in zip(numbers, pages, strict=True) if len(page.found.sizes) == 1]


async def test_a_look_up_skips_files_without_the_key() -> None:
    """All keys are found, and most files are not looked into."""
    indexer = await filtered(keyed(), MemoryFs())
    index = indexer.indexes.index
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))
    assert index.skipped_count > index.searched_count > 0
    searched = index.searched_count
    assert await found(indexer, range(50), prefix="other") == []
    assert index.searched_count - searched < 50 * 2  # the newest file, and hardly another


async def test_the_running_service_makes_filters() -> None:
    """Each finished file gets its filter while the service runs, and has it again after a start."""
    log, fs = keyed(), MemoryFs()
    async with running(log, fs) as indexer:
        index = indexer.indexes.index
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        await eventually(lambda: 3 < index.filter_count == index.file_count - 1)
        names = listed(fs)
        assert set(names) == index.names - {max(index.names)}
    files = {name: fs.read(FILTERS / name) for name in names}
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.index.filter_count == len(names))
        assert indexer.upkeep.filters.made_count == 0
        assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))
    assert {name: fs.read(FILTERS / name) for name in names} == files


async def test_a_filter_of_another_file_is_not_believed() -> None:
    """An index file of the same name, of another log of the same shape, does not use the filter that was left."""
    fs, other_fs = MemoryFs(), MemoryFs()
    await filtered(keyed(prefix="old"), other_fs)
    indexer = await unfiltered(keyed(prefix="new"), fs)
    finished = sorted(indexer.indexes.index.names)[:-1]
    assert listed(other_fs) == finished  # the same clock
    fs.make_directory(FILTERS)
    for name in finished:
        fs.write_atomic(FILTERS / name, other_fs.read(FILTERS / name))
        assert decode_filter_header(other_fs.read(FILTERS / name)).name == name
    loop = await give_all(indexer)
    assert loop.made_count == len(finished)
    assert await found(indexer, range(MESSAGE_COUNT), prefix="new") == list(range(MESSAGE_COUNT))


@pytest.mark.parametrize("harm", ["cut", "longer", "empty", "noise", "header", "other name"])
async def test_a_damaged_filter_is_made_again(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    """A start with a damaged filter answers from the index file, and makes the filter again."""
    log, fs = keyed(), MemoryFs()
    await (await filtered(log, fs)).close()
    first, second = listed(fs)[:2]
    good = fs.read(FILTERS / first)
    harmed = {
        "cut": good[:-64], "longer": good + bytes(64), "empty": b"", "noise": b"\x5a" * len(good),
        "header": good[:40] + b"\x01" + good[41:], "other name": fs.read(FILTERS / second),
    }  # fmt: skip
    fs.write_atomic(FILTERS / first, harmed[harm])
    indexer = make_indexer(log, fs)
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))
    with caplog.at_level(logging.WARNING):
        loop = await give_all(indexer)
    assert "making it again" in caplog.text
    assert loop.made_count == 1
    assert fs.read(FILTERS / first) == good
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))


async def test_lost_pages_of_a_filter_are_found_when_they_are_used() -> None:
    """Zeros in a filter that is in use hide no message; the next round makes the filter again."""
    log, fs = keyed(), MemoryFs()
    await (await filtered(log, fs)).close()
    names = listed(fs)
    for name in names:
        good = fs.read(FILTERS / name)
        fs.write_atomic(FILTERS / name, good[:FILTER_HEADER_SIZE_BYTES] + bytes(len(good) - FILTER_HEADER_SIZE_BYTES))
    indexer = make_indexer(log, fs)
    assert (await give_all(indexer)).made_count == 0
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))
    assert indexer.indexes.index.filter_count == 0
    assert (await give_all(indexer)).made_count == len(names)
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))
    assert indexer.indexes.index.skipped_count > 0


async def test_filters_go_with_their_index_files() -> None:
    """Trims, lost tails and rebuilds leave no filter without its file."""
    log, fs = keyed(), MemoryFs()
    indexer = await filtered(log, fs)
    indexer.upkeep.trim.trim(log.records[100].physical_offset)
    await indexer.follow.flush.flush(is_thorough=True)
    index = indexer.indexes.index
    assert set(listed(fs)) == index.names - {max(index.names)}
    await indexer.indexes.undo(log.records[150].physical_offset)
    assert index.file_count > 0
    assert set(listed(fs)) == index.names
    await indexer.indexes.drop_all()
    assert listed(fs) == []


async def test_a_trim_removes_filters_before_their_files() -> None:
    """A crash between the two leaves a file without a filter, which is only searched."""
    log, fs = keyed(), MemoryFs()
    indexer = await filtered(log, fs)
    indexer.upkeep.trim.trim(log.records[100].physical_offset)
    first = fs.list(INDEX)[0]
    with armed("index_file.before_remove", "raise"), pytest.raises(OSError, match="before_remove"):
        await indexer.follow.flush.flush(is_thorough=True)
    assert fs.exists(INDEX / first)
    assert first not in listed(fs)


@pytest.mark.parametrize("survives", [everything_survives, nothing_survives])
@pytest.mark.parametrize("failpoint", ["index_filter.before_write", "index_filter.after_write"])
async def test_a_crash_while_a_filter_is_written(failpoint: str, survives: object) -> None:
    """The next start has the whole filter or none, removes what is left over, and finds all keys."""
    log, fs = keyed(), MemoryFs()
    indexer = await unfiltered(log, fs)
    with armed(failpoint, "raise"), pytest.raises(OSError, match=failpoint):
        await give_all(indexer)
    fs.crash(survives)  # type: ignore[arg-type]
    fs.make_directory(FILTERS)
    for name in ("20200101000000000", f"{max(fs.list(INDEX))}.tmp"):
        fs.write_atomic(FILTERS / name, b"left over")
    indexer = await unfiltered(log, fs)
    await give_all(indexer)
    assert set(listed(fs)) == indexer.indexes.index.names - {max(indexer.indexes.index.names)}
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))


async def test_a_file_that_is_dropped_while_its_filter_is_made() -> None:
    """The filter is not used, and is removed if it was written already."""
    fs = MemoryFs()
    indexer = await unfiltered(keyed(), fs)
    index = indexer.indexes.index
    write = index.filters.write

    def write_late(name: str, data: bytes | bytearray, *, spared_bytes: int) -> None:
        write(name, data, spared_bytes=spared_bytes)
        assert listed(fs) == [name]
        index.detach()

    index.filters.write = write_late  # type: ignore[method-assign]
    loop = FilterLoop(index, interval_ms=1)
    await loop.give()
    assert (loop.made_count, index.filter_count, listed(fs)) == (0, 0, [])


async def test_a_damaged_index_file_gets_no_filter(caplog: pytest.LogCaptureFixture) -> None:
    """A filter of a file that lost entries would say that their keys are absent: the file stays without a filter."""
    log, fs = keyed(), MemoryFs()
    indexer = await unfiltered(log, fs)
    name = fs.list(INDEX)[1]
    data = fs.file(INDEX / name).data
    data[-40:-20] = bytes(20)
    with caplog.at_level(logging.ERROR):
        loop = await give_all(indexer)
    assert f"index file {name} gets no filter" in caplog.text
    assert caplog.text.count("gets no filter") == 1
    assert name not in listed(fs)
    assert loop.made_count == indexer.indexes.index.file_count - 2


async def test_a_filter_never_takes_the_last_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk without room for another index file no filter is written, and look-ups go on."""
    log, fs = keyed(), MemoryFs()
    indexer = await unfiltered(log, fs)
    room = indexer.indexes.index.file_size_bytes
    monkeypatch.setattr(fs, "disk_usage", lambda _path: DiskUsage(total_bytes=1 << 30, free_bytes=room, used_bytes=0))
    with pytest.raises(DiskFull):
        await give_all(indexer)
    assert listed(fs) == []
    assert await found(indexer, range(MESSAGE_COUNT)) == list(range(MESSAGE_COUNT))
