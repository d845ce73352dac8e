# SPDX-License-Identifier: Apache-2.0
"""Marks: how far the log is, in physical offsets, all exclusive ends.

Invariants: wrote >= committed >= flushed, and all four cover whole batches. `wrote` is the end of the log. What is
committed is in the files and survives the process; without a pool that is all that is written. What is flushed is on
the disk. Readers and followers see what is visible: with synchronous flushing what is synced (RocketMQ since 5.3.1),
otherwise what is in the files; of a log that follows, what its leader shows and its own disk has.
"""

from dataclasses import dataclass
from typing import Self

from libs.log.watermark import Watermark
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig


@dataclass(frozen=True, slots=True)
class Marks:
    """See the module. Two names may be one mark."""

    wrote: Watermark
    committed: Watermark
    flushed: Watermark
    visible: Watermark
    is_synced_at_once: bool
    """Whether readers see only what is synced, so that a sync follows whatever is written (flush_mode sync)."""

    @classmethod
    def of(cls, chain: SegmentChain, config: CommitLogConfig, confirmed_physical_offset: int) -> Self:
        """Return the marks of a log that was just recovered, of which so much was confirmed for certain."""
        wrote = Watermark(chain.max_physical_offset)
        committed = Watermark(chain.committed_physical_offset) if config.has_pool else wrote
        flushed = Watermark(chain.flushed_physical_offset)
        is_synced_at_once = config.flush_mode == "sync"
        visible = flushed if is_synced_at_once else committed
        if config.is_follower:
            visible = Watermark(min(max(confirmed_physical_offset, chain.min_physical_offset), flushed.value))
        return cls(wrote, committed, flushed, visible, is_synced_at_once)
