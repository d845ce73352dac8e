# SPDX-License-Identifier: Apache-2.0
"""ConsumeQueue: the units of a queue of a topic, in RocketMQ's layout.

Invariants: unit k lies at byte 20 * k of the queue; units of real messages follow each other without a gap and their
physical offsets ascend; before the first of them there may be pre-blank units, which are never messages; bytes after
the last unit are zero. min_queue_offset <= max_queue_offset, and min never decreases except by `truncate`,
`forget_min`, `detach`, and an `append` that begins the queue anew. A file has blocks for its units and for some more.
It gets them in steps, always before a unit is written there: a write to a place without a block would end the process
on a full disk.
While a tail is open, the kernel enters units through it (libs/kernel/scan/tails_cy.py); the file's cursor follows with
the next look at the queue. The last units may be in memory only (UnitMemory) until a sync writes them into the file.
Callers: the event loop's thread; `sync` and `make_room` from a worker thread, a single call at a time, without a tail.
Not handled: the set of queues (ConsumeQueueTable), the records that belong to a queue (queue_rows), the times of syncs
(FlushLoop).
Layout: docs/formats/consume_queue.md; RocketMQ's counterpart is ConsumeQueue. Unlike it, a gap is never filled with the
wrong unit, and pre-blank or zero units are never returned as messages.
"""

from bisect import bisect_left
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from libs.formats.indexes.consume_queue import ENTRY, PRE_BLANK, UNIT_SIZE_BYTES
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.answer.reads_cy import read_units
from libs.kernel.scan.index_cy import encode_queue_units
from libs.kernel.scan.tails_cy import Tail
from libs.machine.failpoints import failpoint
from libs.machine.fs import PAGE_SIZE_BYTES, Fs
from libs.segments.chain import SegmentChain
from libs.segments.errors import IndexDamaged, StoreError
from libs.segments.map_budget import MapBudget
from libs.segments.segment import Segment
from services.indexer.engine.tables.unit_memory import MemoryBudget, Taken, UnitMemory, encoded
from services.indexer.engine.tables.unit_scan import Units, first_unit, is_message, unit_at, valid_count


class ConsumeQueue:
    """A queue of a topic. Opening maps nothing. The end of the data is searched on first use.

    Recovery decides `bound_physical_offset`: units of records at or past it are dropped, and units before it are
    durable. `is_clean` says that the last process ended orderly, so that nothing but zeros follows the last unit.
    With `is_new` the directory is created without a wait for the disk.
    """

    def __init__(
        self,
        fs: Fs,
        directory: Path,
        *,
        topic: str,
        queue_id: int,
        file_size_bytes: int,
        maps: MapBudget,
        memories: MemoryBudget,
        bound_physical_offset: int,
        is_clean: bool,
        is_new: bool = False,
    ) -> None:
        assert file_size_bytes % UNIT_SIZE_BYTES == 0
        self.topic = topic
        self.queue_id = queue_id
        chain = SegmentChain(fs, directory, file_size_bytes, maps=maps, grows=True)
        self._chain = chain.open(is_clean=True, is_durable=not is_new)
        self._fs = fs
        self._bound_physical_offset = bound_physical_offset
        self._is_clean = is_clean
        self._is_recovered = False
        self.was_changed = False
        """Whether another program has written units since the clean stop. They were dropped, and perhaps others."""
        self._end_as_found = 0
        self._min_queue_offset = 0
        self._min_physical_offset = 0
        self._memories = memories
        self._memory: UnitMemory | None = None
        self._taken: Taken | None = None
        """The units in memory that the current sync writes."""
        self._tail: Tail | None = None
        self._followed_end = 0
        """The end of the open tail to which the cursor of the last file was moved."""
        self._last_physical_offset: int | None = None
        """Known without a look into the file, which may not be mapped, from the first look to the next other change."""

    @property
    def max_queue_offset(self) -> int:
        """Queue offset of the next message. It is 0 if the queue never had a message."""
        if self._memory is not None:
            return self._memory.tail.end
        self._recover()
        return self._chain.max_physical_offset // UNIT_SIZE_BYTES

    @property
    def end_as_found(self) -> int:
        """The max queue offset with which the queue was found on the disk."""
        self._recover()
        return self._end_as_found

    @property
    def min_queue_offset(self) -> int:
        """First unit whose record is kept, as of the last `correct_min`. It is the max if no such unit exists."""
        self._recover()
        return self._min_queue_offset

    @property
    def last_physical_offset(self) -> int:
        """First byte of the record of the last unit. It is 0 if the queue has no unit."""
        tail = self._tail if self._memory is None else self._memory.tail
        if tail is not None:
            return tail.last_physical_offset
        if self._last_physical_offset is None:
            self._last_physical_offset = 0 if self.is_empty else self._physical_offset_at(self.max_queue_offset - 1)
        return self._last_physical_offset

    @property
    def dirty_page_count(self) -> int:
        """Pages between the synced end and the written end, by page number as RocketMQ counts them."""
        flushed, wrote = self._chain.flushed_physical_offset, self.max_queue_offset * UNIT_SIZE_BYTES
        return wrote // PAGE_SIZE_BYTES - flushed // PAGE_SIZE_BYTES

    @property
    def file_count(self) -> int:
        """Files of the queue."""
        return len(self._chain.segments)

    @property
    def directory(self) -> Path:
        """Directory of the files."""
        return self._chain.directory

    def allocated_bytes(self) -> int:
        """Return how many bytes of the disk the files occupy. Blocks."""
        return sum(self._fs.allocated_bytes(segment.path) for segment in self._chain.segments)

    @property
    def first_file_queue_offset(self) -> int:
        """Queue offset with which the first file begins, 0 without files. Reads nothing."""
        return self._chain.min_physical_offset // UNIT_SIZE_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no unit at all, not even of messages that are gone."""
        return self.max_queue_offset * UNIT_SIZE_BYTES == self._chain.min_physical_offset

    @property
    def is_in_memory(self) -> bool:
        """Whether the last units are in memory only."""
        return self._memory is not None

    def read(self, queue_offset: int, count: int) -> Units:
        """Read at most `count` units from `queue_offset` on, fewer at the end, and none if their file is gone.

        The result ends before an impossible unit: a unit without a size, or with a lower physical offset than the unit
        before. Raises IndexDamaged if the first unit is impossible.
        """
        end = min(queue_offset + count, self.max_queue_offset)
        room = max(0, end - queue_offset)
        units = Units(np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int64))
        position, found_count, last = queue_offset * UNIT_SIZE_BYTES, 0, -1
        while found_count < room and position >= self._chain.min_physical_offset:
            buffer, within, there_count = self._place_of(position // UNIT_SIZE_BYTES)
            part_count = min(room - found_count, there_count)
            part = [column[found_count : found_count + part_count] for column in units]
            good_count = read_units(buffer, within, last, *part)
            found_count += good_count
            if good_count < part_count:
                if not found_count:
                    raise self.damage_at(queue_offset)
                break
            last = int(units.physical_offsets[found_count - 1])
            position += part_count * UNIT_SIZE_BYTES
        return units if found_count == room else units.first(found_count)

    def place_at(self, queue_offset: int) -> tuple[int, int]:
        """Return physical offset and size of the record of a unit, which must exist. Raises IndexDamaged."""
        physical_offset, size_bytes, _ = ENTRY.unpack_from(*self._place_of(queue_offset)[:2])
        if physical_offset < 0 or size_bytes <= 0:
            raise self.damage_at(queue_offset)
        return physical_offset, size_bytes

    def damage_at(self, queue_offset: int) -> IndexDamaged:
        """Return the error for a unit with impossible values. The unit must exist."""
        physical_offset, size_bytes, _ = ENTRY.unpack_from(*self._place_of(queue_offset)[:2])
        reason = f"no unit of a queue has physical offset {physical_offset} and {size_bytes} bytes here"
        base, number = self._chain.min_physical_offset, queue_offset * UNIT_SIZE_BYTES
        segment = self._chain.segments[(number - base) // self._chain.segment_size_bytes]
        return IndexDamaged(path=segment.path, position=number - segment.base_physical_offset, reason=reason)

    def _place_of(self, queue_offset: int) -> tuple[memoryview | bytearray, int, int]:
        """Return bytes that have a unit, which must exist, its position in them, and how many units they have there."""
        memory, at = self._memory, queue_offset * UNIT_SIZE_BYTES
        if memory is not None and queue_offset >= memory.first:
            return memory.buffer, at - memory.first * UNIT_SIZE_BYTES, memory.tail.end - queue_offset
        segment = self._chain.find(at)
        end = segment.end_physical_offset
        if memory is not None:  # a sync may be about to write the units in memory
            end = min(end, memory.first * UNIT_SIZE_BYTES)
        return segment.buffer, at - segment.base_physical_offset, (end - at) // UNIT_SIZE_BYTES

    def next_file_queue_offset(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after the file of this queue offset."""
        unit_count = self._chain.segment_size_bytes // UNIT_SIZE_BYTES
        return queue_offset + unit_count - queue_offset % unit_count

    def open_tail(self) -> Tail | None:
        """Return the end of the queue and the room in its last file, or None without room. At most one is open."""
        if self._memory is not None:
            return self._memory.tail
        self._recover()
        segment = self._chain.active
        assert self._tail is None
        if segment is None or segment.wrote_position + UNIT_SIZE_BYTES > segment.reserved_position:
            return None
        if not segment.hold():
            return None
        first = segment.base_physical_offset // UNIT_SIZE_BYTES
        room_end = first + segment.reserved_position // UNIT_SIZE_BYTES
        self._followed_end = self.max_queue_offset
        self._tail = Tail(self._followed_end, self.last_physical_offset, first, room_end, segment.buffer)
        return self._tail

    def close_tail(self) -> None:
        """Let the kernel enter no more units. Needed before each other change of the queue, and before `sync`."""
        if self._tail is not None:
            self._follow_tail()
            self._last_physical_offset = self._tail.last_physical_offset
            self._tail.close()
            self._tail = None
            self._chain.segments[-1].release()

    def _follow_tail(self) -> None:
        """Move the cursor of the last file to the end of the open tail."""
        if self._tail is not None:
            segment, self._followed_end = self._chain.segments[-1], self._tail.end
            segment.advance(self._followed_end * UNIT_SIZE_BYTES - segment.base_physical_offset)

    def lacks_room(self, unit_count: int) -> bool:
        """Return whether no file can be written to, or it lacks blocks for `unit_count` more units or up to its end."""
        self._recover()
        active = self._chain.active
        return active is None or active.reserved_position < self._end_of_room(active, unit_count)

    def make_room(self, unit_count: int) -> None:
        """Create the file or the blocks that `lacks_room` misses. A first file has its first page present.

        Creating it does not wait for the disk. It is durable once the file, and the names of its directory and of the
        directories above, were synced. Blocks. Raises StoreFull.
        """
        assert self._tail is None
        self._recover()
        segment = self._chain.active or self._chain.roll(is_durable=False)
        segment.hold()  # other threads create files meanwhile, and may need its map
        try:
            if segment.wrote_position == 0:
                segment.populate(PAGE_SIZE_BYTES)
            segment.reserve(self._end_of_room(segment, unit_count))
        finally:
            segment.release()

    def _end_of_room(self, segment: Segment, unit_count: int) -> int:
        end = (self.max_queue_offset + unit_count) * UNIT_SIZE_BYTES
        return min(end - segment.base_physical_offset, segment.size_bytes)

    def can_remember(self, rows: NDArray[np.int32], batch: DispatchBatch) -> bool:
        """Return whether `remember` may be called: the records continue the queue, and its last file has blocks."""
        active, end = self._chain.active, self.max_queue_offset
        if active is None or int(batch.queue_offsets[rows[0]]) != end or not self._memories.has_room:
            return False
        return (end + len(rows)) * UNIT_SIZE_BYTES <= active.base_physical_offset + active.reserved_position

    def remember(self, rows: NDArray[np.int32], batch: DispatchBatch) -> None:
        """Enter the records of these rows in memory. The file has no unsynced units, or a sync works on them."""
        self.close_tail()
        failpoint("queue.before_append")
        end = self.max_queue_offset
        first, units = (end, b"") if self._memory is None else (self._memory.first, self._memory.units())
        self._keep(first, units + encoded(rows, batch), int(batch.physical_offsets[rows[-1]]))
        failpoint("queue.after_append")

    def _keep(self, first: int, units: bytes, last_physical_offset: int) -> None:
        active = self._chain.segments[-1]
        room_end = (active.base_physical_offset + active.reserved_position) // UNIT_SIZE_BYTES
        self._drop_memory()
        self._memory = UnitMemory(
            self._memories, units, first=first, room_end=room_end, last_physical_offset=last_physical_offset
        )

    def _drop_memory(self) -> None:
        if self._memory is not None:
            self._last_physical_offset = self._memory.tail.last_physical_offset
            self._memory.close()
            self._memory = None

    def take_units(self) -> None:
        """Have the next `sync` write the units in memory. Readers find them in memory until `drop_synced`."""
        if self._memory is not None:
            units, segment = self._memory.units(), self._chain.segments[-1]
            self._taken = Taken(segment, segment.wrote_position, units)
            segment.advance(segment.wrote_position + len(units))

    def drop_synced(self) -> bool:
        """Drop the units that the sync after `take_units` wrote from memory. Returns whether memory has later units."""
        if self._taken is not None and self._memory is not None:
            memory, written_bytes = self._memory, len(self._taken.units)
            later, last = memory.units()[written_bytes:], memory.tail.last_physical_offset
            self._drop_memory()
            if later:
                self._keep(memory.first + written_bytes // UNIT_SIZE_BYTES, later, last)
        self._taken = None
        return self._memory is not None

    def units_in_file(self) -> AbstractContextManager[None]:
        """Write the units of `take_units` into the file, which stays mapped within the block. In a worker thread."""
        return nullcontext() if self._taken is None else self._taken.in_file()

    def unsynced_files(self) -> list[Segment]:
        """Return the files with bytes that no sync has covered, oldest first."""
        return self._chain.unsynced()

    def append(self, rows: NDArray[np.int32], batch: DispatchBatch) -> None:
        """Enter the records of these consecutive rows of a batch, as `queue_rows.place` returned them.

        Records entered before StoreFull are skipped when the rows come again. With rows that do not continue at its end
        the queue begins anew: its units are dropped. Makes nothing durable. Raises StoreFull; the first rows may be
        written then.
        """
        assert self._memory is None
        self.close_tail()
        first = int(batch.queue_offsets[rows[0]])
        is_behind = self.is_empty or batch.physical_offsets[rows[0]] > self.last_physical_offset
        self._last_physical_offset = None
        if first != self.max_queue_offset and is_behind:
            self._restart(first)
        failpoint("queue.before_append")
        self._write(rows[self.max_queue_offset - first :], batch)
        self._last_physical_offset = int(batch.physical_offsets[rows[-1]])
        failpoint("queue.after_append")

    def correct_min(self, min_physical_offset: int) -> None:
        """Set the first byte of the log that is kept. The queue begins behind the units of older records then."""
        self._recover()
        if min_physical_offset <= self._min_physical_offset:
            return
        self._min_queue_offset = self.first_kept(min_physical_offset)
        self._min_physical_offset = min_physical_offset

    def forget_min(self) -> None:
        """Let the queue begin at the first unit that the files still have, up to the next `correct_min`."""
        self._recover()
        self._min_queue_offset, self._min_physical_offset = self._first_message_offset() or 0, 0

    def first_kept(self, min_physical_offset: int) -> int:
        """Return the first queue offset whose record is at or past this offset of the log, or else the end."""
        kept = range(self.min_queue_offset, self.max_queue_offset)
        return kept.start + bisect_left(kept, min_physical_offset, key=self._physical_offset_at)

    def expired_file_count(self, min_physical_offset: int) -> int:
        """Return how many files `detach_expired` would detach."""
        self._recover()
        later = self._chain.segments[1:]

        def is_kept(number: int) -> bool:
            last = later[number].base_physical_offset // UNIT_SIZE_BYTES - 1
            return self._physical_offset_at(last) >= min_physical_offset

        return bisect_left(range(len(later)), True, key=is_kept)

    def detach_expired(self, min_physical_offset: int) -> list[Segment]:
        """Detach files whose records are all below this offset, never the last file. The caller removes them."""
        expired = [self._chain.detach_first() for _ in range(self.expired_file_count(min_physical_offset))]
        if expired:
            self._min_queue_offset = max(self._min_queue_offset, self._chain.min_physical_offset // UNIT_SIZE_BYTES)
        return expired

    def truncate(self, bound_physical_offset: int) -> None:
        """Drop the units of records at or past this offset, durably. The bytes become zero."""
        self.close_tail()
        self._recover()
        self.take_units()
        self.sync()  # the cut makes the last file durable, and then no sync covers the files before it
        self._bound_physical_offset = bound_physical_offset
        self.drop_synced()
        self._min_physical_offset = min(self._min_physical_offset, bound_physical_offset)
        self._drop_past_bound(clear_rest=True)

    def detach(self) -> None:
        """Close the files, which stay on the disk, and be empty. No sync may run."""
        self.close_tail()
        self.take_units()
        with suppress(StoreError), self.units_in_file():  # the ends of queues are read from the files before removal
            pass
        self._drop_memory()
        self._taken = None
        chain = self._chain
        self._chain = SegmentChain(self._fs, chain.directory, chain.segment_size_bytes, maps=chain.maps, grows=True)
        self._is_recovered, self._min_queue_offset, self._min_physical_offset = True, 0, 0
        self._last_physical_offset = None
        chain.close()

    def sync(self) -> None:
        """Make all units durable that were entered before `close_tail` or `take_units`.

        Blocks without the GIL. Raises SyncFailed.
        """
        with self.units_in_file():
            self._chain.sync()

    def close(self) -> None:
        """Close the files. Makes nothing durable."""
        self.close_tail()
        self._drop_memory()
        self._chain.close()

    def _recover(self) -> None:
        """Find the end. Raises SegmentUnreadable, each time until the file can be read."""
        if self._tail is not None and self._tail.end != self._followed_end:
            self._follow_tail()
        if not self._is_recovered:
            is_less = self._drop_past_bound(clear_rest=not self._is_clean)
            self.was_changed = is_less and self._is_clean
            self._end_as_found = self._chain.max_physical_offset // UNIT_SIZE_BYTES
            self._is_recovered = True

    def _drop_past_bound(self, *, clear_rest: bool) -> bool:
        """Keep the valid units before the bound, and nothing after the first invalid unit.

        Returns whether that place held a unit.
        """
        self._last_physical_offset = None
        is_less = False
        for segment in reversed(self._chain.segments):
            count = valid_count(segment, self._bound_physical_offset, is_clean=self._is_clean)
            is_less = is_less or unit_at(segment, count)["record_size_bytes"] > 0
            if count > 0:
                end = segment.base_physical_offset + count * UNIT_SIZE_BYTES
                self._chain.truncate_after(end, clear_rest=clear_rest)
                break
        else:
            self._chain.destroy()
        first = self._first_message_offset()
        if first is None:
            self._chain.destroy()
            self._min_queue_offset, self._min_physical_offset = 0, 0
        else:
            end = self._chain.max_physical_offset // UNIT_SIZE_BYTES
            self._min_queue_offset = min(max(self._min_queue_offset, first), end)
        return is_less

    def _first_message_offset(self) -> int | None:
        """Return the queue offset of the first unit that is no pre-blank, or None. Pre-blanks are in the first file."""
        segments = self._chain.segments
        if not segments:
            return None
        first = first_unit(segments[0], is_message, end=segments[0].wrote_position, is_clean=self._is_clean)
        queue_offset = segments[0].base_physical_offset // UNIT_SIZE_BYTES + first
        end = self._chain.max_physical_offset // UNIT_SIZE_BYTES if self._memory is None else self._memory.tail.end
        return queue_offset if queue_offset < end else None

    def _physical_offset_at(self, queue_offset: int) -> int:
        return self.place_at(queue_offset)[0]

    def _restart(self, queue_offset: int) -> None:
        """Begin anew at this queue offset: drop all files, fill the units before it with pre-blanks."""
        self._chain.destroy()
        position = queue_offset * UNIT_SIZE_BYTES
        base = position - position % self._chain.segment_size_bytes
        segment = self._chain.roll(first_base_physical_offset=base)
        segment.reserve(position - base)
        segment.buffer[: position - base] = PRE_BLANK * ((position - base) // UNIT_SIZE_BYTES)
        segment.advance(position - base)
        self._min_queue_offset = queue_offset

    def _write(self, rows: NDArray[np.int32], batch: DispatchBatch) -> None:
        while len(rows):
            segment = self._chain.active
            if segment is None or segment.is_full:
                if self.file_count == 1 and segment is not None and segment.flushed_position == 0:
                    segment.sync()  # before that a power cut may leave it empty, and only the last file may be empty
                segment = self._chain.roll()
            position = segment.wrote_position
            part = rows[: (segment.size_bytes - position) // UNIT_SIZE_BYTES]
            end = position + len(part) * UNIT_SIZE_BYTES
            segment.reserve(end)
            out = segment.buffer[position:end]
            encode_queue_units(
                part.data, batch.physical_offsets.data, batch.record_sizes.data, batch.tags_codes.data, out
            )
            segment.advance(end)
            rows = rows[len(part) :]
