# SPDX-License-Identifier: Apache-2.0
"""`reput verify --against`: two logs that should be the same, byte by byte."""

import errno
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from cli.exit_codes import ExitCode
from cli.verify.codes import Area
from cli.verify.files import Files
from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from libs.figures import size_text
from libs.formats import store_layout
from libs.formats.epoch import Epoch
from libs.formats.state import epoch_file, store_checkpoint
from tests.support.damage import Target
from tests.support.made_store import SEGMENT_SIZE
from tests.unit.cli.verify.test_command import run


@pytest.fixture
def other(store: Path, tmp_path: Path) -> Path:
    """A copy of the store."""
    return Path(shutil.copytree(store, tmp_path / "other"))


def differences(store: Path, other: Path) -> list[Finding]:
    """The findings of the comparison; the check of the store itself finds nothing."""
    found: list[Finding] = []
    verify_store(store, Report(show=found.append, limit=1_000), against=other)
    return found


def confirm(directory: Path, physical_offset: int) -> None:
    """Write a confirmed offset into a checkpoint."""
    path = directory / store_layout.CHECKPOINT
    checkpoint = store_checkpoint.decode(path.read_bytes())
    path.write_bytes(store_checkpoint.encode(replace(checkpoint, confirmed_physical_offset=physical_offset)))


def test_a_copy_is_the_same(
    store: Path, other: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All bytes of the log are compared, and the summary has their number."""
    assert run(monkeypatch, store, "--against", other) == ExitCode.OK
    target = Target(store)
    blanks = sum(SEGMENT_SIZE - max(end for end in _ends(target, base)) - 8 for base in _closed(target))
    compared = size_text(target.end_physical_offset - blanks)
    assert f" {compared} compared, " in capsys.readouterr().out


def _closed(target: Target) -> list[int]:
    return [int(path.name) for path in target.segments if int(path.name) + SEGMENT_SIZE <= target.end_physical_offset]


def _ends(target: Target, base: int) -> list[int]:
    inside = [one for one in target.records if base <= one.physical_offset < base + SEGMENT_SIZE]
    return [one.physical_offset - base + one.size_bytes for one in inside]


@pytest.mark.parametrize("number", [0, 7, 150, -1])
@pytest.mark.parametrize("at", [0, 30, -1], ids=["first byte", "middle", "last byte"])
def test_one_byte_differs(store: Path, other: Path, number: int, at: int) -> None:
    """A differing byte at any place is found with its place, and nothing else is found."""
    found = Target(other).records[number]
    place = found.physical_offset + (at if at >= 0 else found.size_bytes + at)
    path = other / "commitlog" / f"{place - place % SEGMENT_SIZE:020d}"
    Target(other).flip(path, place % SEGMENT_SIZE)
    (difference,) = differences(store, other)
    assert (difference.code, difference.severity, difference.physical_offset) == ("LOG_DIFFERS", "fault", place)
    assert difference.position == place % SEGMENT_SIZE
    assert difference.file == f"commitlog/{path.name}"


def test_each_segment_is_told_once(store: Path, other: Path) -> None:
    """Only the first difference of a segment is reported."""
    target = Target(other)
    for path in target.segments[:2]:
        for position in (100, 200, 300):
            target.flip(path, position)
    assert [(one.file, one.position) for one in differences(store, other)] == [
        (f"commitlog/{path.name}", 100) for path in target.segments[:2]
    ]


def test_behind_a_blank_there_is_no_log(store: Path, other: Path) -> None:
    """Bytes behind a blank do not count, because RocketMQ may leave any bytes there; the blank itself counts."""
    target = Target(other)
    end = max(_ends(target, 0))
    assert end + 8 < SEGMENT_SIZE
    target.flip(target.segments[0], end + 8)
    assert differences(store, other) == []
    target.flip(target.segments[0], end + 7)
    assert [one.position for one in differences(store, other)] == [end + 7]


def test_one_that_ends_or_begins_elsewhere(store: Path, other: Path) -> None:
    """The bytes that both logs have are compared; the bytes that only one log has are a note."""
    target = Target(other)
    last = target.records[-1]
    target.write_log(last.physical_offset, bytes(last.size_bytes))
    target.segments[0].unlink()
    found = differences(store, other)
    assert {one.code for one in found} == {"LOG_NOT_COMPARED"}
    assert [one.message for one in found] == [
        f"the log begins at 0, that of {other} at {SEGMENT_SIZE}",
        f"the log ends at {target.end_physical_offset}, that of {other} at {last.physical_offset}",
    ]
    assert {one.severity for one in found} == {"note"}
    assert [one.message.split()[2] for one in differences(other, store) if one.code == "LOG_NOT_COMPARED"] == [
        "begins",
        "ends",
    ]


@pytest.mark.parametrize("who", ["store", "other"])
def test_what_was_not_confirmed_may_differ(store: Path, other: Path, who: str) -> None:
    """From the smaller confirmed offset on a difference is a note, and below it a fault."""
    last = Target(other).records[-1]
    Target(other).flip(Target(other).segments[-1], last.physical_offset % SEGMENT_SIZE + 60)
    confirm(store if who == "store" else other, last.physical_offset)
    (difference,) = [one for one in differences(store, other) if one.code == "LOG_DIFFERS"]
    assert difference.severity == "note"
    confirm(store if who == "store" else other, last.physical_offset + last.size_bytes)
    (difference,) = [one for one in differences(store, other) if one.code == "LOG_DIFFERS"]
    assert difference.severity == "fault"


def test_where_histories_part_is_told(store: Path, other: Path) -> None:
    """The tables of epochs tell the place from which two writers had the log."""
    target = Target(other)
    start = target.records[200].physical_offset
    (other / store_layout.EPOCHS).write_bytes(epoch_file.encode([Epoch(1, 0), Epoch(2, start)]))
    target.write_record(201, 60, b"another body")
    (difference,) = differences(store, other)
    assert f"the same up to {start}" in difference.message


def test_a_directory_without_a_log(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory without a log is no store, and the error comes before anything is read."""
    (tmp_path / "empty").mkdir()
    assert run(monkeypatch, store, "--against", tmp_path / "empty") == ExitCode.NOT_FOUND
    assert "NO_STORE" in capsys.readouterr().err


def test_a_difference_is_told_whatever_is_asked_for(store: Path, other: Path) -> None:
    """A difference of two logs is reported, for any parts of the store that are checked besides."""
    Target(other).flip(Target(other).segments[0], 100)
    found: list[Finding] = []
    verify_store(store, Report(show=found.append, limit=10, areas=frozenset((Area.INDEX,))), against=other)
    assert [one.code for one in found] == ["LOG_DIFFERS"]


def test_a_file_that_can_not_be_read_is_told(store: Path, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that can't be read is reported, and the comparison continues in the next segment."""
    target, read = Target(other), Files.read
    target.flip(target.segments[1], 100)

    def fail(files: Files, path: Path, position: int, size_bytes: int) -> bytes:
        if path == target.segments[0]:
            raise OSError(errno.EIO, "Input/output error")
        return read(files, path, position, size_bytes)

    monkeypatch.setattr(Files, "read", fail)
    found = differences(store, other)
    assert [(one.code, one.file) for one in found] == [
        ("FILE_UNREADABLE", f"commitlog/{target.segments[0].name}"),
        ("LOG_DIFFERS", f"commitlog/{target.segments[1].name}"),
    ]
