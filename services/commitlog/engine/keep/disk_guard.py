# SPDX-License-Identifier: Apache-2.0
"""DiskGuard: checks the free space periodically, and closes the gate before the file system is full.

With several disks the guard judges the emptiest, because the next segment can be created there. It names to the chain
the disks that are too full for appends to begin again, read-only or missing; the chain creates no new segments there.
The gate closes above disk_full_percent and opens again at disk_open_percent, so it does not flap. The guard needs no
Janitor. The Janitor's reports, which include the Indexer's disk, expire: a Janitor that is gone blocks no appends.
The blocks of the active segment are reserved, so an append never needs space. Without space the next segment and every
small file would fail. When there is space again, the guard also refills the ballast after it gave way.
Callers: the loop that owns the log.
Rules: RocketMQ 5.3 CleanCommitLogService.isSpaceToDelete and RunningFlags.DISK_FULL.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct

from libs.machine.clock import Clock
from libs.machine.fs import DiskUsage, Fs
from libs.machine.loop import SupervisedLoop
from libs.segments.directories import SegmentDirectories
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.small_files import SmallFiles
from services.commitlog.engine.write.gate import Reason, WriteGate

NOT_LOOKED_AT = DiskUsage(total_bytes=0, free_bytes=0, used_bytes=0)

_log = logging.getLogger(__name__)


class LogDirectory(Struct, frozen=True):
    """A directory of segments. `is_full` keeps new segments away while other directories have room.

    `is_read_only` always keeps them away.
    """

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
    """Usage of each directory of the log, from its last successful check."""
    data_usage: DiskUsage = NOT_LOOKED_AT
    """Usage of the data directory, where all other files are."""
    unusable: frozenset[Path] = frozenset()
    """Directories without new segments: their file system is read-only, or it cannot be checked."""
    loop: SupervisedLoop = field(init=False)
    _reported_s: float = 0.0

    def __post_init__(self) -> None:
        self.usages = dict.fromkeys(self._directories.all, NOT_LOOKED_AT)
        self.loop = SupervisedLoop("disk guard", self.look, interval_ms=self._config.disk_interval_ms)

    async def look(self) -> None:
        """Check the disks and update the gate. Raises OSError."""
        self._end_old_report()
        unusable = await asyncio.to_thread(self._measure)
        self._tell_unusable(unusable)
        limit_percent = self._config.disk_open_percent
        full = {directory for directory, usage in self.usages.items() if usage.used_percent > limit_percent}
        self._directories.full = frozenset(full | self.unusable)
        self._judge_reserve()
        self._judge_percent()
        await self._small_files.write(self._small_files.ballast.occupy)

    @property
    def usage(self) -> DiskUsage:
        """The emptiest disk that takes new segments, as of the last check."""
        return min(self._usable(), key=lambda usage: usage.used_percent)

    def log_directories(self) -> list[LogDirectory]:
        """Return the directories of the segments, as of the last check of their disks."""
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
        """Return the usage of the disks that take new segments, or of all writable disks if no disk does."""
        writable = self._directories.writable
        usable = [directory for directory in writable if directory not in self.unusable]
        return [self.usages[directory] for directory in usable or writable]

    def _measure(self) -> dict[Path, str]:
        """Check all disks. Returns the unusable directories with reasons. Raises OSError for the disk of data_dir."""
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
        """Record a report of the Janitor. A full disk refuses appends until a later report, or until it expires."""
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
