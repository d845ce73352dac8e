# SPDX-License-Identifier: Apache-2.0
"""A look at the state of a service, by its status call or by a scrape of its metrics, is the same work in any store.

There is a single exception: the Indexer's status adds up the entries of its index files, each of which has them in its
header.
"""

from collections.abc import Callable
from typing import Any

from reput.indexer.v1 import index_service_pb2

from services.commitlog.engine.statistics import statistics_of
from services.commitlog.rpc.status import status_of
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.statistics import statistics
from services.indexer.rpc.index_servicer import IndexServicer
from tests.cost.computed_log import ComputedLog
from tests.cost.counting_fs import count_by_operation
from tests.cost.indexed import IndexedStore
from tests.cost.python_work import instructions, taken_memory
from tests.cost.stored import CountedMachine, Growth, many_segments, many_topics, nothing
from tests.cost.touched_pages import STRAY_PAGE_COUNT, touched_pages
from tests.support.commitlog import append

TAKEN_BYTES_MAX = 16 * 1024


class WatchedDict(dict[Any, Any]):
    """A dictionary that counts how often a walk over it began."""

    walk_count = 0

    def __iter__(self) -> Any:
        """Keys."""
        self.walk_count += 1
        return super().__iter__()

    def values(self) -> Any:
        """Values."""
        self.walk_count += 1
        return super().values()

    def items(self) -> Any:
        """Both."""
        self.walk_count += 1
        return super().items()


async def commitlog_work(grow: Growth, look: Callable[[Any], object]) -> int:
    """Instructions of a look at a CommitLog that has grown."""
    machine = CountedMachine()
    async with machine.running() as log:
        await append(log)
        await grow(log)
        process = machine.process(log)
        look(process)
        with machine.fs.counted() as calls, instructions() as work:
            look(process)
        with taken_memory() as memory:
            look(process)
    assert not calls
    assert memory.taken_bytes <= TAKEN_BYTES_MAX
    return work.instruction_count


async def test_the_status_of_the_commitlog_costs_the_same_in_any_store() -> None:
    """Neither a thousand topics nor twenty segments make it dearer, and no file is asked."""
    for look in (lambda process: statistics_of(process.log), status_of):
        works = [await commitlog_work(grow, look) for grow in (nothing, many_topics, many_segments)]
        assert max(works) <= 1.05 * works[0]


async def grown_indexers() -> list[tuple[IndexedStore, Indexer]]:
    """A small Indexer, an Indexer with hundreds of queues, and an Indexer with many index files and queue files."""
    stores = [
        IndexedStore(ComputedLog(1_000, topic_count=10)),
        IndexedStore(ComputedLog(1_000, topic_count=300)),
        IndexedStore(ComputedLog(50_000, topic_count=10), index_entry_capacity=1_001, index_slot_count=1_024),
    ]
    return [(store, await store.filled()) for store in stores]


async def test_the_metrics_of_the_indexer_cost_the_same_in_any_store() -> None:
    """A scrape walks neither topics nor queues nor index files, and looks into none of their files."""
    works = []
    for store, indexer in await grown_indexers():
        indexer.indexes.queues._topics = topics = WatchedDict(indexer.indexes.queues._topics)
        files = touched_pages(*store.buffers("index"))
        with store.fs.counted() as calls, instructions() as work, files as touched:
            statistics(indexer)
        assert (topics.walk_count, len(calls)) == (0, 0)
        assert touched.page_count <= STRAY_PAGE_COUNT
        works.append(work.instruction_count)
    assert max(works) <= 1.05 * works[0]


async def test_the_status_of_the_indexer_costs_a_header_of_each_index_file() -> None:
    """It walks no queue; of an index file it reads the header, and of the file system how full it is."""
    works = []
    request = index_service_pb2.GetStatusRequest()
    for store, indexer in await grown_indexers():
        indexer.indexes.queues._topics = topics = WatchedDict(indexer.indexes.queues._topics)
        servicer = IndexServicer(indexer, start_time_ms=0)
        await servicer.GetStatus(request, None)
        with store.fs.counted() as calls, instructions() as work:
            status = await servicer.GetStatus(request, None)
        assert status.index_entry_count == store.log.record_count
        assert count_by_operation(calls) == {"disk_usage": 1}
        assert topics.walk_count == 0
        works.append((work.instruction_count, status.index_file_count))
    (small, _), (many_queues, _), (many_files, file_count) = works
    assert many_queues <= 1.05 * small
    assert many_files <= small + 200 * file_count
