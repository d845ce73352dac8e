# SPDX-License-Identifier: Apache-2.0
"""Rubbish in any file of a store is found, and never ends the check with anything but findings."""

import errno
import random
from pathlib import Path

import pytest

from cli.verify.files import Files
from libs.machine.posix_fs import PosixMappedFile
from tests.support.made_store import SEGMENT_SIZE, files_of, verified


def _one_of_each_kind(store: Path) -> list[Path]:
    """The first file of a log, a queue, an index, and all small files."""
    chosen: dict[str, Path] = {}
    for path in files_of(store):
        kind = path.relative_to(store).parts[0] if path.name.isdecimal() else path.name
        chosen.setdefault(kind, path)
    assert len(chosen) > 8
    return list(chosen.values())


@pytest.mark.parametrize("kind", ["noise", "ones", "empty", "half", "longer"])
def test_rubbish_in_any_file_is_found(store: Path, chance: random.Random, kind: str) -> None:
    """A file of each kind that is filled with noise, emptied, cut or made longer gives a finding."""
    for path in _one_of_each_kind(store):
        data = path.read_bytes()
        match kind:
            case "noise":
                path.write_bytes(chance.randbytes(len(data)))
            case "ones":
                path.write_bytes(b"\xff" * len(data))
            case "empty":
                path.write_bytes(b"")
            case "half":
                path.write_bytes(data[: len(data) // 2])
            case "longer":
                path.write_bytes(data + b"\x01\x02\x03")
        assert verified(store)[1], path
        path.write_bytes(data)
    assert verified(store)[1] == []


def test_all_files_at_once_may_be_noise(store: Path, chance: random.Random) -> None:
    """A store of noise alone gives findings, and no exception."""
    for path in files_of(store):
        path.write_bytes(chance.randbytes(path.stat().st_size))
    assert verified(store)[2].fault_count > 10


def test_directories_where_files_should_be(store: Path) -> None:
    """A directory in the place of any file is found."""
    for path in _one_of_each_kind(store):
        data = path.read_bytes()
        path.unlink()
        path.mkdir()
        assert verified(store)[1], path
        path.rmdir()
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        (f"commitlog/{2 * SEGMENT_SIZE:020d}", {"QUEUE_UNIT_UNCHECKED", "INDEX_ENTRY_UNCHECKED"}),
        (f"commitlog/{4 * SEGMENT_SIZE:020d}", {"QUEUE_UNIT_UNCHECKED", "INDEX_ENTRY_UNCHECKED"}),
        (f"consumequeue/orders/1/{0:020d}", set()),
        ("index/*", set()),
    ],
)
def test_bad_sector_is_an_unreadable_file(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str, others: set[str]
) -> None:
    """A file that the disk can't read is named, and nothing else is blamed for it."""
    bad = min(store.glob(name))
    open_file = Files._descriptor

    def open_or_fail(files: Files, path: Path) -> int:
        if path == bad:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return open_file(files, path)

    def check_or_fail(mapped: PosixMappedFile, position: int, size_bytes: int) -> None:
        if mapped.path == bad:
            raise OSError(errno.EIO, "Input/output error", str(mapped.path))

    monkeypatch.setattr(Files, "_descriptor", open_or_fail)
    monkeypatch.setattr(PosixMappedFile, "check_readable", check_or_fail)
    assert {finding.code for finding in verified(store)[1]} == {"FILE_UNREADABLE", *others}
