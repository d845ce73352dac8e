# SPDX-License-Identifier: Apache-2.0
"""Operations on a chain that services do in several steps, each in a single call."""

from libs.machine.fs import Fs
from libs.segments.chain import SegmentChain
from libs.segments.segment import Segment


def drop_first(fs: Fs, chain: SegmentChain) -> Segment:
    """Remove the oldest segment, durably, and return it."""
    first = chain.detach_first()
    first.delete()
    fs.sync_directory(first.path.parent)
    return first
