# SPDX-License-Identifier: Apache-2.0
"""The directories of a restore: empty ones, those of a killed restore, and all others."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from cli.backup.errors import BackupError
from cli.backup.restore import claim
from libs.formats import store_layout
from libs.formats.store_layout import RESTORING
from libs.log.state import data_dir
from libs.machine.posix_fs import PosixFs


def test_a_killed_restore_begins_again(tmp_path: Path) -> None:
    """The files of a killed restore are removed, but for its mark, with which no service starts."""
    for name in (RESTORING, store_layout.COMMIT_LOG):
        (tmp_path / name).mkdir()
    for name in (store_layout.CHECKPOINT, f"{RESTORING}/x"):
        (tmp_path / name).write_bytes(b"x")
    claim(tmp_path, tmp_path)
    assert list(tmp_path.rglob("*")) == [tmp_path / RESTORING]


@pytest.mark.parametrize("has_directory", [False, True], ids=["missing", "empty"])
def test_no_service_starts_in_a_directory_of_a_restore(tmp_path: Path, *, has_directory: bool) -> None:
    """The directory of a restore is refused from its first moment until the log is there."""
    target = tmp_path / "new"
    if has_directory:
        target.mkdir()
    claim(target, target)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    with pytest.raises(data_dir.RestoreUnfinished, match="has not ended"):
        data_dir.check(PosixFs(), target, may_create=True)
    segment = target / store_layout.COMMIT_LOG / store_layout.file_name(0)
    segment.parent.mkdir()
    segment.write_bytes(b"x")
    data_dir.check(PosixFs(), target, may_create=True)


@pytest.mark.parametrize("step", ["mkdir", "rename"])
def test_a_kill_of_the_first_steps_leaves_no_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A restore that ends before or after a step of its begin leaves no directory, or a marked one."""
    target, real = tmp_path / "new", getattr(Path, step)

    def killed(path: Path, *arguments: object, **options: object) -> None:
        if path.parent == tmp_path or path == target:
            raise KeyboardInterrupt
        real(path, *arguments, **options)

    monkeypatch.setattr(Path, step, killed)
    with suppress(KeyboardInterrupt):
        claim(target, target)
    assert not target.exists() or (target / RESTORING).is_dir()


def test_other_directories_are_refused(tmp_path: Path) -> None:
    """A directory with a log, or with any other file, is refused and keeps everything."""
    for name in (f"{store_layout.COMMIT_LOG}/{store_layout.file_name(0)}", f"{RESTORING}/x"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(BackupError, match="it has commitlog"):
        claim(tmp_path, tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 4


def test_a_new_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    """Directories that a restore makes are open to its user alone, whatever the umask."""
    before = os.umask(0o022)
    try:
        claim(tmp_path / "new" / "store", tmp_path / "new" / "indexes")
    finally:
        os.umask(before)
    made = [tmp_path / "new", *(tmp_path / "new").iterdir()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
