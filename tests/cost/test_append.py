# SPDX-License-Identifier: Apache-2.0
"""An append costs its own messages: neither topics, nor segments, nor the length of a queue make it dearer.

With the uncompiled kernel its instructions are counted, too: `make test-pure` runs these tests.
"""

from collections import Counter

import pytest

from services.commitlog.engine.durable.acknowledge import DURABILITY_LOCAL_DISK, DURABILITY_MEMORY
from services.commitlog.engine.open_log import OpenLog
from tests.cost.counting_fs import bytes_by_operation, count_by_operation
from tests.cost.python_work import instructions, taken_memory
from tests.cost.stored import (
    BODY,
    TOPIC,
    CountedMachine,
    Growth,
    begin_segment,
    high_queue_offset,
    many_segments,
    many_topics,
    nothing,
)
from tests.support.commitlog import append, fill, message

GROWTHS = [many_topics, many_segments, high_queue_offset]
MESSAGE_COUNT = 10


async def append_batch(log: OpenLog, durability: int = DURABILITY_MEMORY) -> int:
    """Append some messages; the bytes that they took."""
    messages = [message(topic=TOPIC, queue_id=number % 4) for number in range(MESSAGE_COUNT)]
    batch = await append(log, *messages, durability=durability)
    return batch.end_physical_offset - batch.start_physical_offset


async def work_after(grow: Growth) -> tuple[int, int, int]:
    """Instructions, memory and bytes of the log that a batch takes in a store that has grown."""
    async with CountedMachine().running() as log:
        await append_batch(log)
        await grow(log)
        await begin_segment(log)
        await append_batch(log)
        with instructions() as work:
            size_bytes = await append_batch(log)
        with taken_memory() as memory:
            await append_batch(log)
    return work.instruction_count, memory.taken_bytes, size_bytes


@pytest.mark.parametrize("grow", GROWTHS)
async def test_a_batch_is_the_same_work_in_a_store_of_any_size(grow: Growth) -> None:
    """Instructions, memory and written bytes stay the same as in an empty store."""
    plain, grown = await work_after(nothing), await work_after(grow)
    assert grown[0] <= 1.02 * plain[0]
    assert grown[1] <= plain[1] + 2_048
    assert grown[2] == plain[2]


@pytest.mark.parametrize("grow", GROWTHS)
@pytest.mark.parametrize(
    ("durability", "expected"),
    [(DURABILITY_MEMORY, {"write": 1}), (DURABILITY_LOCAL_DISK, {"write": 1, "sync": 1})],
    ids=["memory", "disk"],
)
async def test_a_batch_is_one_write_and_its_sync(grow: Growth, durability: int, expected: dict[str, int]) -> None:
    """A batch for memory is a single write into the page cache, a batch for the disk also a single sync of a file."""
    machine = CountedMachine()
    async with machine.running() as log:
        await grow(log)
        await begin_segment(log)
        await append_batch(log)
        await append_batch(log, DURABILITY_LOCAL_DISK)
        with machine.fs.counted() as calls:
            await append_batch(log, durability)
    assert count_by_operation(calls) == expected


@pytest.mark.parametrize("message_count", [10, 100])
async def test_the_work_follows_the_messages(message_count: int) -> None:
    """Ten times the messages are at most ten times the work: nothing in a batch is looked at for each other message."""
    works = []
    async with CountedMachine().running() as log:
        for count in (message_count // 10, message_count):
            messages = [message(topic=TOPIC, queue_id=number % 4) for number in range(count)]
            await append(log, *messages)
            with instructions() as work:
                await append(log, *messages)
            works.append(work.instruction_count)
    assert works[1] <= 10 * works[0]


async def test_a_new_segment_costs_the_same_however_many_there_are() -> None:
    """The calls and bytes of a roll are those of a single file. Snapshots that a new segment wakes are not counted."""
    costs: list[tuple[Counter[str], dict[str, int]]] = []
    for segment_count in (3, 20):
        machine = CountedMachine()
        async with machine.running() as log:
            await fill(log, segment_count, BODY)
            await log.marks.flushed.soon(log.chain.max_physical_offset)
            await log.snapshot.loop.stop()
            with machine.fs.counted() as calls:
                await fill(log, segment_count + 1, BODY)
        costs.append((count_by_operation(calls), bytes_by_operation(calls)))
    assert costs[0] == costs[1]
    assert costs[0][0]["create_mapped"] == 1
