# SPDX-License-Identifier: Apache-2.0
"""The end of the common history of two logs, or of a log and its indexes. Pure: tables in, an offset out.

A log gets a new epoch each time that it may have lost a tail, and an epoch has a single writer. So both sides have the
same bytes up to the first end, in either side, of the newest epoch that both know. No byte after it is certainly equal.
The number alone does not identify an epoch: a log that was restored from a copy of a running log continues to count
from the copy, and so reuses a number. An epoch with two different starts had two writers. Their logs have nothing in
common from the earlier start on.
Not handled: two writers that continue the same epoch, such as a log and a copy made of it while it was stopped.
When in doubt the answer is lower: to apply records again is harmless, to keep wrong records is not.
Rule: docs/formats/epoch_file.md; RocketMQ's counterpart is EpochFileCache.findConsistentPoint.
"""

from collections.abc import Sequence
from itertools import pairwise

from libs.formats.epoch import Epoch


def common_end(mine: Sequence[Epoch], my_end: int, theirs: Sequence[Epoch], their_end: int) -> int:
    """Return the end of the common history, exclusive, as a physical offset.

    The tables ascend. Each side's end is exclusive. Sides without a common epoch have no common history. There is an
    exception: if all epochs of `theirs` are older than the oldest epoch kept in `mine`, they ended where it begins.
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
    """Return the table of a follower that only knows the number of its last epoch: the log's table up to this number.

    0 means that no epoch is known, as of indexes that RocketMQ made. It is taken as the log's first epoch. The table
    is empty for an epoch that is newer than the log's.
    """
    if number == 0:
        return epochs[:1]
    if number > epochs[-1].number:
        return ()
    return [epoch for epoch in epochs if epoch.number <= number] or [Epoch(number, 0)]


def _parts(epochs: Sequence[Epoch], end: int) -> dict[int, tuple[int, int]]:
    """Return by epoch the start and the end of its part of the log."""
    ends = [*(later.start_physical_offset for _, later in pairwise(epochs)), end]
    return {epoch.number: (epoch.start_physical_offset, min(at, end)) for epoch, at in zip(epochs, ends, strict=False)}
