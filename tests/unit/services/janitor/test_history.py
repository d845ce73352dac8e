# SPDX-License-Identifier: Apache-2.0
"""The history of runs survives a restart and stays small."""

from pathlib import Path

import pytest

from libs.machine.testing.memory_fs import MemoryFs
from services.janitor.engine import history as history_module
from services.janitor.engine.history import Run, RunHistory
from services.janitor.engine.policy import Decision, Reason

PATH = Path("/store/reput/retention_history.jsonl")


def make(fs: MemoryFs) -> RunHistory:
    history = RunHistory(fs, PATH)
    history.load()
    return history


@pytest.fixture
def fs() -> MemoryFs:
    fs = MemoryFs()
    fs.make_directory(PATH.parent)
    return fs


def run(time_ms: int) -> Run:
    decision = Decision(0, 1000, Reason.EXPIRED, "it is old", 5)
    return Run(time_ms, "MANUAL", decisions=(decision,), deleted_segment_count=1, freed_bytes=1000, error="später")


def test_survives_a_crash(fs: MemoryFs) -> None:
    """A run that was added exists, equal in every field, after a crash at any later moment."""
    history = make(fs)
    history.add(run(1))
    history.add(run(2))
    fs.crash()
    assert [entry.time_ms for entry in make(fs).page(before_ms=None, count=10)[0]] == [2, 1]
    loaded = make(fs).page(before_ms=None, count=1)[0][0]
    assert (loaded.trigger, list(loaded.decisions), loaded.error) == ("MANUAL", list(run(2).decisions), "später")


def test_pages(fs: MemoryFs) -> None:
    """Pages are newest first, do not overlap, and have a flag for further pages."""
    history = make(fs)
    for time_ms in range(1, 6):
        history.add(run(time_ms))
    pages = [
        history.page(before_ms=None, count=2),
        history.page(before_ms=4, count=2),
        history.page(before_ms=2, count=2),
    ]
    assert [([entry.time_ms for entry in runs], more) for runs, more in pages] == [
        ([5, 4], True),
        ([3, 2], True),
        ([1], False),
    ]


def test_is_bounded(fs: MemoryFs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of runs and the bytes are bounded, and the newest runs stay."""
    monkeypatch.setattr(history_module, "RUN_COUNT_MAX", 3)
    history = make(fs)
    for time_ms in range(1, 9):
        history.add(run(time_ms))
    assert [entry.time_ms for entry in make(fs).page(before_ms=None, count=9)[0]] == [8, 7, 6]
    monkeypatch.setattr(history_module, "SIZE_BYTES_MAX", 1)
    history.add(run(9))
    assert [entry.time_ms for entry in make(fs).page(before_ms=None, count=9)[0]] == [9]


def test_unreadable_lines_are_left_out(fs: MemoryFs, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged line is left out alone, and is logged."""
    make(fs).add(run(1))
    fs.write_atomic(PATH, b"{broken\n" + fs.read(PATH) + b'{"time_ms": "x"}\n')
    assert not caplog.records
    assert make(fs).last_time_ms == 1
    [record] = caplog.records
    assert f"{PATH}: 2 lines can't be read" in record.getMessage()


@pytest.mark.parametrize("damage", [None, b"", b"{"])
def test_a_copy_stands_in(fs: MemoryFs, damage: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    """Runs that the file has lost are read from its copy, and the log names the file."""
    history = make(fs)
    history.add(run(1))
    history.add(run(2))
    if damage is None:
        fs.remove(PATH)
    else:
        fs.write_atomic(PATH, damage)
    assert [entry.time_ms for entry in make(fs).page(before_ms=None, count=10)[0]] == [2, 1]
    [record] = caplog.records
    assert record.getMessage().startswith(f"{PATH}: ")
    assert "2 runs" in record.getMessage()
    again = make(fs)
    again.add(run(3))
    caplog.clear()
    assert make(fs).last_time_ms == 3
    assert not caplog.records
