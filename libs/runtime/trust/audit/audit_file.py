# SPDX-License-Identifier: Apache-2.0
"""AuditFile: writes audit lines from a thread of its own to a file that rotates.

Invariants: `write` never waits for the disk; a line that can't be written is counted and lost, and the service goes on.
A line is written by a single call, so a line that a full disk cut is alone on its line. Only one process has the file.
Callers: `write` from any thread.
"""

import errno
import fcntl
import logging
import os
import queue
import threading
from io import FileIO
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

from libs.runtime.errors import ConfigError
from libs.runtime.trust.audit.limits import AuditConfig

WAITING_COUNT_MAX = 10_000
"""Maximum number of lines that wait for the disk."""
CLOSE_TIMEOUT_S = 5.0
"""Time for the last lines at the end: a disk that hangs must not hold the stop up."""
WRONG_PATHS = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EROFS, errno.ELOOP)
"""Errors of a start that a setting causes. Other errors, such as a full disk, pass, and only cost lines."""

_log = logging.getLogger(__name__)


class _Rotating(RotatingFileHandler):
    """The rotation of the standard library, with errors for the caller and without buffers that keep parts of lines."""

    def __init__(self, config: AuditConfig) -> None:
        assert config.audit_file is not None
        self._is_torn = False
        super().__init__(
            config.audit_file,
            maxBytes=config.audit_file_size_bytes_max,
            backupCount=config.audit_file_count_max,
            delay=True,
        )

    def _open(self) -> Any:
        descriptor = os.open(self.baseFilename, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size_bytes = os.fstat(descriptor).st_size
            self._is_torn = size_bytes > 0 and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
        except OSError:
            os.close(descriptor)
            raise
        return FileIO(descriptor, "a")

    def open_now(self) -> None:
        """Open the file. Raises OSError, also BlockingIOError if another process has it."""
        self.stream = self._open()

    def put(self, data: bytes) -> None:
        """Write a line. Raises OSError."""
        if self.stream is not None and not self._is_at_its_path():
            self.stream.close()
            self.stream = None
        if self.stream is None:
            self.open_now()
        stream = cast("FileIO", self.stream)
        if os.fstat(stream.fileno()).st_size + len(data) > self.maxBytes:
            self.doRollover()
            if self.stream is None:
                self.open_now()
            stream = cast("FileIO", self.stream)
        whole = b"\n" + data if self._is_torn else data
        self._is_torn = True
        if stream.write(whole) != len(whole):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._is_torn = False

    def _is_at_its_path(self) -> bool:
        """Return whether the open file is still at its path: a tool may have moved or deleted it."""
        try:
            found = os.stat(self.baseFilename)  # noqa: PTH116 - logging has it as a text
        except OSError:
            return False
        own = os.fstat(cast("FileIO", self.stream).fileno())
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


class AuditFile:
    """The audit file of a service. Raises ConfigError for a path that can't be a file of this process."""

    def __init__(self, config: AuditConfig) -> None:
        assert config.audit_file is not None
        self._path: Path = config.audit_file
        self.written_total = self.lost_total = 0
        self._handler = _Rotating(config)
        self._is_failing = False
        self._lock = threading.Lock()
        try:
            self._handler.open_now()
        except BlockingIOError as error:
            raise ConfigError(
                f"audit_file: {self._path}: another process writes it: each service needs a file"
            ) from error
        except OSError as error:
            if error.errno in WRONG_PATHS:
                raise ConfigError(f"audit_file: {self._path}: {error.strerror}") from error
            self._failed(error)
        self._waiting: queue.Queue[str | None] = queue.Queue(WAITING_COUNT_MAX)
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Write a line soon. The line is lost if too many lines wait for the disk."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            self._failed(OSError(errno.EAGAIN, "too many lines wait for the disk"), is_line=True)

    def close(self) -> None:
        """Write the lines that wait, for at most CLOSE_TIMEOUT_S. May be repeated."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
            except queue.Full:
                return
            self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            try:
                self._handler.put(text.encode("ascii") + b"\n")
            except (OSError, ValueError) as error:
                self._failed(error, is_line=True)
            else:
                self.written_total += 1
                self._succeeded()
        self._handler.close()

    def _failed(self, error: Exception, *, is_line: bool = False) -> None:
        with self._lock:
            self.lost_total += is_line
            is_first, self._is_failing = not self._is_failing, True
        if is_first:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            _log.warning("audit_file: %s: %s: audit lines are lost, the service goes on", self._path, reason)

    def _succeeded(self) -> None:
        if not self._is_failing or self._waiting.full():
            return
        with self._lock:
            self._is_failing = False
        _log.warning("audit_file: %s works again; %d lines were lost since the start", self._path, self.lost_total)
