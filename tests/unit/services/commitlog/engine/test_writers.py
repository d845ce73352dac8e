# SPDX-License-Identifier: Apache-2.0
"""A writer's batch is stored once, as a whole, even if it is sent again and after any failure in between."""

import asyncio
from typing import Any

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats.limits import INT64_MAX
from libs.formats.protobuf_wire import length_delimited
from libs.formats.state.queue_snapshot import WriterBatch
from libs.log.end import ScanEndKind
from libs.machine.testing.memory_fs import nothing_survives
from libs.requests.errors import BadArgument, MalformedRequest
from services.commitlog.engine.durable.acknowledge import DURABILITY_LOCAL_DISK
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.writers import WriterTable
from services.commitlog.errors import (
    BatchTooLarge,
    LogDamaged,
    TopicForbidden,
    WriterContentDiffers,
    WriterForgotten,
    WriterSequenceGap,
)
from tests.support.commitlog import (
    BORN_HOST,
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    durability_of,
    message,
    records,
    request,
)

Place = tuple[int, int, int]


def batch_of(name: str, sequence: int, *contents: bytes, durability: int = 0, **fields: Any) -> bytes:
    """A request of a writer; by default with a single message and a text of its own."""
    messages = [message(content, **fields) for content in contents or (f"{name}:{sequence}".encode(),)]
    return request(*messages, durability=durability, writer=pb.Writer(id=name, sequence=sequence))


async def send(log: OpenLog, *sent: bytes) -> list[AppendedBatch]:
    """Append requests in order."""
    return [await log.pipeline.append(one, BORN_HOST) for one in sent]


def places(batches: list[AppendedBatch]) -> list[Place]:
    """Where batches are, and when they were stored."""
    return [(one.start_physical_offset, one.end_physical_offset, one.store_time_ms) for one in batches]


async def test_a_batch_that_is_sent_again_is_stored_once() -> None:
    """A repeated batch gets the first answer, without columns, and nothing is appended."""
    machine = Machine()
    sent = [batch_of("etl/0", sequence, b"a%d" % sequence, b"b%d" % sequence) for sequence in range(3)]
    async with machine.running() as log:
        first = await send(log, *sent)
        again = await send(log, *sent, *sent)
        assert [one.is_repeated for one in first + again] == [False] * 3 + [True] * 6
        assert places(again) == places(first) * 2
        assert all((one.message_count, one.physical_offsets, one.queue_ids) == (0, b"", b"") for one in again)
        assert bodies(log) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]
        statistics = statistics_of(log)
        assert (statistics.appended_messages_total, statistics.repeated_batches_total) == (6, 6)


@pytest.mark.parametrize("has_snapshot", [False, True])
@pytest.mark.parametrize("end", ["clean stop", "kill", "power cut"])
async def test_the_log_tells_of_its_writers_after_any_end(end: str, *, has_snapshot: bool) -> None:
    """A start finds the writers in the snapshot, or in the records behind it."""
    machine = Machine()
    sent = [batch_of(name, sequence) for sequence in range(3) for name in ("a", "b")]
    log = await machine.start()
    first = await send(log, *sent[:3])
    if has_snapshot:
        await log.snapshot.save()
    first += await send(log, *sent[3:])
    if end == "clean stop":
        await machine.stop(log)
        if not has_snapshot:
            machine.fs.remove(DATA_DIR / "reput" / "queue_offsets")
    else:
        await log.marks.flushed.soon(log.chain.max_physical_offset)
        await machine.kill(log, *([nothing_survives] if end == "power cut" else []))
    async with machine.running() as log:
        again = await send(log, *sent)
        assert (places(again), {one.is_repeated for one in again}) == (places(first), {True})
        (new,) = await send(log, batch_of("b", 3))
        assert not new.is_repeated
        assert len(bodies(log)) == 7


async def test_a_writer_numbers_its_batches_without_a_gap() -> None:
    """A batch that is neither the writer's next nor a stored batch is refused by name, and changes nothing."""
    async with Machine().running() as log:
        await send(log, batch_of("w", 0), batch_of("w", 1))
        with pytest.raises(WriterSequenceGap, match="batch 3 of writer w has come too early, 2 is next") as gap:
            await send(log, batch_of("w", 3))
        assert (gap.value.field, gap.value.value, gap.value.expected) == ("writer.sequence", 3, 2)
        with pytest.raises(WriterContentDiffers, match="batch 1 of writer w is stored with other content"):
            await send(log, batch_of("w", 1, b"something else"))
        with pytest.raises(WriterForgotten, match="batch 1 of writer new is not among those that are remembered"):
            await send(log, batch_of("new", 1))
        assert bodies(log) == [b"w:0", b"w:1"]
        await send(log, batch_of("w", 2))


async def test_a_refused_batch_does_not_count() -> None:
    """The writer sends the number of a refused batch again, and batches behind the refused batch are refused, too."""
    async with Machine().running() as log:
        with pytest.raises(TopicForbidden):
            await send(log, batch_of("w", 0, topic="SCHEDULE_TOPIC_XXXX"))
        with pytest.raises(WriterForgotten):
            await send(log, batch_of("w", 1))
        await send(log, batch_of("w", 0), batch_of("w", 1))
        assert bodies(log) == [b"w:0", b"w:1"]


@pytest.mark.parametrize(
    ("writer", "field"),
    [
        (pb.Writer(), "writer.id"),
        (pb.Writer(id="has a space"), "writer.id"),
        (pb.Writer(id="ü"), "writer.id"),
        (pb.Writer(id="x" * 201), "writer.id"),
        (pb.Writer(id="w", sequence=-1), "writer.sequence"),
        (pb.Writer(id="w", sequence=INT64_MAX), "writer.sequence"),
    ],
)
async def test_a_bad_writer_is_refused(writer: pb.Writer, field: str) -> None:
    """A bad writer is refused with the name of its field, and leaves no record."""
    async with Machine().running() as log:
        with pytest.raises(BadArgument) as refused:
            await send(log, request(writer=writer))
        assert refused.value.field == field
        assert bodies(log) == []


@pytest.mark.parametrize("writer", [b"\x0a\x05ab", b"\x08\x01", b"\x12\x01a", b"\x0b"])
async def test_a_malformed_writer_is_refused(writer: bytes) -> None:
    """Bytes that are no Writer are refused as malformed."""
    async with Machine().running() as log:
        with pytest.raises(MalformedRequest):
            await send(log, request() + length_delimited(3, writer))


async def test_two_calls_of_one_batch_at_once() -> None:
    """If calls of the same batch wait for a topic or a segment, one call stores it and the others find it."""
    async with Machine().running() as log:
        sent = batch_of("w", 0, bytes(3000), topic="made-now")
        batches = await asyncio.gather(*(log.pipeline.append(sent, BORN_HOST) for _ in range(4)))
        assert sorted(one.is_repeated for one in batches) == [False, True, True, True]
        while SEGMENT_SIZE - log.chain.max_physical_offset % SEGMENT_SIZE > 3000:
            await append(log, message(bytes(2000)))
        sent = batch_of("w", 1, bytes(3000))
        batches = await asyncio.gather(*(log.pipeline.append(sent, BORN_HOST) for _ in range(4)))
        assert sorted(one.is_repeated for one in batches) == [False, True, True, True]
        assert len({one.start_physical_offset for one in batches}) == 1
        assert batches[0].start_physical_offset == SEGMENT_SIZE


async def test_a_repeated_batch_waits_for_its_durability() -> None:
    """A batch that is repeated with LOCAL_DISK is answered when it is on the disk.

    It may be behind batches that wait.
    """
    machine = Machine()
    log = await machine.start()
    sent = [batch_of("w", sequence, durability=2) for sequence in range(3)]
    for one in sent:
        await log.pipeline.append(one, BORN_HOST)
    repeated = await send(log, *reversed(sent))
    assert [await durability_of(log, batch) for batch in repeated] == [DURABILITY_LOCAL_DISK] * 3
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == [b"w:0", b"w:1", b"w:2"]


async def test_a_torn_batch_is_cut_as_a_whole() -> None:
    """A batch whose write stopped at any byte is cut whole at the start, and can be stored again."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(b"before"))
    await log.marks.flushed.soon(log.chain.max_physical_offset)
    sent = batch_of("w", 0, *(b"%d" % number for number in range(4)), queue_id=2)
    ((start, end, _),) = places(await send(log, sent))
    bounds = [found.physical_offset for found in records(log, start)]
    await machine.kill(log)
    whole = bytes(machine.segment_bytes()[start:end])
    for cut in sorted({*bounds, *(bound + 50 for bound in bounds), end - 1}):
        torn = Machine()
        log = await torn.start()
        await append(log, message(b"before"))
        await log.marks.flushed.soon(log.chain.max_physical_offset)
        await torn.kill(log)
        torn.segment_bytes()[start:cut] = whole[: cut - start]
        log = await torn.start()
        assert bodies(log) == [b"before"], cut
        assert log.recovery.scan_end is (ScanEndKind.TORN_TAIL if cut > start else ScanEndKind.CLEAN)
        assert log.recovery.truncated_bytes == cut - start
        assert log.topics.table.next_queue_offset(b"orders", 2) == 0
        assert not any(torn.segment_bytes()[start:])
        (stored,) = await send(log, sent)
        assert not stored.is_repeated
        assert [found.queue_offset for found in records(log, start)] == [0, 1, 2, 3]
        await torn.stop(log)
        async with torn.running() as log:
            assert log.recovery.scan_end is ScanEndKind.CLEAN
            assert (await send(log, sent))[0].is_repeated


async def test_a_torn_batch_at_the_beginning_of_a_segment() -> None:
    """The segment is empty again, and the next start expects no records as new as the cut records."""
    machine = Machine()
    log = await machine.start()
    await append(log, message(bytes(SEGMENT_SIZE - 500)))
    machine.clock.advance(60)
    ((start, _, _),) = places(await send(log, batch_of("w", 0, b"a", bytes(2000))))
    assert start == SEGMENT_SIZE
    last = records(log)[-1].physical_offset
    await machine.kill(log)
    machine.segment_bytes(SEGMENT_SIZE)[last - SEGMENT_SIZE + 100 :] = bytes(2 * SEGMENT_SIZE - last - 100)
    for _ in range(2):
        log = await machine.start()
        assert (len(bodies(log)), log.chain.max_physical_offset) == (1, SEGMENT_SIZE)
        assert log.state.last_store_time_ms == records(log)[0].store_time_ms
        assert log.segments.list_from(start, 9) == []
        await log.checkpoint.save()
        await machine.kill(log)
    async with machine.running() as log:
        assert places(await send(log, batch_of("w", 0, b"a", bytes(2000))))[0][0] == SEGMENT_SIZE


async def test_a_batch_that_was_on_disk_and_is_not_whole_is_damage() -> None:
    """A batch that is not whole below the synced end is damage, because a cut would lose acknowledged messages."""
    machine = Machine()
    log = await machine.start()
    await send(log, batch_of("w", 0, b"a", b"b"))
    bound = records(log)[1].physical_offset
    await log.marks.flushed.soon(log.chain.max_physical_offset)
    await log.checkpoint.save()
    await machine.kill(log)
    machine.segment_bytes()[bound:] = bytes(SEGMENT_SIZE - bound)
    with pytest.raises(LogDamaged):
        await machine.start()


async def test_a_forged_stamp_means_nothing() -> None:
    """A client's property of its name is dropped, and a stamp at another place than it names is ignored."""
    machine = Machine(crc_property=False)
    async with machine.running() as log:
        await send(log, batch_of("w", 0))
        (stamped,) = records(log)
        raw = stamped.properties
        await append(log, message(b"copy", property_string=raw))
        assert b"REPUT_WRITER" not in records(log)[1].properties
        at = stamped.properties.index(b"\x01") + 1
    place = machine.segment_bytes().index(raw)
    for forged in (
        raw[:at] + b"%016x" % 1 + raw[at + 16 :],
        raw[: at + 16] + b"%08x" % SEGMENT_SIZE + raw[at + 24 :],
        raw[:at] + b"x" + raw[at + 1 :],
    ):
        machine.segment_bytes()[place : place + len(raw)] = forged
        machine.fs.remove(DATA_DIR / "reput" / "queue_offsets")
        async with machine.running() as log:
            assert (len(log.state.writers), len(bodies(log))) == (0, 2)


async def test_only_the_last_batches_are_remembered() -> None:
    """The number of remembered batches is bounded, also after a restart, and an older batch raises WriterForgotten."""
    machine = Machine(writer_batch_count_max=4)
    async with machine.running() as log:
        await send(log, *(batch_of("old", sequence) for sequence in range(3)))
        await send(log, *(batch_of("new", sequence) for sequence in range(3)))
        assert len(log.state.writers) == 4
        with pytest.raises(WriterForgotten):
            await send(log, batch_of("old", 1))
        assert (await send(log, batch_of("old", 2)))[0].is_repeated
        remembered = log.state.writers.batches()
    for name in ("reput/queue_offsets", ""):
        if name:
            machine.fs.remove(DATA_DIR / name)
        async with machine.running() as log:
            assert log.state.writers.batches() == remembered
            assert log.state.writers.end_physical_offset <= log.chain.max_physical_offset


async def test_a_writer_outlives_its_batches() -> None:
    """A batch that other writers' batches pushed out is refused when sent again, in this run and in later runs."""
    machine = Machine(writer_batch_count_max=3, writer_count_max=8)
    async with machine.running() as log:
        await send(log, batch_of("one", 0), batch_of("two", 0), batch_of("two", 1))
        await send(log, *(batch_of(f"other{number}", 0) for number in range(5)))
    for lost in ("", "reput/queue_offsets"):
        if lost:
            machine.fs.remove(DATA_DIR / lost)
        async with machine.running() as log:
            count = len(bodies(log))
            for known in (batch_of("one", 0), batch_of("two", 0), batch_of("two", 1)):
                with pytest.raises(WriterForgotten):
                    await send(log, known)
            with pytest.raises(WriterSequenceGap):
                await send(log, batch_of("two", 3))
            assert len(bodies(log)) == count
    async with machine.running() as log:
        assert not (await send(log, batch_of("two", 2)))[0].is_repeated  # it continues with its next sequence
        await send(log, *(batch_of(f"more{number}", 0) for number in range(8)))
        assert len(log.state.writers.next_sequences()) == 8
        with pytest.raises(WriterForgotten):
            await send(log, batch_of("two", 3))


async def test_a_writer_of_the_store_itself() -> None:
    """Batches of the store's own writer push out no other batches, and no user may have its id."""
    machine = Machine(writer_batch_count_max=4)
    async with machine.running() as log:
        await send(log, batch_of("one", 0))
        with pytest.raises(BadArgument, match="belongs to the store itself"):
            await send(log, batch_of("rmq_sys_own", 0))
        for number in range(10):
            await log.pipeline.append_state(batch_of("rmq_sys_own", number), BORN_HOST)
            assert (await log.pipeline.append_state(batch_of("rmq_sys_own", number), BORN_HOST)).is_repeated
    for lost in ("", "reput/queue_offsets"):
        if lost:
            machine.fs.remove(DATA_DIR / lost)
        async with machine.running() as log:
            assert (await send(log, batch_of("one", 0)))[0].is_repeated
            known = [(batch.writer_id, batch.sequence) for batch in log.state.writers.batches()]
            assert known == [("one", 0), ("rmq_sys_own", 9)]
            with pytest.raises(WriterForgotten):
                await log.pipeline.append_state(batch_of("rmq_sys_own", 8), BORN_HOST)


async def test_a_batch_under_an_id_of_its_own() -> None:
    """A batch under a single-use id is answered as repeated, for as many ids as are remembered."""
    machine = Machine(writer_batch_count_max=2, once_count_max=3)
    async with machine.running() as log:
        await send(log, batch_of("one", 0), batch_of("one", 1))
        first = await send(log, *(batch_of(f"once/{number}", 0) for number in range(4)))
        for number in (1, 2, 3):
            (again,) = await send(log, batch_of(f"once/{number}", 0, b"other content"))
            assert again.is_repeated
            assert again.start_physical_offset == first[number].start_physical_offset
        with pytest.raises(BadArgument, match="has one batch"):
            await send(log, batch_of("once/5", 1))
        assert not (await send(log, batch_of("once/0", 0)))[0].is_repeated  # too many other ids since
        assert (await send(log, batch_of("one", 1)))[0].is_repeated
        remembered = log.state.writers.batches()
        assert [batch.writer_id for batch in remembered] == ["one", "one", "once/2", "once/3", "once/0"]
    for lost in ("", "reput/queue_offsets"):
        if lost:
            machine.fs.remove(DATA_DIR / lost)
        async with machine.running() as log:
            assert log.state.writers.batches() == remembered
            assert (await send(log, batch_of("once/2", 0)))[0].is_repeated


async def test_a_stamp_counts_for_what_fits_into_a_segment() -> None:
    """A batch that fits into a segment only without its stamp is refused, and no segment is closed for it."""
    async with Machine(crc_property=False).running() as log:
        half = (SEGMENT_SIZE - 8) // 2 - 91 - len("orders")
        await append(log)
        end = log.chain.max_physical_offset
        with pytest.raises(BatchTooLarge):
            await send(log, batch_of("w", 0, bytes(half), bytes(half)))
        assert (log.chain.max_physical_offset, len(log.state.writers)) == (end, 0)
        batch = await append(log, message(bytes(half)), message(bytes(half)))
        assert batch.end_physical_offset == 2 * SEGMENT_SIZE - 8


def test_the_table_forgets_the_last_batch_alone() -> None:
    """The table forgets a batch that recovery cuts off."""
    table = WriterTable(10, 10, 10)
    batches = [WriterBatch("w", number, 5, 100 * number, 100, 1) for number in range(3)]
    for one in batches:
        table.note(one)
        table.note(one)
    table.remove_last()
    assert (table.batches(), table.end_physical_offset, table.last) == (batches[:2], 200, batches[1])
    table.note(batches[2])
    assert table.batches() == batches
    table.note(WriterBatch("once/a", 0, 5, 300, 100, 1))
    table.remove_last()
    assert table.batches() == batches
    for _ in range(3):
        table.remove_last()
    assert (len(table), table.last) == (0, None)
