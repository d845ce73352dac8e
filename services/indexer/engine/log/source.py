# SPDX-License-Identifier: Apache-2.0
"""What the engine needs of the CommitLog: its dispatch stream, its records and, for delayed messages, appending.

`rpc/` implements all three over gRPC.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.records.record import Record
from libs.formats.records.state_record import StateRecord
from libs.formats.state.log_history import QueueEnd
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.log.record_view import RecordView, view_record


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """How far the indexes are; offsets are exclusive ends, times are milliseconds since 1970, 0 if unknown."""

    indexed_physical_offset: int
    flushed_physical_offset: int
    queue_flushed_time_ms: int
    index_flushed_time_ms: int
    epoch: int
    history_id: str = ""


class Standing(NamedTuple):
    """Of the log among its copies, as it says itself."""

    is_leader: bool = True
    is_replicated: bool = False


class LogSource(Protocol):
    """The log's tail."""

    def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """Yield a handshake, then the log's records from an offset on, then follow the live end.

        A heartbeat comes every second or so while nothing is new. The handshake tells where the records
        begin: `epoch` is the last that is known here, and `epochs` all of them, or none if only the last one is.
        Raises DependencyUnavailable whenever the log goes away.
        """
        ...

    async def report(self, report: ProgressReport) -> Standing:
        """Tell the log how far the indexes are, and hear what it is. Raises DependencyUnavailable."""
        ...

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """Tell the log where the queues end. Returns how many contradict it. Raises DependencyUnavailable.

        `is_complete` says that a queue without an end never had a record.
        """
        ...


class RecordBlock(NamedTuple):
    """Records in one buffer, as the log gives them, in the order in which they were asked for; or some of them."""

    records: bytes | memoryview
    """What the kernel makes answers of."""
    positions: NDArray[np.int64]
    """Where each record lies in `records`; meaningless for one that is gone."""
    sizes: NDArray[np.int32]
    """Size of each record in bytes; 0 for one that is no longer kept."""
    min_physical_offset: int = 0
    """First byte of the log that is kept, where it was asked."""

    def select(self, indexes: list[int] | NDArray[np.intp]) -> "RecordBlock":
        """Return some of the records, in the same buffer."""
        chosen = np.asarray(indexes, np.intp)
        return self._replace(positions=self.positions[chosen], sizes=self.sizes[chosen])

    def view(self, index: int) -> RecordView:
        """Look at one of the records that are kept."""
        return view_record(self.records, int(self.positions[index]), int(self.sizes[index]))

    def views(self) -> list[RecordView]:
        """Look at each record."""
        return [self.view(index) for index in range(len(self.sizes))]


NO_RECORDS = RecordBlock(b"", np.empty(0, np.int64), np.empty(0, np.int32))
"""One and the same for all, because each pull that waits holds it."""


class RecordSource(Protocol):
    """The log's records, and the topics that they may have."""

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """Read the first few of these records, at least one: what fits into one answer of the log.

        Without sizes the records' own are used. Raises DependencyUnavailable, RecordDamaged, and NotARecord when no
        record (of this size) starts at one of the offsets.
        """
        ...

    async def has_topic(self, topic: str) -> bool:
        """Return whether the log knows a topic, with or without messages. Raises DependencyUnavailable."""
        ...


class Appended(NamedTuple):
    """A batch that the log has."""

    end_physical_offset: int
    """Where it ends in the log, exclusive."""
    is_on_disk: bool
    """Whether it survives a power cut of the log's machine; what lies before it does then too."""


class StateBatch(NamedTuple):
    """A record of the shared state, and the writer of the batch that it is in: an id, and a number within it."""

    record: StateRecord
    writer: tuple[str, int]


class LogSink(Protocol):
    """The log's front."""

    async def append(self, batch: list[Record], *, names_queue: bool, state: StateBatch | None = None) -> Appended:
        """Append messages, all or nothing, and wait for their durability. Without `names_queue` the log chooses queues.

        A record of the state comes along in the same batch. Raises AppendRefused, and then nothing was appended;
        DependencyUnavailable, and then nobody knows.
        """
        ...

    async def share(self, records: Sequence[StateRecord]) -> Appended:
        """Append records of the state to whichever log leads, as safely as that promises.

        Raises as `append`, and NotDurableYet: the log has them, and a failover may undo them.
        """
        ...


class NoSink:
    """LogSink of an Indexer that has no log to append to."""

    async def append(self, _batch: list[Record], *, names_queue: bool, state: StateBatch | None = None) -> Appended:
        """See LogSink."""
        del names_queue, state
        raise DependencyUnavailable("commitlog", "there is none")

    async def share(self, _records: Sequence[StateRecord]) -> Appended:
        """See LogSink."""
        raise DependencyUnavailable("commitlog", "there is none")
