# SPDX-License-Identifier: Apache-2.0
"""Repository: the manifests and objects of a place. Spec: docs/formats/backup.md.

Invariants: a manifest is written after all objects that it names, and deleted before them. An object is named by the
SHA-256 of its bytes, so it is never changed; every read compares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.backup import manifest as manifests
from cli.backup.errors import BackupDamaged, BackupError, BackupNotFound
from cli.backup.manifest import Content, Manifest, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.backup.places import Place
    from cli.backup.plan import PrunePlan

BACKUPS, INCOMPLETE, OBJECTS = "backups", "incomplete", "objects"
SUFFIX = ".json"


class Repository:
    """The backups of a place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def backup_ids(self) -> list[str]:
        """Return the ids of all complete backups, the oldest first."""
        return sorted(self._names(BACKUPS))

    def load(self, backup_id: str) -> Manifest:
        """Return a manifest. `latest` is the newest. Raises BackupNotFound, BackupDamaged, BackupError, PlaceFailed."""
        ids = self.backup_ids()
        if backup_id == "latest":
            if not ids:
                raise BackupNotFound("there is no complete backup here")
            backup_id = ids[-1]
        if backup_id not in ids:
            raise BackupNotFound(f"there is no backup {backup_id} here: {', '.join(ids[-3:]) or 'there is none'}")
        return self._read(backup_id)

    def load_all(self) -> list[Manifest]:
        """Return all manifests, the oldest first."""
        return [self._read(backup_id) for backup_id in self.backup_ids()]

    def load_incomplete(self) -> dict[str, Manifest]:
        """Return the lists of unfinished backups by their names. A damaged list is left out: it saves work only."""
        found = {}
        for name in self._names(INCOMPLETE):
            try:
                found[name] = manifests.decode(self.place.read(f"{INCOMPLETE}/{name}{SUFFIX}"), name)
            except BackupDamaged:
                continue
        return found

    def save(self, manifest: Manifest) -> None:
        """Write the manifest of a complete backup, and read it back."""
        name, data = f"{BACKUPS}/{manifest.backup_id}{SUFFIX}", manifests.encode(manifest)
        self.place.write(name, data)
        if self.place.read(name) != data:
            raise BackupDamaged(f"{name} was read back with other bytes")

    def save_incomplete(self, manifest: Manifest) -> None:
        """Write the list of an unfinished backup."""
        self.place.write(f"{INCOMPLETE}/{manifest.backup_id}{SUFFIX}", manifests.encode(manifest))

    def forget_incomplete(self, name: str) -> None:
        """Remove the list of an unfinished backup."""
        self.place.delete(f"{INCOMPLETE}/{name}{SUFFIX}")

    def objects(self) -> dict[str, int]:
        """Return the size of each object by its digest."""
        return {name.rpartition("/")[2]: size for name, size in self.place.sizes(OBJECTS).items()}

    def get(self, digest: str, size_bytes: int) -> bytes:
        """Return an object. Raises BackupDamaged if it is missing or has other bytes."""
        data = self.place.read(_object_name(digest))
        if len(data) != size_bytes:
            raise BackupDamaged(f"object {digest} has {len(data)} bytes, its manifest says {size_bytes}")
        if digest_of(data) != digest:
            raise BackupDamaged(f"object {digest} has other bytes than its name says")
        return data

    def put(self, data: bytes | bytearray) -> Content:
        """Write an object and read it back. Raises BackupDamaged if other bytes come back."""
        content = Content(digest_of(data), len(data))
        self.place.write(_object_name(content.sha256), data)
        self.get(content.sha256, content.size_bytes)
        return content

    def check_all_there(self, manifest: Manifest) -> None:
        """Raise BackupDamaged unless all objects of a manifest are there with their sizes."""
        there = self.objects()
        for digest, size_bytes in manifest.objects.items():
            found = there.get(digest, 0)
            if found != size_bytes:
                name = manifest.backup_id
                raise BackupDamaged(f"object {digest} has {found} bytes, backup {name} needs {size_bytes}")

    def verify(self, manifest: Manifest, progress: Callable[[int], None]) -> int:
        """Read every object of a backup. Returns the bytes. Raises BackupDamaged for the first wrong object."""
        done = 0
        for digest, size_bytes in manifest.objects.items():
            done += len(self.get(digest, size_bytes))
            progress(done)
        return done

    def prune(self, plan: PrunePlan, progress: Callable[[int], None]) -> None:
        """Delete what a plan says: manifests, then objects."""
        for backup_id in plan.deleted:
            self.place.delete(f"{BACKUPS}/{backup_id}{SUFFIX}")
        for name in plan.incomplete:
            self.forget_incomplete(name)
        for done, digest in enumerate(plan.objects):
            self.place.delete(_object_name(digest))
            progress(done + 1)

    def _read(self, backup_id: str) -> Manifest:
        return manifests.decode(self.place.read(f"{BACKUPS}/{backup_id}{SUFFIX}"), backup_id)

    def _names(self, folder: str) -> list[str]:
        names = [name.removesuffix(SUFFIX) for name in self.place.sizes(folder) if name.endswith(SUFFIX)]
        if strange := [name for name in names if not manifests.is_backup_id(name)]:
            raise BackupError(f"{folder}/{strange[0][:80]}{SUFFIX} is no name of a backup: remove the file")
        return names


def _object_name(digest: str) -> str:
    return f"{OBJECTS}/{digest[:2]}/{digest}"
