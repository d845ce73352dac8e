# SPDX-License-Identifier: Apache-2.0
"""Reading records by offset and by range."""

import pytest

from libs.requests.errors import RecordDamaged, ServiceError
from services.commitlog.engine.follow.reader import RecordStretch
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.errors import BelowMinOffset, BeyondMaxOffset, NotARecord
from tests.support.commitlog import SEGMENT_SIZE, Machine, append, fill, message, records

MIB = 1 << 20


def stretches(log: OpenLog, start: int, end: int, size_bytes_max: int = MIB) -> list[RecordStretch]:
    """All stretches of a range."""
    return list(log.reader.stretches(start, end, size_bytes_max=size_bytes_max))


async def test_records_come_in_request_order_across_segments() -> None:
    """Each record is whole, in any order and from any segment."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        all_records = records(log)
        wanted = [all_records[-1], all_records[0], all_records[70], all_records[1]]
        batch = log.reader.read([r.physical_offset for r in wanted], [], size_bytes_max=MIB)
        assert batch.sizes == [r.size_bytes for r in wanted]
        raw = b"".join(bytes(piece) for run in batch.runs for piece in run.raw())
        assert len(raw) == sum(batch.sizes)
        sized = log.reader.read([wanted[0].physical_offset], [wanted[0].size_bytes], size_bytes_max=MIB)
        assert sized.sizes == [wanted[0].size_bytes]


async def test_answer_is_bounded() -> None:
    """The answer ends before the record that would make it too large, but has at least a record."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message(bytes(1000)) for _ in range(10)))
        offsets = [r.physical_offset for r in records(log)]
        assert len(log.reader.read(offsets, [], size_bytes_max=3500).sizes) == 3
        assert len(log.reader.read(offsets, [], size_bytes_max=10).sizes) == 1


async def test_what_is_no_longer_kept_has_size_0() -> None:
    """A record that was deleted has size 0, and the records that exist have their sizes."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 2)
        kept = records(log)[-1]
        await log.segments.delete([0], allow_unindexed=True)
        batch = log.reader.read([0, kept.physical_offset, 119], [], size_bytes_max=MIB)
        assert batch.sizes == [0, kept.size_bytes, 0]


@pytest.mark.parametrize(
    ("offset", "size", "error"),
    [
        pytest.param(1, 0, NotARecord, id="inside a record"),
        pytest.param(0, 7, NotARecord, id="another size"),
        pytest.param("blank", 0, NotARecord, id="a blank"),
        pytest.param("damaged", 0, RecordDamaged, id="damaged body"),
        pytest.param("damaged head", 0, RecordDamaged, id="damaged lengths"),
        pytest.param("end", 0, BeyondMaxOffset, id="at the end"),
        pytest.param(1 << 50, 0, BeyondMaxOffset, id="far beyond the end"),
    ],
)
async def test_no_record(offset: int | str, size: int, error: type[ServiceError]) -> None:
    """A read of an offset without a record gets an error that names the content of the place."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 2)
        all_records = records(log)
        last_of_first = next(r for r in reversed(all_records) if r.physical_offset < SEGMENT_SIZE)
        places = {
            "blank": last_of_first.physical_offset + last_of_first.size_bytes,
            "damaged": all_records[2].physical_offset,
            "damaged head": all_records[3].physical_offset,
            "end": log.chain.max_physical_offset,
        }
        machine.segment_bytes()[places["damaged"] + 200] ^= 1
        machine.segment_bytes()[places["damaged head"] + 86] ^= 1
        place = places[offset] if isinstance(offset, str) else offset
        with pytest.raises(error) as caught:
            log.reader.read([place], [size] if size else [], size_bytes_max=MIB)
        if isinstance(caught.value, RecordDamaged):
            assert (caught.value.segment, caught.value.position) == (f"{0:020d}", place)
        else:
            assert caught.value.field == "physical_offsets[0]"  # type: ignore[attr-defined]


async def test_nothing_unconfirmed_is_read() -> None:
    """With synchronous flushing a record that is not synced is invisible to readers."""
    machine = Machine(flush_mode="sync")
    async with machine.running() as log:
        batch = await append(log, durability=1)
        with pytest.raises(BeyondMaxOffset):
            log.reader.read([batch.start_physical_offset], [], size_bytes_max=MIB)
        await append(log, durability=2)
        assert log.reader.read([batch.start_physical_offset], [], size_bytes_max=MIB).sizes


@pytest.mark.parametrize("size_bytes_max", [1, 1500, 5000, MIB])
async def test_a_range_is_read_without_a_gap(size_bytes_max: int) -> None:
    """Stretches follow each other from the start to the end, over blanks, in steps of the requested size."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        found = stretches(log, 0, log.marks.visible.value, size_bytes_max)
        ends = [0] + [stretch.end_physical_offset for stretch in found]
        assert [stretch.start_physical_offset for stretch in found] == ends[:-1]
        assert ends[-1] == log.marks.visible.value
        sizes = [sum(stretch.run.sizes) for stretch in found]
        assert all(
            size <= size_bytes_max or len(stretch.run.sizes) == 1 for size, stretch in zip(sizes, found, strict=True)
        )
        assert sum(len(stretch.run.positions) for stretch in found) == log.pipeline.message_count


async def test_a_range_ends_with_the_record_that_starts_in_it() -> None:
    """A record that begins below the end is read whole; a record that begins at the end is not read."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message() for _ in range(4)))
        second, third = records(log)[1:3]
        exact = stretches(log, second.physical_offset, third.physical_offset)
        more = stretches(log, second.physical_offset, third.physical_offset + 1)
        assert [len(stretch.run.positions) for stretch in exact] == [1]
        assert [len(stretch.run.positions) for stretch in more] == [2]
        assert stretches(log, second.physical_offset, second.physical_offset) == []
        assert stretches(log, log.marks.visible.value, log.marks.visible.value) == []


async def test_range_errors() -> None:
    """A range must begin at a record or a segment that is kept; damage ends it after the whole records."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 3)
        end = log.marks.visible.value
        with pytest.raises(NotARecord):
            stretches(log, 5, end)
        with pytest.raises(BeyondMaxOffset):
            stretches(log, end + 1, end + 1)
        third = records(log)[2]
        machine.segment_bytes()[third.physical_offset + 200] ^= 1
        reading = log.reader.stretches(0, end, size_bytes_max=MIB)
        assert next(reading).end_physical_offset == third.physical_offset
        with pytest.raises(RecordDamaged):
            next(reading)
        await log.segments.delete([0], allow_unindexed=True)
        with pytest.raises(BelowMinOffset) as caught:
            stretches(log, 0, end)
        assert caught.value.min == SEGMENT_SIZE


async def test_a_range_that_is_being_read_holds_its_segment() -> None:
    """A segment is not deleted under a reader, and may be deleted when the reader is gone."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 2)
        reading = log.reader.stretches(0, log.marks.visible.value, size_bytes_max=1)
        next(reading)
        assert log.segments.list_from(0, 1)[0].reader_count == 1
        assert not (await log.segments.delete([0], allow_unindexed=True))[0].freed_bytes
        reading.close()
        assert (await log.segments.delete([0], allow_unindexed=True))[0].freed_bytes == SEGMENT_SIZE


async def test_records_before_a_damaged_one_are_read() -> None:
    """A damaged record fails only the read that begins with it; other records are read."""
    machine = Machine()
    async with machine.running() as log:
        for number in range(4):
            await append(log, message(b"%d" % number * 100))
        offsets = [one.physical_offset for one in records(log)]
        machine.segment_bytes()[offsets[2] + 100] ^= 1
        batch = log.reader.read(offsets, [], size_bytes_max=1 << 20)
        assert len(batch.sizes) == 2
        with pytest.raises(RecordDamaged):
            log.reader.read(offsets[2:], [], size_bytes_max=1 << 20)
        assert len(log.reader.read(offsets[3:], [], size_bytes_max=1 << 20).sizes) == 1
