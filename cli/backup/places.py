# SPDX-License-Identifier: Apache-2.0
"""Places that keep backups: a directory, or a prefix in object storage (`object_storage`).

Both are a tree of names with bytes. A write is seen whole or not at all, and in a directory it is on the disk when
`write` returns.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cli.backup.errors import BackupDamaged, BackupError, PlaceFailed
from cli.backup.object_storage import SCHEMES, ObjectStorage
from libs.formats import store_layout
from libs.machine.posix_fs import PosixFs, open_private

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTIAL = ".partial-"


class Place(Protocol):
    """A tree of names with bytes. Every method raises PlaceFailed, `read` also BackupDamaged for a missing name."""

    def read(self, name: str) -> bytes:
        """Return all bytes of a name."""
        ...

    def write(self, name: str, data: bytes | bytearray) -> None:
        """Put bytes under a name, whole or not at all."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of the names in a folder, relative to the folder."""
        ...

    def delete(self, name: str) -> None:
        """Remove a name. A name that is missing counts as removed."""
        ...

    def locked(self) -> Any:
        """Return a context in which no other process of this machine changes the place."""
        ...


def open_place(text: str, *, may_create: bool) -> Place:
    """Return the place of a path or a URL such as `s3://bucket/prefix`. Raises BackupError and PlaceFailed."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Directory(Path(text), may_create=may_create)
    if scheme == "file":
        return Directory(Path(rest), may_create=may_create)
    if scheme not in SCHEMES:
        raise BackupError(f"{text!r}: the scheme {scheme!r} is unknown: a path, file, {', '.join(SCHEMES)} are known")
    return ObjectStorage(text)


class Directory:
    """A directory of this machine, or of a mounted file system."""

    def __init__(self, root: Path, *, may_create: bool) -> None:
        self._root = root
        with self._failing("create", root):
            if may_create:
                PosixFs().make_directory(root)
            elif not root.is_dir():
                raise PlaceFailed(f"{root}: there is no such directory")

    def read(self, name: str) -> bytes:
        """Return all bytes of a file."""
        path = self._root / name
        try:
            with self._failing("read", path):
                return path.read_bytes()
        except FileNotFoundError as error:
            raise BackupDamaged(f"{path} is missing") from error

    def write(self, name: str, data: bytes | bytearray) -> None:
        """Write a file beside its place, sync it, rename it, and sync its directory."""
        path = self._root / name
        partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}")
        with self._failing("write", path):
            is_new = not path.parent.is_dir()
            PosixFs().make_directory(path.parent, is_durable=False)
            try:
                with open(partial, "xb", opener=open_private) as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            for folder in (path.parent, *([path.parent.parent] if is_new else [])):
                self._sync(folder)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of the files below a folder. What a killed process left is removed."""
        root, found = self._root / folder, {}
        with self._failing("list", root):
            for path in root.rglob("*") if root.is_dir() else ():
                if path.is_file() and not path.name.startswith(PARTIAL):
                    found[str(path.relative_to(root))] = path.stat().st_size
        return found

    def delete(self, name: str) -> None:
        """Remove a file."""
        path = self._root / name
        with self._failing("delete", path):
            path.unlink(missing_ok=True)
            if path.parent.is_dir():
                self._sync(path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the directory. Raises BackupError if another process has it."""
        import fcntl

        path = self._root / store_layout.LOCK
        with self._failing("lock", path):
            file = os.fdopen(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC), "ab")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BackupError(f"{self._root}: another backup or prune uses it now") from error
            for left in self._root.rglob(f"{PARTIAL}*"):
                left.unlink(missing_ok=True)
            yield

    @staticmethod
    def _sync(folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _failing(self, doing: str, path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise PlaceFailed(f"{path}: could not {doing} it: {error.strerror or error}") from error
