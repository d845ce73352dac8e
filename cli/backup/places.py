# SPDX-License-Identifier: Apache-2.0
"""Places that keep backups: a directory, or a prefix in object storage (pyarrow.fs).

Both are a tree of names with bytes. A write is seen whole or not at all, and in a directory it is on the disk when
`write` returns. Object storage repeats what fails for a moment by itself, and fails after some attempts.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cli.backup.errors import BackupDamaged, BackupError, PlaceFailed
from libs.formats import store_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMES = ("s3", "gs", "abfs", "abfss")
"""Schemes of pyarrow.fs for object storage."""
PARTIAL = ".partial-"
S3_ATTEMPT_COUNT = 6
TIMEOUT_S = 60.0


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
                root.mkdir(parents=True, exist_ok=True)
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
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("xb") as file:
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
            file = path.open("ab")
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


class ObjectStorage:
    """A prefix in object storage, by pyarrow.fs. An object is put in one request, or in parts that are joined."""

    def __init__(self, url: str) -> None:
        self._url = url.partition("?")[0].rstrip("/")
        with self._failing("open"):
            self._files, self._root = _open(url)
        self._root = self._root.rstrip("/")

    def read(self, name: str) -> bytes:
        """Return all bytes of an object."""
        try:
            with self._failing("read", name), self._files.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError as error:
            raise BackupDamaged(f"{self._url}/{name} is missing") from error

    def write(self, name: str, data: bytes | bytearray) -> None:
        """Put an object."""
        with self._failing("write", name), self._files.open_output_stream(f"{self._root}/{name}") as stream:
            stream.write(data)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes of the objects below a folder."""
        from pyarrow.fs import FileSelector, FileType

        root = f"{self._root}/{folder}"
        with self._failing("list", folder):
            found = self._files.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
        return {one.path.removeprefix(f"{root}/"): one.size for one in found if one.type == FileType.File}

    def delete(self, name: str) -> None:
        """Remove an object."""
        with self._failing("delete", name):
            try:
                self._files.delete_file(f"{self._root}/{name}")
            except FileNotFoundError:
                return

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: object storage has no locks. docs/backup.md says to run one command at a time."""
        yield

    @contextmanager
    def _failing(self, doing: str, name: str = "") -> Iterator[None]:
        place = f"{self._url}/{name}".rstrip("/")
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            text = " ".join(str(error).split())
            raise PlaceFailed(f"{place}: could not {doing} it: {text[:600]}") from error


def _open(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it."""
    try:
        from pyarrow import fs
    except ImportError as error:
        raise BackupError(f"{url}: object storage needs pyarrow: pip install pyarrow") from error
    if not url.startswith("s3://"):
        files, path = fs.FileSystem.from_uri(url)
        return files, path
    from urllib.parse import parse_qsl, urlsplit

    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query, strict_parsing=True) if parts.query else [])
    unknown = sorted(options.keys() - {"endpoint_override", "region", "scheme"})
    if unknown:
        raise BackupError(f"{url}: {unknown[0]!r} is no option: endpoint_override, region and scheme are")
    endpoint = options.pop("endpoint_override", None) or os.environ.get("AWS_ENDPOINT_URL", "")
    if "://" in endpoint:
        scheme, _, endpoint = endpoint.partition("://")
        options.setdefault("scheme", scheme)
    if endpoint:
        options["endpoint_override"] = endpoint
    if not parts.netloc:
        raise BackupError(f"{url}: there is no bucket: s3://BUCKET/PREFIX")
    files = fs.S3FileSystem(
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPT_COUNT),
        connect_timeout=TIMEOUT_S,
        request_timeout=TIMEOUT_S,
        **options,
    )
    return files, f"{parts.netloc}{parts.path}"
