# SPDX-License-Identifier: Apache-2.0
"""Cut: truncates the bytes of a log that its leader does not have, before the log is recovered.

Invariants: the bytes are copied first. At no moment do the files describe more than the log has. So after a crash in
between, the log starts, and is cut again after it connects to its leader. The epochs are removed after the bytes: a log
that is shorter than its epoch table is harmless.
Callers: a start, in a worker thread, before other code uses the chain.
"""

import logging
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from libs.formats.epoch import Epoch
from libs.log.state import small_files
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.segments.chain import SegmentChain
from libs.segments.errors import OffsetTrimmed
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep import queue_snapshot
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.start.tail_copy import copy_tail

_log = logging.getLogger(__name__)


class Cut(Struct, frozen=True):
    """The physical offset at which the log and its leader's log diverge, and the leader's epochs."""

    physical_offset: int
    epochs: Sequence[Epoch]

    def apply(self, fs: Fs, config: CommitLogConfig, chain: SegmentChain, epochs: EpochHistory) -> tuple[int, str]:
        """Cut the log, durably. Returns the number of copied bytes and the path of the first copy.

        Raises OSError, and OffsetTrimmed, with nothing changed, if the log begins behind the cut.
        """
        end = self.physical_offset
        if end < chain.min_physical_offset:
            raise OffsetTrimmed(value=end, min_offset=chain.min_physical_offset)
        copied_bytes, path = copy_tail(fs, config, chain, end, self.epochs[-1].number)
        failpoint("cut.after_copy")
        checkpoint = small_files.load_checkpoint(fs, config.data_dir)
        lowered = replace(
            checkpoint,
            commit_log_time_ms=0,
            consume_queue_time_ms=0,
            index_time_ms=0,
            confirmed_physical_offset=min(checkpoint.confirmed_physical_offset, end),
            flushed_physical_offset=min(checkpoint.flushed_physical_offset, end),
        )
        small_files.save_checkpoint(fs, config.data_dir, lowered.of_reput())
        failpoint("cut.after_checkpoint")
        snapshot = queue_snapshot.load(fs, config.data_dir)
        if snapshot is None or snapshot.end_physical_offset > end:
            queue_snapshot.remove(fs, config.data_dir)
        failpoint("cut.after_snapshot")
        chain.truncate_after(end, clear_rest=True)
        chain.sync()
        failpoint("cut.after_truncate")
        common = [epoch for epoch in epochs.epochs if epoch.start_physical_offset < end or epoch in self.epochs]
        epochs.adopt(epochs.history_id, common or list(epochs.epochs[:1]))
        failpoint("cut.after_epochs")
        _log.warning("the log is cut at %d, where its leader's parts: %d bytes are kept in %s", end, copied_bytes, path)
        return copied_bytes, path
