# SPDX-License-Identifier: Apache-2.0
"""Marks: the progress of the log, in physical offsets, all exclusive ends.

Invariants: wrote >= committed >= flushed >= replicated, and all five cover whole batches. `wrote` is the end of the
log. Committed bytes are in the files and survive the process; without a pool all written bytes are committed. Flushed
bytes are on the disk. Replicated bytes are on the disks of all members of the in-sync set. Readers and followers see
the visible bytes: in a synchronous master the replicated bytes, otherwise with synchronous flushing the flushed bytes
(RocketMQ since 5.3.1), and otherwise the committed bytes. In a follower the visible bytes are the bytes that its leader
shows and that are on its own disk.
"""

from typing import Self

from msgspec import Struct

from libs.log.watermark import Watermark
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig

DURABILITY_STORE, DURABILITY_MEMORY, DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED = range(4)
"""The durabilities that a request may ask for. Each is reached when a mark reaches the end of the batch."""


class Marks(Struct, frozen=True):
    """The marks of a log. Two names may be the same mark."""

    wrote: Watermark
    committed: Watermark
    flushed: Watermark
    replicated: Watermark
    visible: Watermark
    is_synced_at_once: bool
    """Whether readers see only synced bytes, so that a sync follows each write (flush_mode sync)."""

    @property
    def failing(self) -> tuple[Watermark, ...]:
        """The marks that no longer advance after the log is sealed."""
        return self.committed, self.flushed, self.replicated

    @property
    def is_replicated_at_once(self) -> bool:
        """Whether readers see only replicated bytes, so that all members sync after each write (sync_master)."""
        return self.visible is self.replicated

    @classmethod
    def of(
        cls,
        chain: SegmentChain,
        config: CommitLogConfig,
        confirmed_physical_offset: int,
        replicated_physical_offset: int,
    ) -> Self:
        """Return the marks of a recovered log, with its confirmed and replicated offsets from before the start."""
        wrote = Watermark(chain.max_physical_offset)
        committed = Watermark(chain.committed_physical_offset) if config.has_pool else wrote
        flushed = Watermark(chain.flushed_physical_offset)
        confirmed = min(max(confirmed_physical_offset, chain.min_physical_offset), flushed.value)
        replicated = Watermark(min(replicated_physical_offset, flushed.value))
        is_synced_at_once = config.flush_mode == "sync" or config.role_name == "sync_master"
        visible = flushed if is_synced_at_once else committed
        if config.role_name == "sync_master":
            visible = replicated
            replicated.advance(confirmed)
            replicated.hurry(wrote.value)
        elif config.is_follower:
            visible = Watermark(confirmed)
        return cls(wrote, committed, flushed, replicated, visible, is_synced_at_once)
