# SPDX-License-Identifier: Apache-2.0
"""AuditFile: a file that rotates, and a disk that is full or fails never stops the service."""

import json
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.runtime.errors import ConfigError
from libs.runtime.trust.audit import audit_file
from libs.runtime.trust.audit.audit_file import AuditFile
from libs.runtime.trust.audit.limits import AuditConfig
from tests.support.patience import LIMIT_S

LINE = '{"event":"call"}'
SIZE = 64 << 10


def config(path: Path, *, count: int = 2) -> AuditConfig:
    """Settings for a small file."""
    return AuditConfig(audit_file=path, audit_file_size_bytes_max=SIZE, audit_file_count_max=count)


def until(is_so: Callable[[], bool]) -> None:
    """Wait for the thread of the file."""
    end_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def test_lines_are_written_for_the_owner_alone(tmp_path: Path) -> None:
    """The file has each line, and other users can't read it. A second start goes on with the file."""
    path = tmp_path / "audit.log"
    for _ in range(2):
        file = AuditFile(config(path))
        file.write(LINE)
        file.close()
        file.close()
    assert path.read_text() == f"{LINE}\n" * 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_file_rotates_and_its_size_is_bounded(tmp_path: Path) -> None:
    """Full files get numbers, the oldest is deleted, no line is torn, and no file is larger than the setting."""
    path = tmp_path / "audit.log"
    file = AuditFile(config(path))
    count = 40
    for number in range(count):
        file.write(json.dumps({"number": number, "text": "x" * 8_000}))
    file.close()
    files = [path, *sorted(tmp_path.glob("audit.log.*"))]
    assert [one.name for one in files] == ["audit.log", "audit.log.1", "audit.log.2"]
    assert all(one.stat().st_size <= SIZE for one in files)
    found = [json.loads(line)["number"] for one in reversed(files) for line in one.read_text().splitlines()]
    assert found == list(range(count - len(found), count))
    assert (file.written_total, file.lost_total) == (count, 0)


def test_a_full_disk_costs_lines_and_never_the_service(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The lines are counted as lost, a single warning says so, and another that it works again."""
    path = tmp_path / "audit.log"
    file = AuditFile(config(Path("/dev/full")))
    for _ in range(5):
        file.write(LINE)
    file.close()
    assert (file.written_total, file.lost_total) == (0, 5)
    assert caplog.messages == [
        "audit_file: /dev/full: No space left on device: audit lines are lost, the service goes on"
    ]
    caplog.clear()
    file = AuditFile(config(path))
    path.unlink()
    tmp_path.chmod(0o500)
    directory = tmp_path / "audit.log"
    directory.mkdir(exist_ok=True) if os.geteuid() == 0 else None
    file.write(LINE)
    until(lambda: file.lost_total == 1)
    tmp_path.chmod(0o700)
    if directory.is_dir():
        directory.rmdir()
    file.write(LINE)
    file.close()
    assert path.read_text() == f"{LINE}\n"
    assert (file.written_total, file.lost_total) == (1, 1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert caplog.messages[-1].endswith("works again; 1 lines were lost since the start")


def test_a_disk_that_hangs_never_holds_the_caller_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines wait in memory up to a limit; further lines are lost, at once; the end does not wait for the disk."""
    monkeypatch.setattr(audit_file, "WAITING_COUNT_MAX", 10)
    monkeypatch.setattr(audit_file, "CLOSE_TIMEOUT_S", 0.01)
    path = tmp_path / "audit.log"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = AuditFile(config(path))
    try:
        for _ in range(1_000):
            file.write("x" * 4_000)
        assert file.lost_total > 900
        file.close()
    finally:
        os.close(reader)


def test_a_torn_line_stays_alone(tmp_path: Path) -> None:
    """After a line that a crash or a full disk has cut, the next line begins on its own."""
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"event":"ca')
    file = AuditFile(config(path))
    file.write(LINE)
    file.close()
    assert path.read_text().splitlines() == ['{"event":"ca', LINE]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "moved"])
def test_a_file_that_a_tool_takes_away_is_made_again(tmp_path: Path, *, is_deleted: bool) -> None:
    """logrotate may move the file, and a user may delete it: the next line is in a new file at the path."""
    path = tmp_path / "audit.log"
    file = AuditFile(config(path))
    file.write(LINE)
    until(lambda: file.written_total == 1)
    path.unlink() if is_deleted else path.rename(tmp_path / "moved")
    file.write(LINE)
    file.close()
    assert path.read_text() == f"{LINE}\n"


def test_wrong_paths_and_a_shared_file_refuse_the_start(tmp_path: Path) -> None:
    """The error names the setting, the path and the reason."""
    with pytest.raises(ConfigError, match=r"audit_file: .*nowhere/audit: No such file or directory"):
        AuditFile(config(tmp_path / "nowhere/audit"))
    with pytest.raises(ConfigError, match=r"audit_file: .*: Is a directory"):
        AuditFile(config(tmp_path))
    file = AuditFile(config(tmp_path / "audit"))
    with pytest.raises(ConfigError, match="each service needs a file"):
        AuditFile(config(tmp_path / "audit"))
    file.close()
