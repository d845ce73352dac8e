# SPDX-License-Identifier: Apache-2.0
"""ComputedLog: a commit log whose n-th record is a function of n, so that a store of any size is cheap to make.

All records have the same size. Record n belongs to queue 0 of topic n modulo `topic_count`, is stored `STEP_MS` after
the previous record, and has a single key: `WANTED_KEY` for wanted records, a key of its own for all others. It is a
LogSource and a RecordSource whose records are real, and counts the records that are read.
"""

import asyncio
import functools
from collections.abc import AsyncGenerator, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.indexes.index_file import key_hash, key_text
from libs.formats.limits import READ_COUNT_MAX
from libs.formats.records import record
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.records.record import Record
from libs.formats.state.log_history import QueueEnd
from services.indexer.engine.log.source import LogRole, ProgressReport, RecordBlock
from tests.support.fake_log import START_TIME_MS, properties_text
from tests.support.records import make_record

STEP_MS = 1_000
WANTED_KEY = "wanted-00000000"
STEP_RECORD_COUNT = 8_192


@functools.cache
def hash_of(topic: str, key: str) -> int:
    """Hash of a topic's key as index files have it; the logs of all tests share most of their keys."""
    return key_hash(key_text(topic, key))


class ComputedLog:
    """A log of `record_count` records, which a test may raise."""

    def __init__(self, record_count: int, *, topic_count: int = 1, wanted: Collection[int] = ()) -> None:
        self.record_count = record_count
        self.topic_count = topic_count
        self.wanted = frozenset(wanted)
        self.failures: list[Exception] = []
        self.read_record_count = 0
        self.queue_ends: list[QueueEnd] = []
        """The queue ends reported at the last handshake."""
        self.is_queue_end_report_done = asyncio.Event()
        self.record_size_bytes = len(record.encode(self.record(0)))

    @property
    def end_physical_offset(self) -> int:
        """Where the log ends."""
        return self.record_count * self.record_size_bytes

    def topic(self, number: int) -> str:
        """Topic of a record."""
        return f"topic-{number % self.topic_count:05d}"

    def key(self, number: int) -> str:
        """Key of a record."""
        return WANTED_KEY if number in self.wanted else f"order-{number:09d}"

    def store_time_ms(self, number: int) -> int:
        """Store time of a record."""
        return START_TIME_MS + STEP_MS * number

    def record(self, number: int) -> Record:
        """The record of this number."""
        return make_record(
            topic=self.topic(number),
            queue_id=0,
            queue_offset=number // self.topic_count,
            physical_offset=number * self.record_size_bytes if number else 0,
            properties=properties_text(keys=self.key(number)),
            store_time_ms=self.store_time_ms(number),
        )

    def step(self, first: int, end: int) -> DispatchBatch:
        """The dispatch step of the records [first, end)."""
        numbers = np.arange(first, end, dtype=np.int64)
        topics, queue_indexes = np.unique(numbers % self.topic_count, return_inverse=True)
        sizes = np.full(len(numbers), self.record_size_bytes, np.int32)
        hashes = [hash_of(self.topic(number), self.key(number)) for number in range(first, end)]
        return DispatchBatch(
            start_physical_offset=first * self.record_size_bytes,
            end_physical_offset=end * self.record_size_bytes,
            queues=[(self.topic(topic), 0) for topic in topics.tolist()],
            physical_offsets=numbers * self.record_size_bytes,
            record_sizes=sizes,
            queue_indexes=queue_indexes.astype(np.int32),
            queue_offsets=numbers // self.topic_count,
            tags_codes=np.zeros(len(numbers), np.int64),
            store_times_ms=START_TIME_MS + STEP_MS * numbers,
            key_counts=np.ones(len(numbers), np.int32),
            key_hashes=np.array(hashes, np.int32),
        )

    def steps(self, first: int) -> Iterator[DispatchBatch]:
        """All steps from a record on."""
        for start in range(first, self.record_count, STEP_RECORD_COUNT):
            yield self.step(start, min(start + STEP_RECORD_COUNT, self.record_count))

    async def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """See LogSource."""
        del epoch, epochs
        yield Handshake(start_physical_offset, 1, 0, self.end_physical_offset, "computed")
        for step in self.steps(start_physical_offset // self.record_size_bytes):
            yield step
        yield Heartbeat(self.end_physical_offset, 0)
        await asyncio.Event().wait()

    async def report(self, report: ProgressReport) -> LogRole:
        """See LogSource."""
        del report
        return LogRole()

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """See LogSource."""
        del epoch, history_id, is_complete
        self.queue_ends = [end async for page in pages for end in page]
        self.is_queue_end_report_done.set()
        return 0

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        return topic in {self.topic(number) for number in range(self.topic_count)}

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        offsets = physical_offsets[:READ_COUNT_MAX].tolist()
        assert record_sizes is None or (record_sizes == self.record_size_bytes).all()
        assert all(0 <= offset < self.end_physical_offset for offset in offsets)
        self.read_record_count += len(offsets)
        parts = [record.encode(self.record(offset // self.record_size_bytes)) for offset in offsets]
        sizes = np.array([len(part) for part in parts], np.int32)
        return RecordBlock(b"".join(parts), np.cumsum(sizes, dtype=np.int64) - sizes, sizes, 0)
