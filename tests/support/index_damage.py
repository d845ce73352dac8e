# SPDX-License-Identifier: Apache-2.0
"""All kinds of damage of a store's queues and index files, with the codes that name them."""

import asyncio
import os
import shutil
import struct
from pathlib import Path

from libs.formats.indexes.consume_queue import PRE_BLANK
from libs.formats.indexes.index_file import entry_position
from libs.formats.limits import INT32_MAX
from libs.formats.state.index_filter import FILTER_HEADER_SIZE_BYTES, header_seed
from libs.formats.state.index_progress import IndexProgress
from libs.kernel.scan.filter_cy import seal_filter
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.manual_clock import ManualClock
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.upkeep.filter_loop import FilterLoop
from tests.support import reference
from tests.support.damage import Case, Target
from tests.support.made_store import ENTRY_CAPACITY, QUEUE_FILE_SIZE, SLOT_COUNT

LONG, INT = struct.Struct(">q"), struct.Struct(">i")


def _of_queue(t: Target, queue_id: int) -> list[int]:
    return [found.physical_offset for found in t.records if (found.topic, found.queue_id) == ("orders", queue_id)]


def _second_file(t: Target) -> Path:
    return t.queue() / f"{QUEUE_FILE_SIZE:020d}"


def _delayed_file(t: Target) -> Path:
    return next(t.root.glob("consumequeue/SCHEDULE_TOPIC_XXXX/*/*"))


def _zero_last_units(t: Target) -> None:
    for number in (t.unit_count() - 2, t.unit_count() - 1):
        t.write_unit(number, bytes(20))


def _swap_without_log(t: Target) -> None:
    shutil.rmtree(t.root / "commitlog")
    first, second = _of_queue(t, 1)[3:5]
    t.write_unit(3, LONG.pack(second))
    t.write_unit(4, LONG.pack(first))


def _swap_entries_without_log(t: Target) -> None:
    shutil.rmtree(t.root / "commitlog")
    t.write_entry(0, 50, LONG.pack(t.entry(0, 90).physical_offset), 4)


def _zero_header_count(t: Target) -> None:
    t.write(t.index_files[1], 36, INT.pack(60))


def _entry_with(t: Target, file: int, *, has_previous: bool) -> int:
    """The number of an entry in the middle that has an older entry in its bucket, or has none."""
    numbers = range(10, ENTRY_CAPACITY - 2)
    return next(number for number in numbers if (t.entry(file, number).previous_entry > 0) == has_previous)


def _insert_entry(t: Target) -> None:
    """Enter the last entry of the last file once more, as a replay that does not know its end would."""
    path = t.index_files[-1]
    header = t.header(-1)
    number = header.next_entry
    last = t.entry(-1, number - 1)
    t.write_entry(
        -1, number, INT.pack(last.key_hash) + LONG.pack(last.physical_offset) + INT.pack(last.time_difference_s)
    )
    t.write_entry(-1, number, INT.pack(number - 1), 16)
    t.write(path, 40 + 4 * (last.key_hash % SLOT_COUNT), INT.pack(number))
    t.write(path, 36, INT.pack(number + 1))


def _add_entry(t: Target, physical_offset: int) -> None:
    _insert_entry(t)
    t.write_entry(-1, t.header(-1).next_entry - 1, LONG.pack(physical_offset), 4)
    t.write(t.index_files[-1], 24, LONG.pack(physical_offset))


def _drop_first_file(t: Target) -> None:
    t.index_files[0].unlink()


def _drop_first_file_as_rocketmq(t: Target) -> None:
    shutil.rmtree(t.root / "reput")
    t.index_files[0].unlink()


def _trim_first_file(t: Target) -> None:
    """Remove the first file as the Indexer does, after a change of index_progress."""
    t.edit_progress(lambda fields: fields.update(index_finished_count=fields["index_finished_count"] - 1))
    t.index_files[0].unlink()


def _drop_last_file(t: Target) -> None:
    t.index_files[-1].unlink()


def _drop_last_file_and_be_behind(t: Target) -> None:
    end = t.header(-2).end_physical_offset + 1
    t.index_files[-1].unlink()
    t.edit_progress(lambda fields: fields.update(index_physical_offset=end))


def _first_time_of_rocketmq(t: Target) -> None:
    """Count the first entry of the second file from the end of the first file."""
    difference = (t.header(1).begin_time_ms - t.header(0).end_time_ms) // 1000
    assert difference > 0
    t.write_entry(1, 1, INT.pack(difference), 12)


def _be_behind(t: Target) -> None:
    """Remove the units of the last records, and set the progress of the queues before them."""
    start = next(found.physical_offset for found in t.records[-3:])
    for path in (t.root / "consumequeue").glob("*/*/*"):
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 20):
            if LONG.unpack_from(data, at)[0] >= start:
                data[at : at + 20] = bytes(20)
        path.write_bytes(data)
    t.edit_progress(lambda fields: fields.update(queue_physical_offset=start))


def _trim(t: Target) -> None:
    """Remove a queue's first file as the Indexer does, after a change of index_progress."""
    t.edit_progress(lambda fields: fields.update(queue_start_sum=fields["queue_start_sum"] + QUEUE_FILE_SIZE // 20))
    min(t.queue().iterdir()).unlink()


def _drop_queue(t: Target) -> None:
    """Remove a queue without the Indexer's knowledge; the Indexer had kept its end at an earlier rebuild."""
    end = ["orders", 1, t.unit_count(), _of_queue(t, 1)[-1]]
    t.write_log_history(ends=[end])
    shutil.rmtree(t.queue())


def _remove_queue(t: Target) -> None:
    """Remove a queue as the Indexer does: it keeps the end, and no longer counts the queue."""
    count = t.unit_count()
    _drop_queue(t)
    t.edit_progress(lambda fields: fields.update(queue_end_sum=fields["queue_end_sum"] - count))


def _begin_anew(t: Target) -> None:
    """A queue was removed after some units, and began anew behind them: fillers, then units."""
    places = _of_queue(t, 1)
    t.write_log_history(ends=[["orders", 1, 20, places[19]]])
    for number in range(20):
        t.write_unit(number, PRE_BLANK)


def filter_of(t: Target) -> Path:
    """Give the finished index files their filters, as the Indexer does, and return the second."""
    progress = IndexProgress.decode((t.root / "reput" / "index_progress").read_bytes())
    sizes = {"slot_count": SLOT_COUNT, "entry_capacity": ENTRY_CAPACITY}
    table = IndexTable(PosixFs(), t.root / "index", ManualClock(), **sizes)
    table.load(progress)
    loop = FilterLoop(table, interval_ms=1)
    while table.without_filter():
        asyncio.run(loop.give())
    table.close()
    return t.root / "reput" / "index_filters" / t.index_files[1].name


def _deny(t: Target) -> None:
    """Clear the bits of a filter, with right checks."""
    path = filter_of(t)
    data = bytearray(path.read_bytes())
    blocks = memoryview(data)[FILTER_HEADER_SIZE_BYTES:]
    blocks[:] = bytes(len(blocks))
    seal_filter(blocks, header_seed(data))
    path.write_bytes(data)


def _rename_filter(t: Target) -> None:
    path = filter_of(t)
    path.rename(path.parent / t.index_files[0].name)


QUEUES = [
    Case("QUEUE_DIRECTORY_NAME", lambda t: (t.queue().parent / "one").mkdir()),
    Case("QUEUE_DIRECTORY_NAME", lambda t: (t.root / "consumequeue" / "bad topic").mkdir(), "topic"),
    Case("QUEUE_FILE_NAME", lambda t: (t.queue() / "0001").write_bytes(b"")),
    Case(
        "QUEUE_FILE_NAME",
        lambda t: (t.queue() / f"{10_000 * QUEUE_FILE_SIZE + 20:020d}").write_bytes(bytes(640)),
        "position",
        frozenset({"QUEUE_FILE_MISSING"}),
    ),
    Case("QUEUE_FILE_SIZE", lambda t: os.truncate(_second_file(t), 100), is_rebuilt=True),
    Case("QUEUE_FILE_MISSING", lambda t: _second_file(t).unlink(), is_rebuilt=True),
    Case("QUEUE_MISSING", lambda t: shutil.rmtree(t.queue()), is_rebuilt=True),
    Case("QUEUE_MISSING", _drop_queue, "its end is known", is_rebuilt=True),
    Case("QUEUES_REMOVED", _begin_anew, "begun anew", is_note=True, is_rebuilt=True),
    Case("QUEUES_REMOVED", _remove_queue, is_note=True, is_rebuilt=True),
    Case("QUEUE_UNIT_MISSING", _zero_last_units, is_rebuilt=True),
    Case("QUEUE_UNIT_HOLE", lambda t: t.write_unit(5, bytes(40)), is_rebuilt=True),
    Case("QUEUE_UNIT_INVALID", lambda t: t.write_unit(5, b"\xff", 8), is_rebuilt=True),
    Case("QUEUE_UNIT_SIZE", lambda t: t.write_unit(5, b"\x01", 10), is_rebuilt=True),
    Case("QUEUE_UNIT_TAGS", lambda t: t.write_unit(5, b"\x01", 19), is_rebuilt=True),
    Case("QUEUE_DELIVERY_TIME", lambda t: t.flip(_delayed_file(t), 18), is_rebuilt=True),
    Case("QUEUE_DELIVERY_HASH", lambda t: t.write(_delayed_file(t), 12, LONG.pack(-77)), is_note=True, is_rebuilt=True),
    Case("QUEUE_UNIT_OTHER_RECORD", lambda t: t.write_unit(5, LONG.pack(_of_queue(t, 2)[9])), is_rebuilt=True),
    Case("QUEUE_UNIT_TO_NOTHING", lambda t: t.write_unit(5, LONG.pack(_of_queue(t, 1)[9] + 1)), is_rebuilt=True),
    Case("QUEUE_UNIT_PAST_END", lambda t: t.write_unit(5, LONG.pack(1 << 40)), is_rebuilt=True),
    Case(
        "QUEUE_UNIT_PAST_END",
        lambda t: t.write_unit(t.unit_count(), reference.queue_unit(1 << 40, 100, 0)),
        "surplus",
        is_rebuilt=True,
    ),
    Case(
        "QUEUE_UNIT_OTHER_RECORD",
        lambda t: t.write_unit(t.unit_count(), reference.queue_unit(0, 100, 0)),
        "surplus",
        is_rebuilt=True,
    ),
    Case("QUEUE_UNIT_ORDER", _swap_without_log, others=frozenset({"NO_LOG"})),
    Case("QUEUE_PRE_BLANK", lambda t: t.write_unit(5, PRE_BLANK), is_rebuilt=True),
    Case("QUEUE_RUBBISH", lambda t: t.write_unit(t.unit_count() + 2, b"\xee" * 20), is_rebuilt=True),
    Case("QUEUES_BEHIND", _be_behind, is_note=True, is_rebuilt=True),
    Case("QUEUES_TRIMMED", _trim, is_note=True, is_rebuilt=True),
    Case("QUEUE_UNIT_HOLE", lambda t: min(t.queue().iterdir()).unlink(), "first file", is_rebuilt=True),
]
INDEX = [
    Case("INDEX_FILE_NAME", lambda t: (t.root / "index" / "20231301000000000").write_bytes(b"")),
    Case(
        "INDEX_FILE_SIZE",
        lambda t: os.truncate(t.index_files[2], 999),
        others=frozenset({"INDEX_ENTRY_MISSING"}),
        is_rebuilt=True,
    ),
    Case("INDEX_HEADER_COUNT", _zero_header_count, is_rebuilt=True),
    Case(
        "INDEX_HEADER_COUNT", lambda t: t.write(t.index_files[-1], 36, INT.pack(INT32_MAX)), "too many", is_rebuilt=True
    ),
    Case("INDEX_HEADER_SLOTS", lambda t: t.write(t.index_files[1], 32, INT.pack(3)), is_rebuilt=True),
    Case("INDEX_HEADER_OFFSET", lambda t: t.flip(t.index_files[1], 23), "first", is_rebuilt=True),
    Case("INDEX_HEADER_OFFSET", lambda t: t.flip(t.index_files[1], 31), "last", is_rebuilt=True),
    Case("INDEX_HEADER_TIME", lambda t: t.flip(t.index_files[1], 6), "first", is_rebuilt=True),
    Case("INDEX_HEADER_TIME", lambda t: t.flip(t.index_files[1], 15), "last", is_rebuilt=True),
    Case("INDEX_SLOT", lambda t: t.write(t.index_files[1], t.used_slot(1), INT.pack(1)), is_rebuilt=True),
    Case("INDEX_SLOT_RANGE", lambda t: t.write(t.index_files[1], t.used_slot(1), INT.pack(-1)), is_rebuilt=True),
    Case(
        "INDEX_LINK", lambda t: t.write_entry(1, _entry_with(t, 1, has_previous=True), INT.pack(0), 16), is_rebuilt=True
    ),
    Case("INDEX_LINK_FORWARD", lambda t: t.write_entry(1, 20, INT.pack(30), 16), is_rebuilt=True),
    Case("INDEX_LINK_FORWARD", lambda t: t.write_entry(1, 20, INT.pack(20), 16), "to itself", is_rebuilt=True),
    Case("INDEX_LINK_RANGE", lambda t: t.write_entry(1, 20, INT.pack(9999), 16), is_rebuilt=True),
    Case("INDEX_ENTRY_HASH", lambda t: t.flip(t.index_files[1], entry_position(20, SLOT_COUNT)), is_rebuilt=True),
    Case(
        "INDEX_ENTRY_OFFSET",
        lambda t: t.write_entry(1, 20, LONG.pack(t.records[-1].physical_offset), 4),
        is_rebuilt=True,
    ),
    Case("INDEX_ENTRY_TIME", lambda t: t.write_entry(1, 20, INT.pack(7777), 12), is_rebuilt=True),
    Case(
        "INDEX_ENTRY_OTHER",
        lambda t: t.write_entry(1, 20, bytes(12) + t.entry(1, 20).time_difference_s.to_bytes(4, "big")),
        is_rebuilt=True,
    ),
    Case("INDEX_ENTRY_ORDER", _swap_entries_without_log, others=frozenset({"NO_LOG"})),
    Case("INDEX_ENTRY_MISSING", _drop_first_file, "first file", is_rebuilt=True),
    Case("INDEX_ENTRY_MISSING", _drop_last_file, "last file", is_rebuilt=True),
    Case("INDEX_TRIMMED", _trim_first_file, is_note=True, is_rebuilt=True),
    Case("INDEX_ENTRY_SURPLUS", lambda t: _add_entry(t, t.records[-1].physical_offset + 1), is_rebuilt=True),
    Case("INDEX_ENTRY_PAST_END", lambda t: _add_entry(t, t.end_physical_offset), is_rebuilt=True),
    Case("INDEX_RUBBISH", lambda t: t.write_entry(-1, ENTRY_CAPACITY - 2, b"\x01" * 20), is_rebuilt=True),
    Case("INDEX_RUBBISH", lambda t: t.write_entry(1, 0, b"\x01"), "entry 0", is_rebuilt=True),
    Case("INDEX_ENTRY_DOUBLED", _insert_entry, is_note=True, is_rebuilt=True),
    Case("INDEX_FIRST_TIME", _first_time_of_rocketmq, is_note=True, is_rebuilt=True),
    Case("INDEX_RANGE_MISSING", _drop_first_file_as_rocketmq, is_note=True, is_rebuilt=True),
    Case("INDEX_FILTER_DAMAGED", lambda t: t.flip(filter_of(t), 200), is_rebuilt=True),
    Case("INDEX_FILTER_DAMAGED", lambda t: t.flip(filter_of(t), 50), "header", is_rebuilt=True),
    Case("INDEX_FILTER_DAMAGED", lambda t: os.truncate(filter_of(t), 129), "size", is_rebuilt=True),
    Case("INDEX_FILTER_DENIES", _deny, is_rebuilt=True),
    Case("INDEX_FILTER_UNUSED", _rename_filter, is_note=True, is_rebuilt=True),
    Case("INDEX_FILTER_UNUSED", lambda t: (filter_of(t).parent / f"{0:017d}").write_bytes(b""), "alone", is_note=True),
    Case(
        "INDEX_BEHIND",
        _drop_last_file_and_be_behind,
        is_note=True,
        is_rebuilt=True,
    ),
]
