# SPDX-License-Identifier: Apache-2.0
"""`reput check` and `reput status` at a real store: well, on a full disk, with a service that is gone."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.patience import LIMIT_S
from tests.support.reput_up import Result, Store, store

pytestmark = pytest.mark.e2e


def until(running: Store, code: int, *arguments: str) -> Result:
    """Check again until the exit code is this one."""
    end = time.monotonic() + LIMIT_S
    while (result := running.run("check", *arguments)).code != code:
        assert time.monotonic() < end, result
        time.sleep(0.1)
    return result


def test_a_store_that_is_well(tmp_path: Path) -> None:
    """All three forms of a store that is well, then of a store without its Janitor."""
    with store(tmp_path / "data") as running:
        result = until(running, 0, "--disk", "off,off")
        assert result.output.startswith("REPUT OK - 3 services answer; appends are accepted; ")
        assert "index_behind_bytes=0B" in result.output
        answer = json.loads(running.run("check", "--format", "json", "--disk", "off,off").output)
        assert (answer["level"], answer["code"]) == ("OK", 0)
        file = tmp_path / "reput.prom"
        result = running.run("check", "--format", "prometheus", "--disk", "off,off", "--output", str(file))
        assert (result.code, result.output) == (0, "")
        assert 'reput_check_level{subject="all"} 0\n' in file.read_text()
        assert running.run("check", "--disk", "0,0").code == 2
        running.targets["janitor"] = "127.0.0.1:9"
        result = running.run("check", "--disk", "off,off")
        assert result.code == 2
        assert "Janitor at 127.0.0.1:9 does not answer: no process listens there" in result.output


def test_a_full_disk(tmp_path: Path) -> None:
    """A reserve that the disk can't have: `status` ends with 7 and the cure, `check` with CRITICAL."""
    with store(tmp_path / "data", extra={"REPUT_COMMITLOG_DISK_RESERVE_BYTES": str(1 << 60)}) as running:
        result = running.run("status")
        assert result.code == 7
        assert "appends are refused: STORE_FULL; make room" in " ".join(result.output.split())
        result = running.run("check", "--disk", "off,off")
        assert result.code == 2
        assert "CRITICAL appends: appends are refused: STORE_FULL; make room" in result.output


def test_a_service_that_hangs(tmp_path: Path) -> None:
    """A service that accepts connections and gives no answer is CRITICAL with its name, and the check ends."""
    with store(tmp_path / "data") as running:
        until(running, 0, "--disk", "off,off")
        child = running.child("indexer")
        os.kill(child, signal.SIGSTOP)
        try:
            result = running.run("--timeout", "0.5", "check", "--disk", "off,off")
            assert result.code == 2
            assert f"Indexer at {running.targets['indexer']} does not answer" in result.output
        finally:
            os.kill(child, signal.SIGCONT)


def test_the_age_of_backups(tmp_path: Path) -> None:
    """A place without a backup is CRITICAL, a fresh backup is OK, an old one and a place that is away are told."""
    place, file = tmp_path / "backups", tmp_path / "reput.prom"
    with store(tmp_path / "data") as running:
        until(running, 0, "--disk", "off,off")

        def check(*arguments: str) -> Result:
            return running.run("check", "--disk", "off,off", "--backups", str(place), *arguments)

        assert (away := check()).code == 3, away
        assert "UNKNOWN backup: no look at the backups of" in away.output
        place.mkdir()
        assert (none := check()).code == 2, none
        assert "has no complete backup; look at the end of the last `reput backup create --to" in none.output
        assert running.run("backup", "create", "--to", str(place)).code == 0
        assert (fresh := check("--format", "prometheus", "--output", str(file))).code == 0, fresh
        assert 'reput_check_level{subject="backup"} 0\n' in file.read_text()
        assert "\nreput_check_backup_age_seconds " in file.read_text()
        assert (old := check("--backup", "0,off")).code == 1, old
        assert "WARNING backup: the newest backup of" in old.output
