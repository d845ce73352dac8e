# SPDX-License-Identifier: Apache-2.0
"""Marks: how far the log is, in physical offsets, all exclusive ends.

Invariants: wrote >= committed >= flushed >= replicated, and all five cover whole batches. `wrote` is the end of the
log. What is committed is in the files and survives the process; without a pool that is all that is written. What is
flushed is on the disk, what is replicated on the disks of all members of the in-sync set. Readers and followers see
what is visible: of a synchronous master what is replicated; otherwise with synchronous flushing what is synced
(RocketMQ since 5.3.1), and else what is in the files; of a log that follows, what its leader shows and its own disk
has.
"""

from dataclasses import dataclass
from typing import Self

from libs.log.watermark import Watermark
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig

DURABILITY_STORE, DURABILITY_MEMORY, DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED = range(4)
"""What a request may ask for: how far a mark is."""


@dataclass(frozen=True, slots=True)
class Marks:
    """See the module. Two names may be one mark."""

    wrote: Watermark
    committed: Watermark
    flushed: Watermark
    replicated: Watermark
    visible: Watermark
    is_synced_at_once: bool
    """Whether readers see only what is synced, so that a sync follows whatever is written (flush_mode sync)."""

    @property
    def failing(self) -> tuple[Watermark, ...]:
        """Those that go no further once the log is sealed."""
        return self.committed, self.flushed, self.replicated

    @property
    def is_replicated_at_once(self) -> bool:
        """Whether readers see only what is replicated, so that all members sync whatever is written (sync_master)."""
        return self.visible is self.replicated

    @classmethod
    def of(
        cls,
        chain: SegmentChain,
        config: CommitLogConfig,
        confirmed_physical_offset: int,
        replicated_physical_offset: int,
    ) -> Self:
        """Return the marks of a log that was just recovered, of which so much was confirmed, and replicated, before."""
        wrote = Watermark(chain.max_physical_offset)
        committed = Watermark(chain.committed_physical_offset) if config.has_pool else wrote
        flushed = Watermark(chain.flushed_physical_offset)
        confirmed = min(max(confirmed_physical_offset, chain.min_physical_offset), flushed.value)
        replicated = Watermark(min(replicated_physical_offset, flushed.value))
        is_synced_at_once = config.flush_mode == "sync" or config.role == "sync_master"
        visible = flushed if is_synced_at_once else committed
        if config.role == "sync_master":
            visible = replicated
            replicated.advance(confirmed)
            replicated.hurry(wrote.value)
        elif config.is_follower:
            visible = Watermark(confirmed)
        return cls(wrote, committed, flushed, replicated, visible, is_synced_at_once)
