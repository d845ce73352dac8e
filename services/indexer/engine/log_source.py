# SPDX-License-Identifier: Apache-2.0
"""What the engine needs of the CommitLog: its dispatch stream and its records. `rpc/` implements both over gRPC."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from libs.formats.dispatch_columns import DispatchBatch, Handshake, Heartbeat


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """How far the indexes are; offsets are exclusive ends, times are milliseconds since 1970, 0 if unknown."""

    indexed_physical_offset: int
    flushed_physical_offset: int
    queue_flushed_time_ms: int
    index_flushed_time_ms: int
    epoch: int


class LogSource(Protocol):
    """The log's tail."""

    def follow(
        self, start_physical_offset: int, epoch: int
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """Yield a handshake, then the log's records from an offset on, then follow the live end.

        The handshake tells where the records begin. Raises DependencyUnavailable whenever the log goes away.
        """
        ...

    async def report(self, report: ProgressReport) -> None:
        """Tell the log how far the indexes are. Raises DependencyUnavailable."""
        ...


class RecordBlock(NamedTuple):
    """Records that were read, in the order in which they were asked for."""

    records: bytes
    """The records one behind the other."""
    positions: NDArray[np.int64]
    """Where each record lies in `records`; meaningless for one that is gone."""
    sizes: NDArray[np.int32]
    """Size of each record in bytes; 0 for one that is no longer kept."""
    min_physical_offset: int
    """First byte of the log that is kept."""


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
        """Whether the log knows a topic, with or without messages. Raises DependencyUnavailable."""
        ...
