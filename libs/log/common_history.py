# SPDX-License-Identifier: Apache-2.0
"""Where the histories of two logs part, or of a log and of what was made from one. Pure: tables in, an offset out.

A log gets a new epoch each time that it may have lost a tail, and an epoch has one writer. So up to where the newest
epoch that both know ends in either of them they have the same bytes, and not a byte further for certain. The number
alone does not tell: a log that was restored from a copy of a running one counts on from there, and gives a number once
more. An epoch that begins at two places had two writers, who share nothing from the earlier of the two on.
Not handled: two who go on in one epoch, as a log and the copy that was made of it while it was stopped.
When in doubt the answer is lower: applying records again is harmless, keeping wrong ones is not.
Rule: docs/formats/epoch_file.md; RocketMQ's counterpart is EpochFileCache.findConsistentPoint.
"""

from collections.abc import Sequence
from itertools import pairwise

from libs.formats.epoch import Epoch


def common_end(mine: Sequence[Epoch], my_end: int, theirs: Sequence[Epoch], their_end: int) -> int:
    """Return the end of what both have, exclusive, as a physical offset.

    The tables ascend; each side ends at its end, exclusive. Two that share no epoch share nothing, with one exception:
    where all epochs of theirs are older than those that are kept of mine, these ended where the oldest of mine begins.
    """
    if mine and theirs and theirs[-1].number < mine[0].number:
        return min(their_end, mine[0].start_physical_offset)
    my_parts, their_parts = _parts(mine, my_end), _parts(theirs, their_end)
    common = 0
    for number in sorted(my_parts.keys() & their_parts.keys()):
        (my_start, my_part_end), (their_start, their_part_end) = my_parts[number], their_parts[number]
        if my_start != their_start:
            return min(common, my_start, their_start)
        common = min(my_part_end, their_part_end)
    return common


def assumed(epochs: Sequence[Epoch], number: int) -> Sequence[Epoch]:
    """Return the table that somebody has who knows the number of his last epoch alone: the log's own up to that one.

    0 means that none is known, as when indexes were made by RocketMQ: it counts as the log's first. Who names an epoch
    that the log never had gets an empty table.
    """
    if number == 0:
        return epochs[:1]
    if number > epochs[-1].number:
        return ()
    return [epoch for epoch in epochs if epoch.number <= number] or [Epoch(number, 0)]


def _parts(epochs: Sequence[Epoch], end: int) -> dict[int, tuple[int, int]]:
    """Return by epoch where its part of the log starts and ends."""
    ends = [*(later.start_physical_offset for _, later in pairwise(epochs)), end]
    return {epoch.number: (epoch.start_physical_offset, min(at, end)) for epoch, at in zip(epochs, ends, strict=False)}
