# SPDX-License-Identifier: Apache-2.0
"""The command `reput verify`: exit codes, output, and that the store is not changed."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from cli import registry as commands
from cli.exit_codes import ExitCode
from cli.verify.codes import CODES
from libs.formats.records.delay_level import DELAY_LEVELS_TEXT
from libs.machine.posix_fs import PosixFs
from tests.support.damage import Target
from tests.support.index_damage import INDEX, QUEUES
from tests.support.log_damage import FILES, LOG
from tests.support.made_store import MESSAGE_COUNT, index


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run `reput verify` in this process. Returns the exit code."""
    monkeypatch.setattr("sys.argv", ["reput", "verify", *map(str, arguments)])
    try:
        return commands.run()
    except SystemExit as end:
        return int(end.code or 0)


def contents(store: Path) -> dict[Path, tuple[bytes, int]]:
    """Bytes and modification times of all files."""
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}


def test_sound_store_ends_with_a_summary_and_exit_code_0(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line has the counts of the checked items, and no byte of the store has changed."""
    before = contents(store)
    assert run(monkeypatch, store) == ExitCode.OK
    printed = capsys.readouterr().out
    assert printed.startswith(f"{store}: {MESSAGE_COUNT} records, {MESSAGE_COUNT} units, 600 index entries, ")
    assert printed.endswith(" s, 0 faults, 0 notes\n")
    assert contents(store) == before


def test_fault_is_printed_counted_and_exit_code_6(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault is shown with code and place, and then its code with an action."""
    Target(store).write_unit(5, bytes(20))
    assert run(monkeypatch, store) == ExitCode.DAMAGED
    printed = capsys.readouterr()
    assert "FAULT QUEUE_UNIT_HOLE in consumequeue/orders/1/00000000000000000000 at byte 100" in printed.out
    assert f"QUEUE_UNIT_HOLE: 1 fault; {CODES['QUEUE_UNIT_HOLE'].meaning}" in printed.out
    assert printed.err == f"error: DAMAGED: 1 fault in {store}\n"


def test_limit_bounds_what_is_shown_but_not_what_is_counted(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json there is a single document, with all counts and the first findings."""
    for number in range(10):
        Target(store).write_unit(number, b"\x01", 19)
    assert run(monkeypatch, store, "--json", "--limit", 3) == ExitCode.DAMAGED
    document = json.loads(capsys.readouterr().out)
    assert len(document["findings"]) == 3
    assert document["fault_count"] == document["codes"]["QUEUE_UNIT_TAGS"]["faults"] == 10
    assert document["record_count"] == MESSAGE_COUNT
    assert not document["is_sound"]
    finding = document["findings"][0]
    assert (finding["code"], finding["severity"]) == ("QUEUE_UNIT_TAGS", "fault")
    assert finding["file"] == "consumequeue/orders/1/00000000000000000000"


@pytest.mark.parametrize(("only", "code"), [("queues", ExitCode.DAMAGED), ("log", ExitCode.OK), ("index", ExitCode.OK)])
def test_only_looks_at_a_part(store: Path, monkeypatch: pytest.MonkeyPatch, only: str, code: ExitCode) -> None:
    """Damage of a queue is not found by a check of the log alone."""
    Target(store).write_unit(5, bytes(20))
    assert run(monkeypatch, store, "--only", only) == code


def test_store_in_use_is_refused_unless_allowed(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that holds a lock of the directory keeps the check away, or is warned of."""
    for name in ("lock", "reput/indexer.lock"):
        lock = PosixFs().lock(store / name)
        assert run(monkeypatch, store) == ExitCode.REFUSED
        assert "IN_USE" in capsys.readouterr().err
        assert run(monkeypatch, store, "--allow-running") == ExitCode.OK
        assert "warning: a process holds" in capsys.readouterr().err
        lock.release()


def test_indexes_may_lie_in_another_directory(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Indexer's directory is compared with the log of the CommitLog's."""
    other = tmp_path / "indexer"
    (other / "reput").mkdir(parents=True)
    for name in ("consumequeue", "index", "reput/index_progress"):
        shutil.move(store / name, other / name)
    assert run(monkeypatch, store, "--index-dir", other) == ExitCode.OK
    first_file = other / "consumequeue" / "orders" / "1" / f"{0:020d}"
    first_file.write_bytes(bytes(20) + first_file.read_bytes()[20:])
    assert run(monkeypatch, store, "--index-dir", other) == ExitCode.DAMAGED


def test_delivery_times_are_those_of_the_given_levels(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store with other delay levels is sound when they are given, as option or as a service's setting."""
    levels = "7s 90s 3h"
    asyncio.run(index(store, message_delay_level=levels))
    assert run(monkeypatch, store) == ExitCode.DAMAGED
    printed = capsys.readouterr().out
    assert f"with the delay levels {DELAY_LEVELS_TEXT}; give others with --delay-levels" in printed
    assert "QUEUE_DELIVERY_TIME: 20 faults" in printed
    assert run(monkeypatch, store, "--delay-levels", levels) == ExitCode.OK
    for service in ("COMMITLOG", "INDEXER"):
        with monkeypatch.context() as patched:
            patched.setenv(f"REPUT_{service}_MESSAGE_DELAY_LEVEL", levels)
            assert run(patched, store) == ExitCode.OK
    assert run(monkeypatch, store, "--delay-levels", "1 s") == ExitCode.USAGE
    assert "--delay-levels" in capsys.readouterr().err


def test_directory_without_a_store_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory is no sound store."""
    assert run(monkeypatch, tmp_path) == ExitCode.NOT_FOUND
    assert run(monkeypatch, tmp_path / "none") == ExitCode.USAGE


def test_every_code_is_planted_by_a_test() -> None:
    """Each documented code is found in a case of the damage tests, or is listed here as found in another test."""
    cases = [*LOG, *FILES, *QUEUES, *INDEX]
    planted = {case.code for case in cases}.union(*(case.others for case in cases))
    elsewhere = {"CUT_COPY", "NO_QUEUES", "NO_INDEX", "INDEX_FILE_GIVEN_UP", "NOT_CHECKED", "QUEUE_NOT_CHECKED"}
    elsewhere |= {"QUEUES_BEGUN_AGAIN", "RECORDS_STEPPED_OVER", "LOG_DIFFERS", "LOG_NOT_COMPARED"}
    assert set(CODES) - planted == elsewhere
    assert len(cases) > 90
