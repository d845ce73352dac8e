# SPDX-License-Identifier: Apache-2.0
"""SegmentHold: one reader's hold of a segment, which ends by the reader or because the segment has to go.

Callers: one thread, that of the reader, which also calls `Segment.evict`.
"""

from libs.segments.segment import Segment


class SegmentHold:
    """Held from the start, unless the segment was closed already; see `is_held`."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.is_held = segment.hold(self.let_go)

    def let_go(self) -> None:
        """End the hold. Nothing of the segment may be read after it. May be repeated."""
        if self.is_held:
            self.is_held = False
            self.segment.release(self.let_go)
