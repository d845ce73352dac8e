# SPDX-License-Identifier: Apache-2.0
"""Marks: how far the log is, in physical offsets, all exclusive ends.

Invariants: wrote >= committed >= flushed, and all four cover whole batches. `wrote` is the end of the log. What is
committed is in the files and survives the process; without a pool that is all that is written. What is flushed is on
the disk. Readers and followers see what is visible: with synchronous flushing what is synced (RocketMQ since 5.3.1),
otherwise what is in the files.
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

    @property
    def is_synced_at_once(self) -> bool:
        """Whether readers see only what is synced, so that a sync follows whatever is written (flush_mode sync)."""
        return self.visible is self.flushed

    @classmethod
    def of(cls, chain: SegmentChain, config: CommitLogConfig) -> Self:
        """Return the marks of a log that was just recovered."""
        wrote = Watermark(chain.max_physical_offset)
        committed = Watermark(chain.committed_physical_offset) if config.transient_store_pool else wrote
        flushed = Watermark(chain.flushed_physical_offset)
        visible = flushed if config.flush_mode == "sync" else committed
        return cls(wrote, committed, flushed, visible)
