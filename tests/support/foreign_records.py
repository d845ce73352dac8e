# SPDX-License-Identifier: Apache-2.0
"""Records that another program appends to a store, and the counters of queues that follow them."""

from services.commitlog.engine.open_log import OpenLog
from tests.support.commitlog import DATA_DIR, Machine, append, message
from tests.support.records import encoded

Placed = tuple[int, int]
"""Queue and queue offset of a record."""


def write_foreign(machine: Machine, placed: list[Placed]) -> None:
    """Append records to the first segment as another program does, while no process has the store open."""
    data = machine.segment_bytes()
    end = len(bytes(data).rstrip(b"\0"))
    for queue_id, queue_offset in placed:
        made = encoded(
            end,
            topic="orders",
            queue_id=queue_id,
            queue_offset=queue_offset,
            body=b"foreign",
            store_time_ms=machine.clock.now_ms(),
        )
        data[end : end + len(made)] = made
        end += len(made)
    machine.fs.append(DATA_DIR / "abort", b"4711")


def next_of(log: OpenLog, queue_id: int = 0) -> int:
    """The queue offset of a queue's next message."""
    return log.topics.table.next_queue_offset(b"orders", queue_id)


async def append_offset(log: OpenLog, queue_id: int = 0) -> int:
    """Append a message. Returns its queue offset."""
    batch = await append(log, message(queue_id=queue_id))
    return int(memoryview(batch.queue_offsets).cast("q")[0])
