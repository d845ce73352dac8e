# SPDX-License-Identifier: Apache-2.0
"""Logs on a disk, and an offline rebuild of their indexes."""

from libs.formats.epoch import Epoch
from libs.formats.state import epoch_file
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.offline_rebuild import RebuildReport, rebuild
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SEGMENT_SIZE_BYTES, SMALL, write_log


def filled(count: int, log: FakeLog | None = None) -> FakeLog:
    """Records with keys for several index files and several files of each queue."""
    log = log or FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES)
    for index in range(count):
        log.append("T", index % 3, tag="A", keys=f"all k{index % 5}")
    return log


def stored(log: FakeLog, fs: MemoryFs | None = None, *, epoch: int = 1) -> MemoryFs:
    """The log on a disk."""
    fs = fs or MemoryFs()
    write_log(log, fs)
    fs.write_atomic(DATA_DIR / "epochFileCheckpoint", epoch_file.encode([Epoch(epoch, 0)]))
    return fs


async def run(fs: MemoryFs, **options: object) -> RebuildReport:
    """Rebuild the indexes of the directory."""
    arguments = {"log_data_dir": DATA_DIR, "segment_size_bytes": SEGMENT_SIZE_BYTES, "clock": ManualClock()}
    return await rebuild(fs, SMALL, **{**arguments, **options})  # type: ignore[arg-type]
