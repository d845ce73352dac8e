# SPDX-License-Identifier: Apache-2.0
"""A run of the Janitor costs the names and times of segments, and its deletions. It does not look at records.

Its owners are the two engines, asked through their servicers as over the network.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from reput.commitlog.v1 import segment_service_pb2

from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.rpc.segment_servicer import PAGE_SIZE_MAX, SegmentServicer
from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import (
    INDEX_OWNER,
    LOG_OWNER,
    Disk,
    Expiry,
    IndexFacts,
    LogFacts,
    TopicRule,
    Trimmed,
)
from services.janitor.engine.history import RunHistory
from services.janitor.engine.policy import HOUR_MS
from services.janitor.engine.retention_loop import MANUAL_ROUND_COUNT, RetentionLoop
from services.janitor.rpc.owner_clients import segment_facts
from tests.cost.counting_fs import count_by_operation, paths_of
from tests.cost.python_work import instructions
from tests.cost.stored import BODY, CountedMachine
from tests.support.commitlog import fill

SEGMENT_COUNTS = (5, 25, 45)
POLICY = JanitorConfig(delete_batch_count_max=1, first_check_delay_ms=0, delete_interval_ms=0)
INSTRUCTIONS_PER_SEGMENT_MAX = 2_000


class Owners:
    """The log's servicer, and an Indexer that has indexed everything and has nothing to trim."""

    def __init__(self, log: OpenLog) -> None:
        self.list_call_count = 0
        self._log = log
        self._servicer = SegmentServicer(lambda: log)
        self.end = log.chain.max_physical_offset

    async def log_facts(self) -> LogFacts:
        """See LogOwner."""
        self.list_call_count += 1
        request = segment_service_pb2.ListSegmentsRequest(page_size=PAGE_SIZE_MAX)
        page = await self._servicer.ListSegments(request, None)
        assert not page.next_page_token
        return LogFacts([segment_facts(segment) for segment in page.segments], self.end, [Disk(LOG_OWNER, 50)])

    async def topic_rules(self) -> list[TopicRule]:
        """See LogOwner."""
        return []

    async def expire(self, begins: Mapping[str, int]) -> None:
        """See LogOwner."""
        raise AssertionError(begins)

    async def expiry(self, rule: TopicRule, min_store_time_ms: int | None) -> Expiry:
        """See IndexOwner."""
        raise AssertionError(rule, min_store_time_ms)

    async def report_disk(self, *, is_full: bool, used_percent: int) -> None:
        """See LogOwner."""

    async def delete_segment(self, base_physical_offset: int, *, allow_unindexed: bool = False) -> int:
        """See LogOwner."""
        del allow_unindexed
        request = segment_service_pb2.DeleteSegmentsRequest(
            base_physical_offsets=[base_physical_offset], allow_unindexed=True
        )
        outcome = (await self._servicer.DeleteSegments(request, None)).outcomes[0]
        assert outcome.is_deleted
        return int(outcome.freed_bytes)

    async def index_facts(self) -> IndexFacts:
        """See IndexOwner."""
        return IndexFacts(self.end, Disk(INDEX_OWNER, 50))

    async def trim_to(self, min_physical_offset: int, *, is_dry_run: bool) -> Trimmed:
        """See IndexOwner."""
        del min_physical_offset, is_dry_run
        return Trimmed(0)


class IndexedFacts(Owners):
    """Owners whose log believes the Indexer, too."""

    async def log_facts(self) -> LogFacts:
        """All full segments are indexed."""
        self._log.checkpoint.indexed_flushed_physical_offset = self.end
        return await super().log_facts()


def janitor(owners: Owners, clock: ManualClock) -> RetentionLoop:
    """A Janitor of these owners that has deleted nothing yet."""
    loop = RetentionLoop(
        log=owners,
        index=owners,
        policy=POLICY,
        history=RunHistory(MemoryFs(), Path("/history")),
        clock=clock,
    )
    loop.time.trust()  # the store was quiet until now
    return loop


async def stopped(segment_count: int) -> CountedMachine:
    """A store of so many segments, all of which but the last expire soon."""
    machine = CountedMachine()
    async with machine.running() as log:
        await fill(log, segment_count, BODY)
    machine.clock.advance((POLICY.retention_hours + 1) * HOUR_MS)
    return machine


async def test_a_run_that_deletes_nothing_asks_no_file() -> None:
    """Facts and decisions come from memory, by a bounded number of steps for a segment; nothing is mapped for them."""
    works = []
    for segment_count in SEGMENT_COUNTS:
        machine = await stopped(segment_count)
        async with machine.running() as log:
            owners = IndexedFacts(log)
            loop = janitor(owners, machine.clock)
            await log.disk.loop.stop()
            mapped_count = log.chain.maps.mapped_count
            with machine.fs.counted() as calls, instructions() as work:
                run = await loop.run_once(is_dry_run=True)
            assert len(run.decisions) == segment_count
            assert sum(decision.is_delete for decision in run.decisions) == min(MANUAL_ROUND_COUNT, segment_count - 1)
            assert not calls
            assert owners.list_call_count == 1
            assert log.chain.maps.mapped_count == mapped_count
            works.append(work.instruction_count)
    first, second = works[1] - works[0], works[2] - works[1]
    assert second <= 1.2 * first
    assert second <= INSTRUCTIONS_PER_SEGMENT_MAX * (SEGMENT_COUNTS[2] - SEGMENT_COUNTS[1])


async def test_a_deletion_costs_its_own_file() -> None:
    """The calls of a deletion are the calls of a single segment, which is not read, in a log of any length."""
    costs: list[Counter[str]] = []
    for segment_count in SEGMENT_COUNTS:
        machine = await stopped(segment_count)
        async with machine.running() as log:
            for background in (log.disk.loop, log.snapshot.loop):
                await background.stop()
            owners = IndexedFacts(log)
            first = (await owners.log_facts()).segments[0]
            with machine.fs.counted() as calls:
                await owners.delete_segment(first.base_physical_offset)
            assert [path.name for path in paths_of(calls, "remove")] == [f"{0:020d}"]
            assert not paths_of(calls, "read", "check_readable", "data_ranges", "write")
            costs.append(count_by_operation(calls))
    assert costs[0] == costs[1] == costs[2]
