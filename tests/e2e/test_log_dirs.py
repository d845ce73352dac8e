# SPDX-License-Identifier: Apache-2.0
"""A store whose log lies in two directories: services, offline tools, and a disk that is missing."""

import shutil
from pathlib import Path

import pytest

from tests.support.reput_up import run_here, store

pytestmark = pytest.mark.e2e

MESSAGE_COUNT = 30
BODY = "x" * 150_000


def test_two_directories(tmp_path: Path) -> None:
    """Messages in both directories are served, and read from the files.

    `verify`, `rebuild` and `inspect` find the segments.
    """
    data_dir, first, second = tmp_path / "data", tmp_path / "disk1" / "log", tmp_path / "disk2" / "log"
    extra = {"REPUT_COMMITLOG_LOG_DIRS": f"{first},{second}"}
    lines = "".join(f'{{"body": "{BODY}{number}", "keys": ["k{number}"]}}\n' for number in range(MESSAGE_COUNT))
    with store(data_dir, extra=extra) as running:
        running.json("put", "orders", "--queue", "0", "--file", "-", standard_input=lines)
        running.json("put", "orders", "last", "--queue", "0", "--durability", "local-disk")
        (status,) = running.json("status")
        shown = {one["path"]: one["segment_count"] for one in status["commitlog"]["log_directories"]}
        assert shown.keys() == {str(first), str(second)}
        assert min(shown.values()) >= 2
        assert str(second) in "".join(running.run("status").output.split())  # lines end within a path that is long
        running.json("janitor", "run", "--dry-run")
        assert {one["path"] for one in running.json("janitor", "status")[0]["disks"]} == {"", str(first), str(second)}
        found = running.json("pull", "orders", "--queue", "0", "--count", "100", "--wait", "5")
        while len(found) < MESSAGE_COUNT + 1:
            start = str(len(found))
            found += running.json("pull", "orders", "--queue", "0", "--offset", start, "--count", "100", "--wait", "5")
        assert [one["body"][len(BODY) :] for one in found[:-1]] == [str(number) for number in range(MESSAGE_COUNT)]
    assert not (data_dir / "commitlog").exists()
    assert run_here("verify", str(data_dir)).code == 0
    rebuilt = run_here("index", "rebuild", "--data-dir", str(data_dir), "--yes", "--json")
    assert rebuilt.rows[0]["record_count"] == MESSAGE_COUNT + 1
    assert run_here("verify", str(data_dir)).code == 0
    segment = min(second.iterdir())
    assert run_here("inspect", str(segment), "--limit", "1", "--json").rows[-1]["summary"]["kind"] == "segment"
    shutil.move(second, tmp_path / "away")
    result = run_here("verify", str(data_dir), "--json")
    assert result.code == 6, result
    assert {"LOG_DIRECTORY_MISSING", "LOG_FILE_MISSING"} <= result.rows[0]["codes"].keys()
    shutil.move(tmp_path / "away", second)
    shutil.copy(segment, first)
    result = run_here("verify", str(data_dir), "--json")
    assert result.rows[0]["codes"].keys() == {"LOG_FILE_TWICE"}
