# SPDX-License-Identifier: Apache-2.0
"""DiskGuard: looks at the free space from time to time, and closes the gate before the file system is full.

Of several disks of the log the emptiest counts, because the next segment can go there; those that are too full for
appends to begin again, read-only or not there at all are named to the chain, which keeps new segments away from them.
It closes above disk_full_percent and opens again at disk_open_percent, so that it does not flap; it needs no Janitor.
The Janitor's reports, which tell of the Indexer's disk too, hold for a while only: one that is gone keeps nobody out.
The active segment has its blocks reserved, so an append never needs space; what would fail is the next segment and
every small file. When there is space again, the guard also takes back the ballast that gave way.
Callers: the loop that owns the log.
Rules: RocketMQ 5.3 CleanCommitLogService.isSpaceToDelete and RunningFlags.DISK_FULL.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path

from libs.machine.clock import Clock
from libs.machine.fs import DiskUsage, Fs
from libs.machine.loop import SupervisedLoop
from libs.segments.directories import SegmentDirectories
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.write.gate import Reason, WriteGate

NOT_LOOKED_AT = DiskUsage(total_bytes=0, free_bytes=0, used_bytes=0)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A directory of segments. `is_full` keeps new ones away while there are others, `is_read_only` always."""

    path: Path
    usage: DiskUsage
    segment_count: int
    is_read_only: bool
    is_full: bool


@dataclass(slots=True, eq=False)
class DiskGuard:
    """Keeps the gate's flags about disks up to date."""

    _fs: Fs
    _clock: Clock
    _config: CommitLogConfig
    _directories: SegmentDirectories
    _gate: WriteGate
    _small_files: SmallFiles
    usages: dict[Path, DiskUsage] = field(init=False)
    """Of each directory of the log, from the last look that was possible."""
    data_usage: DiskUsage = NOT_LOOKED_AT
    """Of the data directory, where all other files are."""
    unusable: frozenset[Path] = frozenset()
    """Directories that take no new segments because their file system is read-only, or can't be looked at."""
    loop: SupervisedLoop = field(init=False)
    _reported_s: float = 0.0

    def __post_init__(self) -> None:
        self.usages = dict.fromkeys(self._directories.all, NOT_LOOKED_AT)
        self.loop = SupervisedLoop("disk guard", self.look, interval_ms=self._config.disk_interval_ms)

    async def look(self) -> None:
        """Look once. Raises OSError."""
        self._end_old_report()
        unusable = await asyncio.to_thread(self._measure)
        self._tell_unusable(unusable)
        most = self._config.disk_open_percent
        full = {directory for directory, usage in self.usages.items() if usage.used_percent > most}
        self._directories.full = frozenset(full | self.unusable)
        self._judge_reserve()
        self._judge_percent()
        await self._small_files.write(self._small_files.ballast.occupy)

    @property
    def usage(self) -> DiskUsage:
        """The emptiest disk that takes new segments, as of the last look."""
        return min(self._usable(), key=lambda usage: usage.used_percent)

    def log_directories(self) -> list[LogDirectory]:
        """Return the directories of the segments, as of the last look at their disks."""
        return [
            LogDirectory(
                path=directory,
                usage=usage,
                segment_count=self._directories.counts[directory],
                is_read_only=directory in self._directories.read_only or directory in self.unusable,
                is_full=directory in self._directories.full,
            )
            for directory, usage in self.usages.items()
        ]

    def _usable(self) -> list[DiskUsage]:
        """Return how the disks are used that take new segments, or those that should if none does."""
        writable = self._directories.writable
        usable = [directory for directory in writable if directory not in self.unusable]
        return [self.usages[directory] for directory in usable or writable]

    def _measure(self) -> dict[Path, str]:
        """Look at all disks. Returns which of them take no segments, and why. Raises OSError for that of data_dir."""
        self.data_usage = self._fs.disk_usage(self._config.data_dir)
        unusable = {}
        for directory in self.usages:
            try:
                self.usages[directory] = self._fs.disk_usage(directory)
            except OSError as error:
                unusable[directory] = str(error.strerror)
            else:
                if self.usages[directory].is_read_only:
                    unusable[directory] = "its file system is read-only"
        return unusable

    def _tell_unusable(self, unusable: dict[Path, str]) -> None:
        for directory in self._directories.writable:
            if directory in unusable and directory not in self.unusable:
                _log.warning("%s gets no new segments: %s", directory, unusable[directory])
            elif directory in self.unusable and directory not in unusable:
                _log.warning("%s gets new segments again", directory)
        self.unusable = frozenset(unusable)

    def report(self, *, is_full: bool, used_ratio: float) -> None:
        """Hear the Janitor's verdict: a full disk refuses appends until a report says otherwise, or none comes."""
        self._reported_s = self._clock.monotonic_s()
        if self._gate.put(Reason.DISK_REPORTED_FULL, holds=is_full):
            state = "full" if is_full else "not full"
            _log.warning("the Janitor reports the disk as %s, it is used to %.1f %%", state, used_ratio * 100)

    def _end_old_report(self) -> None:
        age_s = self._clock.monotonic_s() - self._reported_s
        is_old = age_s * 1000 > self._config.disk_report_timeout_ms
        if is_old and self._gate.put(Reason.DISK_REPORTED_FULL, holds=False):
            _log.warning("the Janitor has not reported for %.0f s: its verdict of a full disk has ended", age_s)

    def _judge_reserve(self) -> None:
        """Judge whether there is space for the small files and the next segment."""
        most_bytes = max(usage.free_bytes for usage in self._usable())
        free_bytes = min(self.data_usage.free_bytes, most_bytes)
        is_short = free_bytes < self._config.disk_reserve_bytes
        if self._gate.put(Reason.DISK_RESERVE_SHORT, holds=is_short):
            _log.warning(
                "%d bytes are free, the reserve is %d: appends are %s",
                free_bytes,
                self._config.disk_reserve_bytes,
                "refused" if is_short else "accepted again",
            )

    def _judge_percent(self) -> None:
        was_full, opens_at = self._gate.holds(Reason.DISK_FULL), self._config.disk_open_percent
        percent = self.usage.used_percent
        is_full = percent > (opens_at if was_full else self._config.disk_full_percent)
        if self._gate.put(Reason.DISK_FULL, holds=is_full):
            appends = f"refused until it is {opens_at} %" if is_full else "accepted again"
            _log.warning("%d %% of the disk are used: appends are %s", percent, appends)
