# SPDX-License-Identifier: Apache-2.0
"""A call that a client makes long works in steps: the work between two turns of the loop does not grow with it."""

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest
from reput.indexer.v1 import query_service_pb2, queue_service_pb2, scan_service_pb2

from libs.filters.building import CONDITION_COUNT_MAX
from libs.filters.property_filter import parse_where
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.answer import scan
from services.indexer.engine.answer.frames import FrameEncoder
from services.indexer.engine.answer.many_keys import SINGLE_KEY_COUNT_MAX
from services.indexer.engine.answer.plan import ScanPartition, ScanRange
from services.indexer.engine.answer.query import CANDIDATE_COUNT
from services.indexer.engine.answer.scan import ScanFilter
from services.indexer.engine.answer.where import passing
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.groups.pages import GroupPosition, page_of_groups
from services.indexer.engine.log.source import RecordBlock
from services.indexer.errors import MessageNotFound
from services.indexer.rpc.query_servicer import QueryServicer
from services.indexer.rpc.queue_servicer import QueueServicer
from services.indexer.rpc.scan_servicer import ScanServicer
from tests.cost.computed_log import WANTED_KEY, ComputedLog, hash_of
from tests.cost.indexed import indexed
from tests.cost.python_work import instructions
from tests.cost.turns import Turns, turns

STEP_INSTRUCTION_COUNT_MAX = 150_000
"""About 5 ms of the interpreter on a machine of today."""


def check(found: Turns, *, besides: int = 0) -> None:
    """Check the bound of all steps, with `besides` for a twin's work in a step."""
    assert 0 < found.longest_instruction_count <= STEP_INSTRUCTION_COUNT_MAX + besides


async def reading(log: ComputedLog) -> int:
    """Instructions for making the records of a step, which a real log has in its files."""
    offsets = np.arange(CANDIDATE_COUNT, dtype=np.int64) * log.record_size_bytes
    with instructions() as work:
        await log.read(offsets)
    return work.instruction_count


def committed(*, group_count: int, queue_count: int) -> ConsumerOffsets:
    """Offsets of as many groups in as many queues each, not saved yet."""
    offsets = ConsumerOffsets(MemoryFs(), Path("/data/offsets"), ManualClock(), count_max=10**6)
    for group in range(group_count):
        offsets.commit(f"g{group}", {(f"T{queue % 7}", queue): group for queue in range(queue_count)})
    return offsets


async def test_consumer_offsets_are_saved_in_steps() -> None:
    """Many groups with a queue each, and a group with many queues of several topics."""
    for offsets in (committed(group_count=8_000, queue_count=1), committed(group_count=1, queue_count=8_000)):
        async with turns() as found:
            await offsets.save()
        check(found)


async def test_consumer_groups_are_listed_in_steps() -> None:
    """A page of them walks over all, and so does a page of a large group."""
    for offsets in (committed(group_count=8_000, queue_count=1), committed(group_count=1, queue_count=8_000)):
        async with turns() as found:
            await page_of_groups(offsets, GroupPosition(), group_count_max=100, offset_count_max=1_000)
        check(found)


async def test_a_look_up_among_colliding_keys_works_in_steps() -> None:
    """QueryById of an id that no message has, whose hash thousands of other keys have; and a scan of such a key."""
    log = CollidingLog(3_000)
    indexer = await indexed(log)
    async with turns() as found:
        with pytest.raises(MessageNotFound):
            await indexer.answers.queries.by_unique_id("topic-00000", log.stranger)
    check(found, besides=await reading(log))
    assert found.count >= log.record_count / CANDIDATE_COUNT
    partition = ScanPartition(key_topic="topic-00000", keys=(log.stranger,))
    async with turns() as found:
        assert [
            chunk async for chunk in indexer.answers.scanner.scan(partition, ScanFilter(), chunk_size_bytes=1 << 20)
        ] == []
    check(found, besides=await reading(log))


async def test_as_many_keys_as_a_request_may_have_are_looked_up_in_steps() -> None:
    """QueryByKeys of 1,024 keys: of messages, of none, and of thousands of others with the same hash."""
    log = ComputedLog(3_000)
    servicer = QueryServicer((await indexed(log)).answers)
    for keys in ([log.key(number) for number in range(1_024)], [f"none-{number}" for number in range(1_024)]):
        request = query_service_pb2.QueryByKeysRequest(topic="topic-00000", keys=keys)
        async with turns() as found:
            await servicer.QueryByKeys(request, None)
        check(found)
    log = CollidingLog(3_000)
    servicer = QueryServicer((await indexed(log)).answers)
    async with turns() as found:
        keys = [log.stranger] * 1_024
        answer = await servicer.QueryByKeys(query_service_pb2.QueryByKeysRequest(topic="topic-00000", keys=keys), None)
    check(found, besides=await reading(log))
    assert 0 < len(query_service_pb2.QueryByKeysResponse.FromString(answer).matches) <= SINGLE_KEY_COUNT_MAX


async def test_a_caller_who_goes_away_ends_the_look_up() -> None:
    """After a few turns, not after all that it would have looked at."""
    log = CollidingLog(3_000)
    indexer = await indexed(log)
    task = asyncio.create_task(indexer.answers.queries.by_unique_id("topic-00000", log.stranger))
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert log.read_record_count < log.record_count / 4


async def test_records_are_filtered_in_steps() -> None:
    """By a single condition, and by as many as there may be, none of which holds."""
    log = ComputedLog(4_096)
    block = await log.read(np.arange(log.record_count, dtype=np.int64) * log.record_size_bytes)
    for condition_count, record_count in ((1, log.record_count), (CONDITION_COUNT_MAX, 64)):
        where = parse_where(" OR ".join(["KEYS = 'nobody'"] * condition_count), field="where")
        async with turns() as found:
            assert len(await passing(where, block, np.arange(record_count))) == 0
        check(found)
        assert found.count > 10


async def test_queues_are_listed_in_steps() -> None:
    """A page of a thousand of them."""
    indexer = await indexed(ComputedLog(2_000, topic_count=2_000))
    servicer = QueueServicer(indexer.answers, stream_count_max=1)
    async with turns() as found:
        page = await servicer.ListQueues(queue_service_pb2.ListQueuesRequest(page_size=1_000), None)
    assert len(page.queues) == 1_000
    check(found)


async def test_plans_are_made_in_steps() -> None:
    """Of many queue ids, ranges, partitions, and of all together with keys."""
    indexer = await indexed(ComputedLog(10_000))
    servicer = ScanServicer(indexer.answers, indexer.follow.polls)
    one = scan_service_pb2.ScanRange(topic="topic-00000", queue_id=0, start_queue_offset=1, end_queue_offset=2)
    for request in (
        scan_service_pb2.PlanScanRequest(topics=["topic-00000"], queue_ids=range(10_000)),
        scan_service_pb2.PlanScanRequest(topics=["topic-00000"], ranges=[one] * 3_000),
        scan_service_pb2.PlanScanRequest(topics=["topic-00000"], partition_row_count_max=4),
        scan_service_pb2.PlanScanRequest(
            topics=["topic-00000"], ranges=[one] * 3_000, filter=scan_service_pb2.ScanFilter(keys=["k"])
        ),
    ):
        async with turns() as found:
            await servicer.PlanScan(request, None)
        check(found)


async def test_a_scan_of_many_ranges_works_in_steps() -> None:
    """Empty ranges, and the ranges that a partition of keys is cut to, in which each record must lie."""
    log = ComputedLog(20_000, wanted=range(2_000))
    indexer = await indexed(log)
    empty = tuple(ScanRange("topic-00000", 0, 5, 5) for _ in range(10_000))
    small = tuple(ScanRange("topic-00000", 0, offset, offset + 1) for offset in range(0, 20_000, 2))
    for partition, row_count in (
        (ScanPartition(ranges=empty), 0),
        (ScanPartition(ranges=small, key_topic="topic-00000", keys=(WANTED_KEY,)), 1_000),
    ):
        async with turns() as found:
            chunks = [
                chunk async for chunk in indexer.answers.scanner.scan(partition, ScanFilter(), chunk_size_bytes=1 << 20)
            ]
        assert sum(len(chunk.found.sizes) for chunk in chunks) == row_count
        check(found, besides=await reading(log))


async def test_a_large_frame_is_made_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small frame is not: it is quick, and a thread would cost more than it spares."""
    log = ComputedLog(5_000)
    indexer = await indexed(log)
    servicer = ScanServicer(indexer.answers, indexer.follow.polls)
    monkeypatch.setattr(scan, "LOOP_FRAME_SIZE_BYTES_MAX", 400 * log.record_size_bytes)
    makers: dict[int, threading.Thread] = {}
    encode = FrameEncoder.encode

    def noted(encoder: FrameEncoder, found: RecordBlock) -> memoryview:
        makers[len(found.sizes)] = threading.current_thread()
        return encode(encoder, found)

    monkeypatch.setattr(FrameEncoder, "encode", noted)
    for row_count in (400, 401):
        one = scan_service_pb2.ScanRange(topic="topic-00000", end_queue_offset=row_count)
        request = scan_service_pb2.ScanRequest(partition=scan_service_pb2.ScanPartition(ranges=[one]))
        assert len([answer async for answer in servicer.Scan(request, None)]) == 1
    assert makers[400] is threading.main_thread()
    assert makers[401] is not threading.main_thread()


class CollidingLog(ComputedLog):
    """A log whose keys all have the same hash, and so has a key that no record has."""

    stranger = "Aa" * 13
    """`Aa` and `BB` have the same hash, and so have all texts of them that are equally long."""

    def __init__(self, record_count: int) -> None:
        super().__init__(record_count)
        assert len({hash_of("topic-00000", self.key(number)) for number in (0, 1, record_count - 1)}) == 1

    def key(self, number: int) -> str:
        """As many texts as bits allow, the stranger not among them."""
        return "".join("Aa" if bit == "0" else "BB" for bit in f"{number + 1:013b}")
