# SPDX-License-Identifier: Apache-2.0
"""DiskGuard: looks at the free space from time to time, and closes the gate before the file system is full.

The active segment has its blocks reserved, so an append never needs space; what would fail is the next segment and
every small file. When there is space again, it also takes back the ballast that gave way.
Callers: the loop that owns the log.
"""

import asyncio
import logging

from libs.machine.fs import DiskUsage, Fs
from libs.machine.loop import SupervisedLoop
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.ballast import Ballast
from services.commitlog.engine.write_gate import WriteGate

_log = logging.getLogger(__name__)


class DiskGuard:
    """Keeps `WriteGate.is_disk_reserve_short` up to date."""

    def __init__(self, fs: Fs, config: CommitLogConfig, gate: WriteGate, ballast: Ballast) -> None:
        self.usage = DiskUsage(total_bytes=0, free_bytes=0)
        """As of the last look."""
        self._fs = fs
        self._config = config
        self._gate = gate
        self._ballast = ballast
        self._loop = SupervisedLoop(
            "disk guard", self.look, interval_ms=config.disk_interval_ms, expected_errors=(OSError,)
        )

    def start(self) -> None:
        """Begin to look."""
        self._loop.start()

    async def stop(self) -> None:
        """End. May be repeated."""
        await self._loop.stop()

    async def look(self) -> None:
        """Look once. Raises OSError."""
        self.usage = await asyncio.to_thread(self._fs.disk_usage, self._config.data_dir)
        is_short = self.usage.free_bytes < self._config.disk_reserve_bytes
        if is_short != self._gate.is_disk_reserve_short:
            self._gate.is_disk_reserve_short = is_short
            _log.warning(
                "%d bytes are free, the reserve is %d: appends are %s",
                self.usage.free_bytes,
                self._config.disk_reserve_bytes,
                "refused" if is_short else "accepted again",
            )
        await asyncio.to_thread(self._ballast.take)
