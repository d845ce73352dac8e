# SPDX-License-Identifier: Apache-2.0
"""Places and repositories: writes are whole, wrong bytes are named, locks keep others out."""

import os
import stat
from pathlib import Path

import pytest

from cli.backup.errors import BackupDamaged, BackupError, BackupNotFound, PlaceFailed
from cli.backup.object_storage import RETRY_S, TIMEOUT_S, explained, options_of
from cli.backup.places import open_place
from cli.backup.repository import Repository
from tests.unit.cli.backup.test_manifest import NAME, make


def repository(tmp_path: Path) -> Repository:
    """An empty repository in a directory."""
    return Repository(open_place(str(tmp_path / "place"), may_create=True))


def test_objects_come_back(tmp_path: Path) -> None:
    """An object is read as it was written; a changed, a cut and a removed object are damage."""
    backups = repository(tmp_path)
    content = backups.put(b"hello")
    assert backups.get(content.sha256, 5) == b"hello"
    assert backups.objects() == {content.sha256: 5}
    (path,) = (path for path in (tmp_path / "place" / "objects").rglob("*") if path.is_file())
    for harmed in (b"hellO", b"hell", b""):
        path.write_bytes(harmed)
        with pytest.raises(BackupDamaged, match=content.sha256):
            backups.get(content.sha256, 5)
    path.unlink()
    with pytest.raises(BackupDamaged, match="is missing"):
        backups.get(content.sha256, 5)


def test_a_manifest_needs_its_objects(tmp_path: Path) -> None:
    """A manifest whose objects are not there is noticed before it is written."""
    backups = repository(tmp_path)
    with pytest.raises(BackupDamaged, match="needs 1000"):
        backups.check_all_there(make())
    backups.save(make())
    assert backups.backup_ids() == [NAME]
    assert backups.load("latest") == make()
    with pytest.raises(BackupNotFound, match=NAME):
        backups.load("20200101T000000Z-1")


def test_a_place_is_for_its_user_alone(tmp_path: Path) -> None:
    """A place is made for its user alone, whatever the umask; a directory that is there keeps its mode."""
    (tmp_path / "given").mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        for name in ("made/deep", "given"):
            backups = Repository(open_place(str(tmp_path / name), may_create=True))
            with backups.place.locked():
                backups.put(b"hello")
                backups.save(make())
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes.pop(tmp_path / "given") == 0o755
    assert {(path.is_dir(), mode) for path, mode in modes.items()} == {(True, 0o700), (False, 0o600)}


def test_an_empty_place_has_no_backup(tmp_path: Path) -> None:
    """The newest backup of an empty place is not found."""
    with pytest.raises(BackupNotFound, match="no complete backup"):
        repository(tmp_path).load("latest")


def test_a_strange_name_is_refused(tmp_path: Path) -> None:
    """A file with another name than a backup's is named."""
    backups = repository(tmp_path)
    backups.save(make())
    (tmp_path / "place" / "backups" / "mine.json").write_text("{}")
    with pytest.raises(BackupError, match=r"mine\.json"):
        backups.backup_ids()


def test_a_damaged_list_saves_nothing(tmp_path: Path) -> None:
    """The list of an unfinished backup is only left out if it is damaged."""
    backups = repository(tmp_path)
    backups.save_incomplete(make())
    assert list(backups.load_incomplete()) == [NAME]
    (path,) = (tmp_path / "place" / "incomplete").iterdir()
    path.write_bytes(b"{")
    assert backups.load_incomplete() == {}


def test_a_place_is_locked(tmp_path: Path) -> None:
    """A second command is refused, and what a killed write left is removed."""
    backups = repository(tmp_path)
    left = tmp_path / "place" / "objects" / ".partial-1"
    left.parent.mkdir()
    left.write_bytes(b"x")
    with backups.place.locked():
        assert not left.exists()
        other = Repository(open_place(str(tmp_path / "place"), may_create=False))
        with pytest.raises(BackupError, match="another backup or prune"), other.place.locked():
            pass
    with backups.place.locked():
        pass


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("ftp://host/x", "'ftp' is unknown"),
        ("s3://", "there is no bucket"),
        ("s3://bucket/x?password=1", "'password' is no option"),
        ("gs://bucket/x?region=eu", "'region' is no option: retry_s, timeout_s are"),
        ("s3://bucket/x?endpoint=minio:9000", "endpoint is 'minio:9000', and must begin with http"),
        ("s3://bucket/x?retry_s=soon", "retry_s is 'soon', and must be seconds from 0 to 86400"),
        ("s3://bucket/x?timeout_s=0", "timeout_s is '0', and must be seconds from 0.1 to 86400"),
        ("s3://bucket/x?timeout_s=nan", "timeout_s is 'nan'"),
    ],
)
def test_other_places_are_refused(place: str, reason: str) -> None:
    """A URL that names no place is refused with the reason."""
    with pytest.raises(BackupError, match=reason):
        open_place(place, may_create=True)


def test_options_of_a_url() -> None:
    """Options follow behind the question mark, and have defaults."""
    url = "s3://bucket/x?endpoint=http://minio:9000&region=eu-west-1&retry_s=60&timeout_s=0.5"
    assert options_of(url) == ("http://minio:9000", "eu-west-1", 60, 0.5)
    assert options_of("gs://bucket") == ("", "", RETRY_S, TIMEOUT_S)


def test_a_missing_directory_is_not_made_for_readers(tmp_path: Path) -> None:
    """A command that only reads makes no directory."""
    with pytest.raises(PlaceFailed, match="no such directory"):
        open_place(str(tmp_path / "none"), may_create=False)
    assert not (tmp_path / "none").exists()


def test_missing_credentials_are_named() -> None:
    """An error from the place of a machine's role says that no credentials were given; other errors stay."""
    text = "Error performing PUT http://169.254.169.254/latest/api/token: 403 Forbidden"
    assert explained(text) == (
        "no credentials are given (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY), and the machine has no role: " + text
    )
    assert explained("404 NoSuchBucket") == "404 NoSuchBucket"
