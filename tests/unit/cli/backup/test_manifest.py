# SPDX-License-Identifier: Apache-2.0
"""Manifests: what is written is read, and every hostile manifest is refused by name."""

import json
from typing import Any

import msgspec
import pytest

from cli.backup import manifest as manifests
from cli.backup.errors import BackupDamaged, BackupError
from cli.backup.manifest import Content, EpochStart, Manifest, Piece, decode, digest_of, encode

A, B = digest_of(b"a"), digest_of(b"b")
NAME = "20261129T120000Z-1500"


def make(**changes: Any) -> Manifest:
    """A manifest of two segments of 1,000 bytes."""
    fields: dict[str, Any] = {
        "backup_id": NAME,
        "created_ms": 1,
        "history_id": "0" * 32,
        "segment_size_bytes": 1_000,
        "min_physical_offset": 0,
        "end_physical_offset": 1_500,
        "epochs": (EpochStart(1, 0), EpochStart(3, 900)),
        "pieces": (Piece(0, 1_000, A), Piece(1_000, 500, B)),
        "files": {"config/topics.json": Content(A, 1_000)},
    }
    return Manifest(**{**fields, **changes})


def written(**changes: Any) -> bytes:
    """The file of a manifest with changes that `encode` would refuse."""
    body = msgspec.json.encode(make(**changes))
    head = {"format": "reput-backup", "version": 1, "sha256": digest_of(body), "manifest": msgspec.Raw(body)}
    return msgspec.json.encode(head)


def test_what_is_written_is_read() -> None:
    """A manifest is read as it was written, and names its objects."""
    assert decode(encode(make()), NAME) == make()
    assert make().objects == {A: 1_000, B: 500}


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("backup_id", {"backup_id": "../x"}),
        ("backup_id", {"backup_id": "20261129T120000Z-1501"}),
        ("history_id", {"history_id": "../../etc"}),
        ("segment_size_bytes", {"segment_size_bytes": 0}),
        ("segment_size_bytes", {"segment_size_bytes": 2**62}),
        ("min_physical_offset", {"min_physical_offset": 500}),
        ("end_physical_offset", {"end_physical_offset": -1}),
        ("end_physical_offset", {"end_physical_offset": 1_499}),
        ("end_physical_offset", {"pieces": ()}),
        ("pieces[1].start_physical_offset", {"pieces": (Piece(0, 900, A), Piece(1_000, 500, B))}),
        ("pieces[1].start_physical_offset", {"pieces": (Piece(0, 1_000, A), Piece(900, 600, B))}),
        ("pieces[0].size_bytes", {"pieces": (Piece(0, 1_500, A),)}),
        ("pieces[1].size_bytes", {"pieces": (Piece(0, 1_000, A), Piece(1_000, 0, B))}),
        ("pieces[1].size_bytes", {"pieces": (Piece(0, 1_000, A), Piece(1_000, -500, B))}),
        ("pieces[0].sha256", {"pieces": (Piece(0, 1_000, "../" + A[3:]), Piece(1_000, 500, B))}),
        ("files", {"files": {"../passwd": Content(A, 1)}}),
        ("files", {"files": {"config/..": Content(A, 1)}}),
        ("files", {"files": {"/config/topics.json": Content(A, 1)}}),
        ("files", {"files": {"commitlog/00000000000000000000": Content(A, 1)}}),
        ("files[config/a].size_bytes", {"files": {"config/a": Content(A, -1)}}),
        ("epochs", {"epochs": (EpochStart(2, 0), EpochStart(2, 9))}),
        ("epochs", {"epochs": (EpochStart(1, 9), EpochStart(2, 0))}),
        ("epochs", {"epochs": (EpochStart(0, 0),)}),
    ],
)
def test_impossible_values_are_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    """A value that no backup has is refused with the name of its field."""
    with pytest.raises(BackupDamaged) as refused:
        decode(written(**changes), NAME)
    assert f" {field} " in str(refused.value)
    with pytest.raises(BackupDamaged):
        encode(make(**changes)) if "backup_id" not in changes else decode(written(**changes), NAME)


def test_a_later_version_is_refused_by_its_name() -> None:
    """A later version is refused before anything else of it is read."""
    document = json.loads(encode(make()))
    later = json.dumps({"format": "reput-backup", "version": 2, "anything": [1]}).encode()
    with pytest.raises(BackupError, match="has version 2 of reput-backup, this reput reads up to version 1") as refused:
        decode(later, NAME)
    assert not isinstance(refused.value, BackupDamaged)
    for version in (0, -1, "1", None, True, 1.5):
        with pytest.raises(BackupDamaged, match="version"):
            decode(json.dumps({**document, "version": version}).encode(), NAME)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'{"format": "other", "version": 1}',
        b'{"format": "reput-backup", "version": 1}',
        b'{"format": "reput-backup", "version": 1, "sha256": "x", "manifest": {}}',
        b"[" * 100_000,
        b'{"format": "reput-backup", "version": 1, "sha256": "' + b"0" * 64 + b'", "manifest": {}, "more": 1}',
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    """Bytes that are no manifest are damage."""
    with pytest.raises(BackupDamaged, match=f"manifest {NAME}"):
        decode(data, NAME)


def test_every_wrong_byte_is_noticed() -> None:
    """A manifest with any byte changed is refused, or says the same."""
    data = encode(make())
    for position in range(len(data) - 1):
        harmed = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        with pytest.raises(BackupError):
            decode(harmed, NAME)


def test_a_huge_manifest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest above the limit is refused before it is parsed."""
    monkeypatch.setattr(manifests, "SIZE_BYTES_MAX", 10)
    with pytest.raises(BackupDamaged, match="the limit is 10"):
        decode(encode(make()), NAME)
