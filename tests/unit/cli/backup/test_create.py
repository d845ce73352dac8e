# SPDX-License-Identifier: Apache-2.0
"""The making of a backup from a source that stops, lies or changes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.backup.create import Creation, Pace, Stretch
from cli.backup.errors import BackupError
from cli.backup.manifest import EpochStart
from cli.backup.places import open_place
from cli.backup.plan import Extent
from cli.backup.repository import Repository

SEGMENT_SIZE = 100


class Stopped(Exception):
    """Stands for a kill."""


@dataclass
class FakeStore:
    """A log of 100-byte segments with records of 30 bytes and a blank of 10, which may stop after some bytes."""

    end: int
    history: str = "a" * 32
    epochs: tuple[EpochStart, ...] = (EpochStart(1, 0),)
    stop_at: int | None = None
    sent_bytes: int = 0
    later: "list[Extent]" = field(default_factory=list)
    skips: bool = False
    sends_nothing: bool = False

    def positions(self) -> Mapping[str, bytes]:
        """One file."""
        return {"config/consumerOffset.json": b"{}"}

    def state(self) -> tuple[Extent, Mapping[str, bytes]]:
        """The extent; after the first call what a test has planned."""
        now = Extent(0, self.end, SEGMENT_SIZE, self.history, self.epochs)
        return (self.later.pop(0) if self.later else now), {"config/topics.json": b"[]"}

    def records(self, start: int, end: int) -> Iterator[Stretch]:
        """Records of 30 bytes, blanks of 10."""
        at = start
        while at < end:
            size = 10 if at % SEGMENT_SIZE == 90 else 30
            if self.stop_at is not None and at >= self.stop_at:
                raise Stopped
            data = b"" if size == 10 or self.sends_nothing else b"%030d" % at
            self.sent_bytes += len(data)
            yield Stretch(at + (1 if self.skips else 0), at + size, data)
            at += size


def create(tmp_path: Path, store: FakeStore, now_ms: int = 0) -> Repository:
    """Make a backup."""
    backups = Repository(open_place(str(tmp_path), may_create=True))
    Creation(backups, store, Pace(0), lambda _done, _total: None, piece_size_bytes=50).run(now_ms)
    return backups


def test_the_log_comes_back_byte_by_byte(tmp_path: Path) -> None:
    """Pieces never span segments, and together are the log with its blanks."""
    backups = create(tmp_path, FakeStore(260))
    manifest = backups.load("latest")
    assert all(
        piece.start_physical_offset // 100 == (piece.end_physical_offset - 1) // 100 for piece in manifest.pieces
    )
    log = b"".join(backups.get(piece.sha256, piece.size_bytes) for piece in manifest.pieces)
    assert len(log) == 260
    assert log[90:98] == (10).to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert log[230:260] == b"%030d" % 230


@pytest.mark.parametrize("stop_at", range(0, 240, 10))
def test_a_stopped_backup_goes_on(tmp_path: Path, stop_at: int) -> None:
    """A backup that stops anywhere leaves no manifest, and the next one reads only what no piece has."""
    with pytest.raises(Stopped):
        create(tmp_path, FakeStore(260, stop_at=stop_at))
    backups = Repository(open_place(str(tmp_path), may_create=False))
    assert backups.backup_ids() == []
    again = FakeStore(260)
    create(tmp_path, again, 1)
    assert again.sent_bytes <= 260 - stop_at + 60
    assert backups.load("latest").end_physical_offset == 260
    assert backups.load_incomplete() == {}


def test_the_next_backup_moves_only_what_is_new(tmp_path: Path) -> None:
    """Nothing is read twice, and equal small files are not written twice."""
    create(tmp_path, FakeStore(160))
    later = FakeStore(260)
    backups = create(tmp_path, later, 1_000)
    manifest = backups.load("latest")
    assert later.sent_bytes == 90
    assert manifest.new_bytes == 100


def test_a_log_that_lost_its_end_makes_no_backup(tmp_path: Path) -> None:
    """If the log has another history at the end of the copy, there is no manifest."""
    first = Extent(0, 260, SEGMENT_SIZE, "a" * 32, (EpochStart(1, 0),))
    for later in (
        first._replace(history_id="b" * 32),
        first._replace(epochs=(EpochStart(1, 0), EpochStart(2, 200))),
        first._replace(end_physical_offset=200),
    ):
        with pytest.raises(BackupError, match="lost its end"):
            create(tmp_path, FakeStore(260, later=[first, later]))
    assert Repository(open_place(str(tmp_path), may_create=False)).backup_ids() == []


def test_a_gap_in_the_records_is_refused(tmp_path: Path) -> None:
    """Records that do not follow each other make no backup."""
    with pytest.raises(BackupError, match="not from 0"):
        create(tmp_path, FakeStore(260, skips=True))


def test_records_without_bytes_are_refused(tmp_path: Path) -> None:
    """Only a blank, which ends with its segment, has no bytes."""
    with pytest.raises(BackupError, match="no record for 0 to 30"):
        create(tmp_path, FakeStore(260, sends_nothing=True))


def test_an_empty_log_has_a_backup(tmp_path: Path) -> None:
    """A log without a record has a backup without a piece."""
    assert create(tmp_path, FakeStore(0)).load("latest").pieces == ()


def test_the_pace_is_kept() -> None:
    """Bytes take their time, idle time is not saved up, and 0 is no limit."""
    now, slept = [100.0], []

    def sleep(duration_s: float) -> None:
        slept.append(duration_s)
        now[0] += duration_s

    pace = Pace(1_000, lambda: now[0], sleep)
    pace.take(500)
    pace.take(250)
    now[0] += 60
    pace.take(1_000)
    assert slept == pytest.approx([0.5, 0.25, 1.0])
    Pace(0, lambda: now[0], sleep).take(10**9)
    assert len(slept) == 3
