# SPDX-License-Identifier: Apache-2.0
"""FakeLog: a commit log in memory with real record bytes, which the Indexer's engine can follow and read.

Stands for the CommitLog: it places records as the CommitLog does (blank at the end of a segment), makes dispatch steps
with the kernel's scan, and can lose its tail, its head or its connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.indexes.consume_queue import end_after
from libs.formats.records import dispatch_columns, record
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.records.record import Record
from libs.formats.state.log_history import QueueEnd
from libs.kernel.layout import S_BLANK, S_END, S_FULL
from libs.kernel.scan.scan_columns import ScanColumns
from libs.kernel.scan.scan_cy import scan
from libs.requests.errors import DependencyUnavailable, RecordDamaged
from services.indexer.engine.log.source import LogRole, ProgressReport, RecordBlock
from services.indexer.errors import LogEndsEarlier, NotARecord
from tests.support.records import make_record

HEARTBEAT_S = 0.02
START_TIME_MS = 1_700_000_000_000


def properties_text(tag: str = "", keys: str = "", unique_id: str = "", **others: str) -> bytes:
    """The property string with these properties. Empty properties are left out."""
    pairs = {"UNIQ_KEY": unique_id, "TAGS": tag, "KEYS": keys, **others}
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in pairs.items() if value)


class QueueCheck(NamedTuple):
    """The content of a call of `check_queue_offsets`."""

    ends: list[QueueEnd]
    epoch: int
    history_id: str
    is_complete: bool


class FakeLog:
    """A log whose records a test appends singly. Store time moves by `step_ms` with each record."""

    def __init__(self, *, segment_size_bytes: int = 1 << 20, step_ms: int = 1_000) -> None:
        self.segment_size_bytes = segment_size_bytes
        self.step_ms = step_ms
        self.data = bytearray()
        self.records: list[Record] = []
        self.topics: set[str] = set()
        """Topics that exist without messages."""
        self.deleted_topics: set[str] = set()
        """Topics that do not exist, although the log has messages of them."""
        self.set_apart: dict[str, str] = {}
        """The reasons why topics are set apart, which handshakes have."""
        self.topic_begins: dict[str, int] = {}
        """Physical offsets where the messages of deleted topics begin."""
        self.min_physical_offset = 0
        self.epoch = 1
        self.common_ends: dict[int, int] = {}
        """Physical offsets where the history of an older epoch ends."""
        self.is_up = True
        self.read_count = 0
        self.damaged: set[int] = set()
        """Physical offsets of records that can't be read."""
        self.read_size_bytes_max = 8 << 20
        self.history_id = "first"
        self.log_role = LogRole()
        self.tells_epochs = False
        self.writers: dict[tuple[str, int], bytes] = {}
        """The batches of writers, by id and number."""
        self.reports: list[ProgressReport] = []
        self.queue_checks: list[QueueCheck] = []
        self.failures: list[Exception] = []
        """The errors because of which the Indexer that uses this log gave up."""
        self.follow_starts: list[int] = []
        self.steps: list[bytes] = []
        """Serialized steps that followers get before anything else, such as a broken log might send."""
        self._next_offsets: dict[tuple[str, int], int] = {}
        self._time_ms = START_TIME_MS
        self._changed = asyncio.Event()

    @property
    def end_physical_offset(self) -> int:
        """The physical offset of the next record."""
        return len(self.data)

    def append(
        self,
        topic: str = "T",
        queue_id: int = 0,
        *,
        tag: str = "",
        keys: str = "",
        unique_id: str = "",
        body: bytes = b"body",
        step_ms: int | None = None,
        **fields: object,
    ) -> Record:
        """Append a record and return it as stored."""
        self._time_ms += self.step_ms if step_ms is None else step_ms
        queue_offset = self._next_offsets.get((topic, queue_id), 0)
        values = {
            "topic": topic,
            "queue_id": queue_id,
            "queue_offset": queue_offset,
            "physical_offset": len(self.data),
            "body": body,
            "properties": properties_text(tag, keys, unique_id),
            "store_time_ms": self._time_ms,
            **fields,
        }
        made = make_record(**values)
        room = self.segment_size_bytes - len(self.data) % self.segment_size_bytes
        if made.size_bytes + 8 > room:
            self.data += record.encode_blank(room) + bytes(room - 8)
            made = make_record(**{**values, "physical_offset": len(self.data)})
        self.data += record.encode(made)
        if made.sys_flag & record.TRANSACTION_MASK in (record.TRANSACTION_NOT, record.TRANSACTION_COMMIT):
            self._next_offsets[topic, queue_id] = made.queue_offset + 1
        self.records.append(made)
        self._changed.set()
        return made

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """All epochs, oldest first."""
        ends = sorted(self.common_ends.items())
        return Epoch(1, 0), *(Epoch(number + 1, end) for number, end in ends)

    def set_next_queue_offset(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set the queue offset of a queue's next record."""
        self._next_offsets[topic, queue_id] = queue_offset

    def lose_tail(self, end_physical_offset: int) -> None:
        """Truncate the log, as an unclean restart may, and begin a new epoch."""
        self.common_ends[self.epoch] = end_physical_offset
        self.epoch += 1
        del self.data[end_physical_offset:]
        self.records = [kept for kept in self.records if kept.physical_offset < end_physical_offset]
        self._next_offsets = {}
        for kept in self.records:
            name = kept.topic, kept.queue_id
            self._next_offsets[name] = end_after([kept.queue_offset], end=self._next_offsets.get(name, 0))
        self._changed.set()

    def trim(self, min_physical_offset: int) -> None:
        """Forget the records below an offset."""
        self.min_physical_offset = min_physical_offset

    def go_down(self) -> None:
        """Break all streams and refuse all calls until `is_up` is set again."""
        self.is_up = False
        self._changed.set()

    def batches(
        self, start: int = 0, *, record_count_max: int = 8_192, end: int | None = None
    ) -> Iterator[DispatchBatch]:
        """The steps for the records in [start, end), encoded and decoded as on the wire."""
        columns = ScanColumns(record_count_max, record_count_max * 4)
        end = len(self.data) if end is None else end
        while start < end:
            status = scan(self.data, start, end, 0, True, columns)
            assert status in (S_END, S_FULL, S_BLANK), status
            step_end = columns.end_position
            if status == S_BLANK:
                step_end += self.segment_size_bytes - step_end % self.segment_size_bytes
            step = dispatch_columns.decode(dispatch_columns.encode(columns, start, step_end))
            assert isinstance(step, DispatchBatch)
            yield step
            start = step_end

    async def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """See LogSource."""
        del epochs
        self.follow_starts.append(start_physical_offset)
        self._check_up()
        lost = [end for number, end in self.common_ends.items() if number >= epoch]
        common_end = min(start_physical_offset, len(self.data), *lost)
        yield Handshake(
            common_end,
            self.epoch,
            self.min_physical_offset,
            len(self.data),
            self.history_id,
            self.set_apart,
            self.epochs if self.tells_epochs else (),
            self.topic_begins,
        )
        told = self.topic_begins
        for step in self.steps:
            yield dispatch_columns.decode(step)
        position = max(common_end, self.min_physical_offset)
        stream_epoch = self.epoch
        while True:
            self._changed.clear()
            if self.topic_begins is not told:
                told = self.topic_begins
                yield Heartbeat(len(self.data), self.min_physical_offset, told)
            for batch in self.batches(position):
                yield batch
                position = batch.end_physical_offset
            yield Heartbeat(len(self.data), self.min_physical_offset)
            with contextlib.suppress(TimeoutError):  # not wait_for, which may swallow a cancellation
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._changed.wait()
            self._check_up()
            if self.epoch != stream_epoch:
                raise DependencyUnavailable("commitlog", "restarted")

    def delete(self, topic: str) -> None:
        """Delete a topic. Only records from the end of the log on are its messages."""
        self.topic_begins = {**self.topic_begins, topic: len(self.data)}
        self._changed.set()

    async def report(self, report: ProgressReport) -> LogRole:
        """See LogSource."""
        self._check_up()
        self.reports.append(report)
        return self.log_role

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """See LogSource."""
        self._check_up()
        ends = [end async for page in pages for end in page]
        self.queue_checks.append(QueueCheck(ends, epoch, history_id, is_complete))
        return 0

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        self._check_up()
        is_known = topic in self.topics or any(made.topic == topic for made in self.records)
        return is_known and topic not in self.deleted_topics

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        self._check_up()
        self.read_count += 1
        await asyncio.sleep(0)
        starts = {found.physical_offset: found for found in self.records}
        parts: list[bytes] = []
        sizes: list[int] = []
        for index, offset in enumerate(physical_offsets.tolist()):
            if sizes and sum(sizes) >= self.read_size_bytes_max:
                break
            if offset < self.min_physical_offset:
                sizes.append(0)
                continue
            if offset >= len(self.data):
                raise LogEndsEarlier("commitlog", "beyond the end")
            if offset in self.damaged:
                if index:
                    break
                raise RecordDamaged(segment="00000000000000000000", position=offset, reason="checksum")
            found = starts.get(offset)
            if found is None or (record_sizes is not None and record_sizes[index] != found.size_bytes):
                raise NotARecord(offset)
            parts.append(bytes(self.data[offset : offset + found.size_bytes]))
            sizes.append(found.size_bytes)
        array = np.array(sizes, np.int32)
        return RecordBlock(b"".join(parts), np.cumsum(array, dtype=np.int64) - array, array, self.min_physical_offset)

    def _check_up(self) -> None:
        if not self.is_up:
            raise DependencyUnavailable("commitlog", "down")
