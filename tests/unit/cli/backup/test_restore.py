# SPDX-License-Identifier: Apache-2.0
"""The directories of a restore: empty ones, those of a killed restore, and all others."""

from pathlib import Path

import pytest

from cli.backup.errors import BackupError
from cli.backup.restore import RESTORING, claim
from libs.formats import store_layout


def test_a_killed_restore_begins_again(tmp_path: Path) -> None:
    """What a killed restore left is removed, also after a CommitLog was started there, which refuses."""
    for name in (RESTORING, store_layout.COMMIT_LOG):
        (tmp_path / name).mkdir()
    for name in (store_layout.CHECKPOINT, store_layout.LOCK, f"{RESTORING}/x"):
        (tmp_path / name).write_bytes(b"x")
    claim(tmp_path, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_other_directories_are_refused(tmp_path: Path) -> None:
    """A directory with a log, or with any other file, is refused and keeps everything."""
    for name in (f"{store_layout.COMMIT_LOG}/{store_layout.file_name(0)}", f"{RESTORING}/x"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(BackupError, match="it has commitlog"):
        claim(tmp_path, tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 4
