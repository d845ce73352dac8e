# SPDX-License-Identifier: Apache-2.0
"""Manifest: the document that names all objects of a backup. Pure. Spec: docs/formats/backup.md.

Invariants: pieces follow each other without a gap, none is in two segments, and the last one ends at the backup's end.
A manifest of a later version is refused by its name, so that no reader leaves out what it does not know.
"""

from __future__ import annotations

import hashlib
import json
import re
from itertools import pairwise
from typing import Any

import msgspec

from cli.backup.errors import BackupDamaged, BackupError

FORMAT = "reput-backup"
VERSION = 1
SIZE_BYTES_MAX = 256 << 20
SEGMENT_SIZE_BYTES_MAX = 1 << 40
OFFSET_MAX = 2**62
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_NAME = re.compile(r"(config|reput)/[A-Za-z0-9_.]{1,64}", re.ASCII)
_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9]{1,20}(-[0-9]{1,4})?", re.ASCII)
_HISTORY = re.compile(r"(?:[0-9a-f]{32})?", re.ASCII)


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object by its content."""

    sha256: str
    size_bytes: int


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive bytes of the log, in an object."""

    start_physical_offset: int
    size_bytes: int
    sha256: str

    @property
    def end_physical_offset(self) -> int:
        """End of the piece, exclusive."""
        return self.start_physical_offset + self.size_bytes


class EpochStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An epoch of the log."""

    number: int
    start_physical_offset: int


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A backup. Times are in milliseconds since 1970; offsets are physical, ends exclusive."""

    backup_id: str
    created_ms: int
    history_id: str
    segment_size_bytes: int
    min_physical_offset: int
    end_physical_offset: int
    epochs: tuple[EpochStart, ...]
    pieces: tuple[Piece, ...]
    files: dict[str, Content] = msgspec.field(default_factory=dict)
    """The small files of the store, by their path in the data directory."""
    new_bytes: int = 0
    """Bytes that this backup added to its place."""

    @property
    def objects(self) -> dict[str, int]:
        """The size of each object of the backup, by its digest."""
        found = {piece.sha256: piece.size_bytes for piece in self.pieces}
        return found | {content.sha256: content.size_bytes for content in self.files.values()}

    @property
    def size_bytes(self) -> int:
        """Bytes of all objects."""
        return sum(self.objects.values())


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: its version, the checksum of the rest, and the manifest as it was written."""

    format: str
    version: int
    sha256: str
    manifest: msgspec.Raw


def digest_of(data: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of bytes in hexadecimal digits, the name of their object."""
    return hashlib.sha256(data).hexdigest()


def encode(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    _check(manifest, manifest.backup_id)
    body = msgspec.json.encode(manifest)
    head = {"format": FORMAT, "version": VERSION, "sha256": digest_of(body), "manifest": msgspec.Raw(body)}
    return msgspec.json.encode(head) + b"\n"


def decode(data: bytes, name: str) -> Manifest:
    """Return the manifest in a file. `name` is for errors, and the id that it must have.

    Raises BackupDamaged, and BackupError for a later version.
    """
    if len(data) > SIZE_BYTES_MAX:
        raise BackupDamaged(f"manifest {name}: {len(data)} bytes, the limit is {SIZE_BYTES_MAX}")
    _check_version(data, name)
    try:
        document = msgspec.json.decode(data, type=_Document)
        if document.sha256 != digest_of(bytes(document.manifest)):
            raise BackupDamaged(f"manifest {name}: its bytes do not have its checksum sha256")
        manifest = msgspec.json.decode(document.manifest, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BackupDamaged(f"manifest {name}: {error}") from error
    _check(manifest, name)
    return manifest


def _check_version(data: bytes, name: str) -> None:
    """Refuse what another program or a later version wrote, before anything else is read."""
    try:
        head: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BackupDamaged(f"manifest {name}: no JSON ({error})") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise BackupDamaged(f"manifest {name}: its format is not {FORMAT}")
    version = head.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BackupDamaged(f"manifest {name}: version {version!r} is no version")
    if version > VERSION:
        raise BackupError(
            f"manifest {name} has version {version} of {FORMAT}, this reput reads up to version {VERSION}: "
            "use the reput that made the backup, or a later one"
        )


def _check(manifest: Manifest, name: str) -> None:
    """Raise BackupDamaged unless the values can be of a backup."""

    def demand(holds: bool, field: str, value: object, limit: object) -> None:
        if not holds:
            raise BackupDamaged(f"manifest {name}: {field} is {value!r}, and must be {limit}")

    start, end, size = manifest.min_physical_offset, manifest.end_physical_offset, manifest.segment_size_bytes
    demand(_ID.fullmatch(manifest.backup_id) is not None, "backup_id", manifest.backup_id, "time and offset")
    demand(manifest.backup_id == name, "backup_id", manifest.backup_id, f"the name of its file, {name}")
    demand(_HISTORY.fullmatch(manifest.history_id) is not None, "history_id", manifest.history_id, "32 hex digits")
    demand(0 < size <= SEGMENT_SIZE_BYTES_MAX, "segment_size_bytes", size, f"1 to {SEGMENT_SIZE_BYTES_MAX}")
    demand(0 <= manifest.created_ms <= OFFSET_MAX, "created_ms", manifest.created_ms, "a time")
    demand(0 <= start <= end <= OFFSET_MAX, "end_physical_offset", end, f"from min_physical_offset {start} on")
    demand(start % size == 0, "min_physical_offset", start, f"the start of a segment of {size} bytes")
    at = start
    for number, piece in enumerate(manifest.pieces):
        field = f"pieces[{number}]"
        demand(piece.start_physical_offset == at, f"{field}.start_physical_offset", piece.start_physical_offset, at)
        room = size - at % size
        demand(0 < piece.size_bytes <= room, f"{field}.size_bytes", piece.size_bytes, f"1 to {room}")
        demand(_DIGEST.fullmatch(piece.sha256) is not None, f"{field}.sha256", piece.sha256, "64 hex digits")
        at = piece.end_physical_offset
    demand(at == end, "end_physical_offset", end, f"the end of the pieces, {at}")
    for file, content in manifest.files.items():
        demand(_NAME.fullmatch(file) is not None and ".." not in file, "files", file, "config/NAME or reput/NAME")
        demand(_DIGEST.fullmatch(content.sha256) is not None, f"files[{file}].sha256", content.sha256, "64 hex digits")
        demand(0 <= content.size_bytes <= OFFSET_MAX, f"files[{file}].size_bytes", content.size_bytes, "a size")
    for earlier, later in pairwise((EpochStart(0, 0), *manifest.epochs)):
        ascends = later.number > earlier.number and later.start_physical_offset >= earlier.start_physical_offset
        demand(ascends, "epochs", (later.number, later.start_physical_offset), f"after {earlier.number}")


def is_backup_id(text: str) -> bool:
    """Return whether a text can be the id of a backup."""
    return _ID.fullmatch(text) is not None
