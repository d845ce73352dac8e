# SPDX-License-Identifier: Apache-2.0
"""A start of the Indexer after a clean stop costs names and headers, not the files' contents.

It lists the files, and knows their contents from the progress file. Then it follows the log, and tells it where each
queue ends: for that it looks at a few pages of a queue, however long that is.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.indexes.index_file import IndexHeader
from libs.machine.testing.memory_fs import MemoryMappedFile, everything_survives
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.tables import index_file
from tests.cost.computed_log import ComputedLog
from tests.cost.counting_fs import FsCall, bytes_by_operation, paths_of
from tests.cost.indexed import IndexedStore
from tests.cost.touched_pages import STRAY_PAGE_COUNT, touched_pages
from tests.support.patience import LIMIT_S

NAMES_ONLY = {"list", "exists", "is_directory", "size", "make_directory"}
LARGE_FILE_UNIT_COUNT = 50_000


async def stopped(record_count: int, *, topic_count: int = 1, **config: int) -> IndexedStore:
    """A store whose Indexer has entered the log and was stopped in order."""
    store = IndexedStore(ComputedLog(record_count, topic_count=topic_count), **config)
    await (await store.filled()).close()
    return store


def opened(store: IndexedStore) -> tuple[Indexer, list[FsCall]]:
    """A start, and its calls to the file system."""
    indexer = store.make()
    with store.fs.counted() as calls:
        indexer.open()
    return indexer, calls


def content_work(calls: list[FsCall]) -> Counter[str]:
    """How often each operation was asked for that is about contents, but for the mapping of an index file."""
    return Counter(
        call.operation
        for call in calls
        if call.operation not in NAMES_ONLY
        and not (call.operation == "open_mapped" and call.path.parent.name == "index")
    )


async def test_a_start_opens_no_queue_file_and_reads_small_files_alone() -> None:
    """The same with 2 files of a queue as with 20, with 2 index files as with 20, and with 200 queues."""
    works = []
    for record_count, topic_count in ((2_048, 1), (20_480, 1), (20_480, 200)):
        store = await stopped(record_count, topic_count=topic_count, index_entry_capacity=1_025, index_slot_count=4_096)
        _, calls = opened(store)
        assert not [path for path in paths_of(calls, "open_mapped") if "consumequeue" in path.parts]
        sizes = bytes_by_operation(calls)
        works.append((content_work(calls), sizes["read"] // 100, sizes["write_atomic"] // 100))
    assert works[0] == works[1] == works[2]


async def test_a_start_looks_at_names() -> None:
    """A start costs the names of queues and files. It asks for the size of a queue's last file twice."""
    for topic_count in (10, 100):
        store = await stopped(1_000, topic_count=topic_count)
        _, calls = opened(store)
        counts = Counter(call.operation for call in calls if "consumequeue" in call.path.parts)
        assert counts["size"] == 2 * topic_count
        assert counts["list"] == 2 + 2 * topic_count  # the topics twice: some are set apart


async def test_a_start_reads_the_headers_of_the_last_index_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """They show whether the files are as they were left.

    Nothing else of these files, and nothing of other files, is read.
    """
    read_header = index_file.decode_header
    header_read_counts = []
    for file_count in (2, 20):
        store = await stopped(1_000 * file_count, index_entry_capacity=1_001, index_slot_count=1 << 16)
        buffers = [memoryview(store.disk.file(path).data) for path in index_paths(store)]
        header_reads: list[memoryview] = []

        def counted(buffer: memoryview, reads: list[memoryview] = header_reads) -> IndexHeader:
            reads.append(buffer)
            return read_header(buffer)

        with monkeypatch.context() as patch, touched_pages(*buffers) as touched:
            patch.setattr(index_file, "decode_header", counted)
            indexer, _ = opened(store)
        assert indexer.indexes.index.file_count == file_count
        assert touched.page_count <= STRAY_PAGE_COUNT
        header_read_counts.append(len(header_reads))
    assert header_read_counts[0] == header_read_counts[1] <= 2


def index_paths(store: IndexedStore) -> list[Path]:
    """Paths of the index files."""
    directory = store.config.data_dir / "index"
    return [directory / name for name in store.disk.list(directory)]


@pytest.mark.parametrize("file_count", [1, 3])
async def test_the_first_look_at_a_queue_touches_a_few_pages(file_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a clean stop the ends of a queue are found by halving, not by reading its first and last file."""
    # where a file has holes a file system tells without a look at the pages, its twin does not
    monkeypatch.setattr(MemoryMappedFile, "data_ranges", lambda file, position: [(position, file.size_bytes)])
    unit_count = LARGE_FILE_UNIT_COUNT
    record_count = unit_count * file_count - unit_count // 3
    store = await stopped(record_count, queue_file_size_bytes=UNIT_SIZE_BYTES * unit_count)
    indexer, _ = opened(store)
    directory = store.config.data_dir / "consumequeue" / "topic-00000" / "0"
    buffers = [memoryview(store.disk.file(directory / name).data) for name in store.disk.list(directory)]
    with touched_pages(*buffers) as touched:
        end = indexer.indexes.queues.end_of("topic-00000", 0)
    assert end is not None
    assert end.end_queue_offset == record_count
    assert 0 < touched.page_count <= 2 * unit_count.bit_length() + 4


async def test_the_report_to_the_log_maps_two_files_of_a_queue() -> None:
    """Following the log after a start opens the first and the last file of each queue at most."""
    for record_count in (4_096, 40_960):
        store = await stopped(record_count, topic_count=2)
        indexer = store.make()
        with store.fs.counted() as calls:
            indexer.open()
            async with following(indexer, store.log):
                assert sum(end.end_queue_offset for end in store.log.queue_ends) == record_count
        opened_count = Counter(path.parent.parent.name for path in paths_of(calls, "open_mapped"))
        assert opened_count["topic-00000"] <= 2
        assert opened_count["topic-00001"] <= 2


@contextlib.asynccontextmanager
async def following(indexer: Indexer, log: ComputedLog) -> AsyncIterator[None]:
    """Let the Indexer follow the log until it has reported the ends of its queues, for a block."""
    log.is_queue_end_report_done.clear()
    indexer.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            await log.is_queue_end_report_done.wait()
        yield
    finally:
        indexer.drain()
        await indexer.close()


async def test_a_start_after_a_kill_reads_two_files_of_a_queue_and_replays_one_index_file() -> None:
    """Every queue is cut at its end, and only the records of the unfinished index file are asked of the log."""
    for record_count in (2_048, 20_480):
        store = IndexedStore(ComputedLog(record_count), index_entry_capacity=1_001, index_slot_count=4_096)
        await (await store.filled()).follow.flush.flush(is_thorough=True)
        store.disk.crash(everything_survives)
        indexer, calls = opened(store)
        assert len([path for path in paths_of(calls, "open_mapped") if "consumequeue" in path.parts]) <= 2
        replayed_bytes = store.log.end_physical_offset - indexer.indexes.reached.indexed_physical_offset
        assert 0 < replayed_bytes <= 1_000 * store.log.record_size_bytes
