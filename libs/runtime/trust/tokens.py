# SPDX-License-Identifier: Apache-2.0
"""Tokens in files: a file is read again when it changes. The local token is created for the user of this machine.

A file has a token in each line. Each of them is accepted from callers, and the first token is shown to other services.
To renew a token, an operator puts the new token in front, everywhere, before the old token is removed.
With the local token, a store on a single machine needs no setting: a program that can read the file (a program of its
user) may be service and operator of the stores of this user, as with Erlang's cookie. The token is created when it is
first needed.
"""

import contextlib
import ipaddress
import logging
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from libs.runtime.errors import ConfigError

CHECK_INTERVAL_S = 1.0
"""Minimum time between two checks of a file."""

TOKEN_SIZE_BYTES_MAX = 4_096
"""Maximum size of a token. All of gRPC's metadata have 8 KiB."""

_log = logging.getLogger(__name__)


class WatchedFiles:
    """Detects changes of some files since the previous check. It checks once in `CHECK_INTERVAL_S`."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._seen = self._look()
        self._due_s = time.monotonic() + CHECK_INTERVAL_S

    def also(self, paths: Iterable[Path]) -> None:
        """Watch these files beside the first of the files, in place of all others."""
        seen = dict(zip(self._paths, self._seen, strict=True))
        self._paths = (*self._paths[:1], *paths)
        self._seen = [seen.get(path, found) for path, found in zip(self._paths, self._look(), strict=True)]

    def have_changed(self) -> bool:
        """Return whether to read the files again: True once for each change."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + CHECK_INTERVAL_S
        seen, self._seen = self._seen, self._look()
        return seen != self._seen

    def _look(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                status = path.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                found.append(None)
        return found


def read_file(setting: str, path: Path) -> bytes:
    """Return the content of a setting's file. Raises ConfigError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror}") from error


class TokenFile:
    """The tokens of a file, as it is now. If it becomes unreadable or empty, the old tokens stay."""

    def __init__(self, setting: str, path: Path) -> None:
        self._setting, self._path = setting, path
        self._watched = WatchedFiles([path])
        self._tokens = read_tokens(setting, path)

    @property
    def shown(self) -> str:
        """The token to show to others."""
        return self._current()[0].decode()

    @property
    def all_tokens(self) -> list[bytes]:
        """All tokens of the file."""
        return self._current()

    def has(self, given: bytes) -> bool:
        """Return whether the file has this token. A wrong token takes the same time as a right token."""
        from hmac import compare_digest  # a command that shows a token does not wait for OpenSSL

        is_right = False
        for token in self._current():
            is_right |= compare_digest(given, token)
        return is_right

    def _current(self) -> list[bytes]:
        if self._watched.have_changed():
            try:
                self._tokens = read_tokens(self._setting, self._path)
                _log.info("%s: %s has changed and is read", self._setting, self._path)
            except ConfigError as error:
                _log.warning("%s; the tokens that it had before stay good", error)
        return self._tokens


def read_tokens(setting: str, path: Path) -> list[bytes]:
    """Return the tokens of a file, at least one. Raises ConfigError."""
    lines = [line.strip() for line in read_file(setting, path).splitlines()]
    tokens = [line for line in lines if line]
    if not tokens:
        raise ConfigError(f"{setting}: {path}: the file is empty")
    for token in tokens:
        if len(token) > TOKEN_SIZE_BYTES_MAX or not all(0x20 < byte < 0x7F for byte in token):
            limit = f"at most {TOKEN_SIZE_BYTES_MAX} printable ASCII characters without spaces"
            raise ConfigError(f"{setting}: {path}: a token has {limit}")
    return tokens


def local_token_path() -> Path:
    """Return the path of the local token: $XDG_STATE_HOME/reput/token, by default ~/.local/state/reput/token.

    Raises ConfigError for a user without a home.
    """
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        home = given if given.is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ConfigError(
            "this user has no home for a token: set service_token_file and operator_token_file, or XDG_STATE_HOME"
        ) from None
    return home / "reput/token"


def ensure_local_token() -> Path:
    """Create the local token if there is none, and return its path. Raises ConfigError.

    Several processes may call this at the same time. A file that other users may read is refused, as ssh refuses such
    a key.
    """
    path = local_token_path()
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make(path)
        status = path.stat()
    except OSError as error:
        raise ConfigError(
            f"the token of this user can't be made: {path}: {error.strerror}; set service_token_file and "
            "operator_token_file, or XDG_STATE_HOME"
        ) from error
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise ConfigError(f"{path} must be this user's, and nobody else may read it (chmod 600)")
    return path


def _make(path: Path) -> None:
    """Create the file with its content in a single step: a link to a finished file."""
    import secrets  # as above

    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    # O_SYNC: after a power cut an empty file would keep all services from starting
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_SYNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def find_local_token(targets: Iterable[str]) -> str | None:
    """Return the local token for a program that calls these targets, or None.

    It is shown only to this machine, never to another host.
    """
    if not all(_is_local(target) for target in targets):
        return None
    with contextlib.suppress(ConfigError, OSError):
        path = local_token_path()
        if path.exists():
            return TokenFile("token", path).shown
    return None


def _is_local(target: str) -> bool:
    return target.startswith("unix:") or is_loopback(target.rpartition(":")[0].strip("[]"))


def is_loopback(host: str) -> bool:
    """Return whether an address or name of a host is a loopback address of this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
