# SPDX-License-Identifier: Apache-2.0
"""RunHistory: the past runs in `reput/retention_history.jsonl`, one JSON object per line, oldest first.

Invariants: times of runs rise strictly, so that a time names a run; the file has at most RUN_COUNT_MAX runs and about
SIZE_BYTES_MAX bytes, the newest ones. It is replaced as a whole, so a reader never sees half a line.
Callers: RetentionLoop adds, the servicer reads, both on one event loop.
A line that can't be read is left out and is gone at the next write: history is for people, nothing depends on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from libs.machine.fs import Fs
from services.janitor.engine.facts import ConsumerBelow
from services.janitor.engine.policy import Decision

RUN_COUNT_MAX = 1000
"""About three months of one busy hour a day with ten deletions."""
SIZE_BYTES_MAX = 4 << 20
"""A run lists every segment, so a log of many segments has long lines."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what was decided and what came of it; `error` is empty if all went well."""

    time_ms: int
    trigger: str
    is_dry_run: bool = False
    decisions: Sequence[Decision] = field(default_factory=tuple)
    deleted_segment_count: int = 0
    freed_bytes: int = 0
    error: str = ""
    consumers: Sequence[ConsumerBelow] = field(default_factory=tuple)
    consumer_count: int = 0


class RunHistory:
    """Past runs, persisted. Make it, then `load()` once."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs, self._path = fs, path
        self._runs: list[tuple[Run, bytes]] = []

    def load(self) -> int:
        """Read the file, if there is one. Returns how many lines were unreadable."""
        if not self._fs.exists(self._path):
            return 0
        decoder = msgspec.json.Decoder(Run)
        unreadable_count = 0
        for line in self._fs.read(self._path).splitlines():
            try:
                self._runs.append((decoder.decode(line), line))
            except msgspec.DecodeError:
                unreadable_count += 1
        self._runs.sort(key=lambda pair: pair[0].time_ms)
        return unreadable_count

    @property
    def last_time_ms(self) -> int:
        """Time of the newest run, 0 if there is none."""
        return self._runs[-1][0].time_ms if self._runs else 0

    def add(self, run: Run) -> None:
        """Append a run that is newer than all others. Synced when it returns; raises OSError of the file system."""
        assert run.time_ms > self.last_time_ms
        self._runs.append((run, msgspec.json.encode(run)))
        self._runs = self._runs[-RUN_COUNT_MAX:]
        size_bytes = sum(len(line) for _, line in self._runs)
        while size_bytes > SIZE_BYTES_MAX and len(self._runs) > 1:
            size_bytes -= len(self._runs.pop(0)[1])
        self._fs.write_atomic(self._path, b"".join(line + b"\n" for _, line in self._runs))

    def page(self, *, before_ms: int | None, count: int) -> tuple[list[Run], bool]:
        """Up to `count` runs older than `before_ms` (None: all), newest first, and whether more follow."""
        runs = [run for run, _ in reversed(self._runs) if before_ms is None or run.time_ms < before_ms]
        return runs[:count], len(runs) > count
