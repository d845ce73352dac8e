# SPDX-License-Identifier: Apache-2.0
"""A dry run of a trim returns the files that the trim removes, and the size of the indexes is their files' size."""

import pytest

from libs.machine.fs import Fs
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.errors import OffsetBeyondEnd
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, feed, make_indexer, running
from tests.support.patience import eventually


def bytes_of_files(fs: Fs) -> int:
    """The size of all queue files and index files."""
    directories, total_bytes = [DATA_DIR / "consumequeue", DATA_DIR / "index"], 0
    while directories:
        directory = directories.pop()
        for path in (directory / name for name in fs.list(directory)):
            if fs.is_directory(path):
                directories.append(path)
            else:
                total_bytes += fs.allocated_bytes(path)
    return total_bytes


def keyed(message_count: int) -> FakeLog:
    """Messages of three queues, each with keys of its own."""
    log = FakeLog()
    for number in range(message_count):
        log.append("ABC"[number % 3], keys=f"key-{number} more-{number}")
    return log


def places(log: FakeLog) -> list[int]:
    """Where records begin, and the end of the log."""
    return [one.physical_offset for one in log.records[::7]] + [log.end_physical_offset]


async def test_a_dry_run_tells_what_a_trim_removes() -> None:
    """A dry run returns the numbers of the trim, for any offset, and changes nothing."""
    log = keyed(300)
    for offset in places(log):
        fs = MemoryFs()
        indexer = make_indexer(log, fs)
        feed(indexer, log)
        indexer.indexes.index.mark_finished(indexer.indexes.index.unfinished()[:-1])
        before_bytes = bytes_of_files(fs)
        told = await indexer.upkeep.trim.would_trim(offset)
        assert told == await indexer.upkeep.trim.would_trim(offset)
        assert told.own_bytes == bytes_of_files(fs) == before_bytes
        done = indexer.upkeep.trim.trim(offset)
        assert (told.queue_file_count, told.index_file_count, told.freed_bytes) == (
            done.queue_file_count, done.index_file_count, done.freed_bytes,
        )  # fmt: skip
        assert (await indexer.upkeep.trim.would_trim(offset)).freed_bytes == 0
    assert done.queue_file_count > 10
    assert done.index_file_count > 5


async def test_files_on_their_way_out_do_not_count() -> None:
    """Trimmed files are no part of the indexes any more, although the next flush removes them."""
    log, fs = keyed(300), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        before_bytes = bytes_of_files(fs)
        offset = log.end_physical_offset
        done = indexer.upkeep.trim.trim(offset)
        queues, index = indexer.indexes.queues, indexer.indexes.index
        leaving = [file.path for file in queues.expired] + [DATA_DIR / "index" / name for name in index.expired]
        kept_bytes = before_bytes - sum(map(fs.allocated_bytes, leaving))
        assert done.queue_file_count > 10
        assert (await indexer.upkeep.trim.would_trim(offset)).own_bytes == kept_bytes
        await eventually(lambda: not queues.expired and not index.expired)
        await eventually(lambda: bytes_of_files(fs) == kept_bytes)


async def test_what_is_not_indexed_is_refused() -> None:
    """A dry run refuses an offset beyond the indexed end, as a trim does."""
    log = keyed(3)
    indexer = make_indexer(log)
    feed(indexer, log)
    with pytest.raises(OffsetBeyondEnd):
        await indexer.upkeep.trim.would_trim(log.end_physical_offset + 1)
