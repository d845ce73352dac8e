# SPDX-License-Identifier: Apache-2.0
"""Where the history of a follower and that of the log end to agree. Pure: numbers in, a number out.

A log gets a new epoch each time that it may have lost a tail. A follower says up to where it has applied the log and
the last epoch that it knew; the answer is the end of what both have in common, and the follower drops what it built
from records at or past it. When in doubt the answer is lower: applying records again is harmless, keeping wrong ones
is not. Rule: docs/formats/epoch_file.md; RocketMQ's counterpart is EpochFileCache.findConsistentPoint.
"""

from collections.abc import Sequence

from libs.formats.state.epoch_file import Epoch


def common_end(
    epochs: Sequence[Epoch], *, max_physical_offset: int, follower_epoch: int, follower_physical_offset: int
) -> int:
    """Return the end of the common history, exclusive, as a physical offset. It is at most the follower's own.

    `epochs` are the log's, ascending and at least one. `follower_epoch` 0 means that the follower knows of no epoch, as
    when its indexes were made by RocketMQ: it counts as the log's first. An epoch that the log never had shares
    nothing.
    """
    assert epochs
    assert follower_epoch >= 0
    assert follower_physical_offset >= 0
    epoch = max(follower_epoch, epochs[0].number)
    if epoch > epochs[-1].number:
        return 0
    if follower_epoch != 0 and follower_epoch < epochs[0].number:
        # The epochs between were dropped with their segments, so the follower's ended where the oldest kept one starts.
        return min(follower_physical_offset, epochs[0].start_physical_offset)
    for earlier, later in zip(epochs, [*epochs[1:], None], strict=True):
        if earlier.number == epoch or (later is not None and later.number > epoch):
            end = max_physical_offset if later is None else later.start_physical_offset
            return min(follower_physical_offset, end, max_physical_offset)
    raise AssertionError("the last epoch ends the loop")
