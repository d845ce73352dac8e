# SPDX-License-Identifier: Apache-2.0
"""RunHistory: the past runs in `reput/retention_history.jsonl`, a JSON object per line, oldest first.

Invariants: times of runs rise strictly, so that a time identifies a run. The file has the newest runs, at most
RUN_COUNT_MAX runs and about SIZE_BYTES_MAX bytes. The file is replaced as a whole, so a reader never sees half a line.
Its copy `.bak` has the same runs and is replaced in the same way.
Callers: RetentionLoop adds, the servicer reads, both on the same event loop.
A run without a readable line in either file is left out, and the next write drops it. The history is only for people:
no code depends on it.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from libs.formats import store_layout
from libs.machine.fs import Fs
from services.janitor.engine.facts import ConsumerBelow
from services.janitor.engine.policy import Decision
from services.janitor.engine.topic_rules import TopicState

RUN_COUNT_MAX = 1000
"""About three months with a busy hour a day and ten deletions in it."""
SIZE_BYTES_MAX = 4 << 20
"""A run lists every segment, so the lines are long if the log has many segments."""

_log = logging.getLogger(__name__)


class Run(Struct, frozen=True):
    """A run: its decisions and their results. `error` is empty if the run succeeded."""

    time_ms: int
    trigger: str
    is_dry_run: bool = False
    decisions: Sequence[Decision] = field(default_factory=tuple)
    deleted_segment_count: int = 0
    freed_bytes: int = 0
    error: str = ""
    consumers: Sequence[ConsumerBelow] = field(default_factory=tuple)
    consumer_count: int = 0
    topics: Sequence[TopicState] = field(default_factory=tuple)
    """The topics with a rule of their own. Not in the history's file."""
    first_kept_store_time_ms: int | None = None
    """Store time of the first record that the run keeps. Not in the history's file."""


class RunHistory:
    """The past runs, persisted. Create it, then call `load()` once."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs, self._path = fs, path
        self._backup_path = path.with_name(path.name + store_layout.BACKUP_SUFFIX)
        self._runs: list[tuple[Run, bytes]] = []

    def load(self) -> None:
        """Read the file and its copy, if they exist. Logs the file's unreadable lines, and its missing runs."""
        runs, unreadable_count = self._read(self._path)
        copies, _ = self._read(self._backup_path)
        lost_count = len(copies.keys() - runs.keys())
        if unreadable_count or lost_count:
            _log.warning(
                "%s: %d lines can't be read, and %d runs of %s are not there; those are taken",
                *(self._path, unreadable_count, lost_count, self._backup_path),
            )
        self._runs = [pair for _, pair in sorted((copies | runs).items())]

    def _read(self, path: Path) -> tuple[dict[int, tuple[Run, bytes]], int]:
        """Return the runs of a file by their time, and the number of unreadable lines."""
        runs: dict[int, tuple[Run, bytes]] = {}
        if not self._fs.exists(path):
            return runs, 0
        decoder = msgspec.json.Decoder(Run)
        unreadable_count = 0
        for line in self._fs.read(path).splitlines():
            try:
                run = decoder.decode(line)
                runs[run.time_ms] = run, line
            except msgspec.DecodeError:
                unreadable_count += 1
        return runs, unreadable_count

    @property
    def last_time_ms(self) -> int:
        """Time of the newest run, 0 without a run."""
        return self._runs[-1][0].time_ms if self._runs else 0

    def add(self, run: Run) -> None:
        """Append a run that is newer than all others. It is synced on return. Raises OSError of the file system."""
        assert run.time_ms > self.last_time_ms
        run = replace(run, topics=(), first_kept_store_time_ms=None)
        self._runs.append((run, msgspec.json.encode(run)))
        self._runs = self._runs[-RUN_COUNT_MAX:]
        size_bytes = sum(len(line) for _, line in self._runs)
        while size_bytes > SIZE_BYTES_MAX and len(self._runs) > 1:
            size_bytes -= len(self._runs.pop(0)[1])
        data = b"".join(line + b"\n" for _, line in self._runs)
        for path in (self._path, self._backup_path):
            self._fs.write_atomic(path, data)

    def page(self, *, before_ms: int | None, count: int) -> tuple[list[Run], bool]:
        """Return up to `count` runs older than `before_ms` (None: all), newest first, and whether more follow."""
        runs = [run for run, _ in reversed(self._runs) if before_ms is None or run.time_ms < before_ms]
        return runs[:count], len(runs) > count
