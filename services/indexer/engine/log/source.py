# SPDX-License-Identifier: Apache-2.0
"""Interfaces to the CommitLog: its dispatch stream, its records and, for shared state, appending.

`rpc/` implements all three over gRPC.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.records.state_record import StateRecord
from libs.formats.state.log_history import QueueEnd
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.log.record_view import RecordView, view_record


class ProgressReport(Struct, frozen=True):
    """The progress of the indexes. Offsets are exclusive ends, times are milliseconds since 1970, 0 if unknown."""

    indexed_physical_offset: int
    flushed_physical_offset: int
    queue_flushed_time_ms: int
    index_flushed_time_ms: int
    epoch: int
    history_id: str = ""


class LogRole(NamedTuple):
    """The role of the log among its copies, as the log itself reports."""

    is_leader: bool = True
    is_replicated: bool = False


class LogSource(Protocol):
    """The log's tail."""

    def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """Yield a handshake, then the log's records from an offset on, then follow the live end.

        A heartbeat comes about every second while there are no new records. The handshake tells where the records
        begin. `epoch` is the last epoch known here, and `epochs` all known epochs; it is empty if only the last is
        known. Raises DependencyUnavailable whenever the log becomes unavailable.
        """
        ...

    async def report(self, report: ProgressReport) -> LogRole:
        """Report the progress of the indexes to the log, and return its role. Raises DependencyUnavailable."""
        ...

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """Report the ends of the queues to the log. Returns how many contradict it. Raises DependencyUnavailable.

        `is_complete` says that a queue without a reported end never had a record.
        """
        ...


class RecordBlock(NamedTuple):
    """Records in a buffer, as the log returns them, in the order of the request, or a selection of them."""

    records: bytes | memoryview
    """The bytes from which the kernel builds answers."""
    positions: NDArray[np.int64]
    """Position of each record in `records`; meaningless for a record that is no longer kept."""
    sizes: NDArray[np.int32]
    """Size of each record in bytes; 0 for a record that is no longer kept."""
    min_physical_offset: int = 0
    """First byte of the log that is kept, as the answering source knows it."""

    def select(self, indexes: list[int] | NDArray[np.intp]) -> "RecordBlock":
        """Return some of the records, in the same buffer."""
        chosen = np.asarray(indexes, np.intp)
        return self._replace(positions=self.positions[chosen], sizes=self.sizes[chosen])

    def view(self, index: int) -> RecordView:
        """Return a view of a record that is kept."""
        return view_record(self.records, int(self.positions[index]), int(self.sizes[index]))

    def views(self) -> list[RecordView]:
        """Return a view of each record."""
        return [self.view(index) for index in range(len(self.sizes))]


NO_RECORDS = RecordBlock(b"", np.empty(0, np.int64), np.empty(0, np.int32))
"""A single shared object, because each waiting pull holds it."""


class RecordSource(Protocol):
    """The log's records, and the topics that the log knows."""

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """Read the first of these records, at least 1: as many as fit into an answer of the log.

        Without sizes the records' own sizes are used. Raises DependencyUnavailable, RecordDamaged, and NotARecord when
        no record (of this size) starts at an offset.
        """
        ...

    async def has_topic(self, topic: str) -> bool:
        """Return whether the log knows a topic, with or without messages. Raises DependencyUnavailable."""
        ...


class LogSink(Protocol):
    """The log's interface for the shared state."""

    async def share(self, records: Sequence[StateRecord]) -> None:
        """Append records of the state to the leader of the log, as durably as the leader promises.

        Raises AppendRefused, and then nothing was appended; DependencyUnavailable, and then it is unknown whether the
        records were appended; NotDurableYet: the log has the records, and a failover may undo them.
        """
        ...


class NoSink:
    """The LogSink of an Indexer that has no log to append to."""

    async def share(self, _records: Sequence[StateRecord]) -> None:
        """See LogSink."""
        raise DependencyUnavailable("commitlog", "there is none")
