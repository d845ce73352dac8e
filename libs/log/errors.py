# SPDX-License-Identifier: Apache-2.0
"""Errors of the files around the segments of a log. Each error has its coordinates as attributes."""

from pathlib import Path

from libs.segments.errors import StoreError


class LogDirectoryMissing(StoreError):
    """A directory that the last start used for segments is missing, most likely because its disk is not mounted."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(
            f"{path}: this directory of the log is not there; nothing was changed: mount its disk, make an empty "
            "directory if nothing is lost with it, or remove reput/log_directories if log_dirs names its new place"
        )
        self.path = path


class LogDirectoryLeftOut(StoreError):
    """A directory has segments of the log, and the settings do not name it any more."""

    def __init__(self, *, path: Path) -> None:
        super().__init__(
            f"{path}: this directory has segments of the log, but neither log_dirs nor log_dirs_read_only names it; "
            "nothing was changed: name it, as a read-only one if nothing new is to go there"
        )
        self.path = path


class ReplicaFileDamaged(StoreError):
    """The replica file with the log's assigned role can't be read, so it is unknown whether the log may lead."""

    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; it says whether this log leads: remove it if the settings say that, too")
        self.path, self.reason = path, reason


class ConfigFileDamaged(StoreError):
    """A file of `config/` can't be read, and no copy can replace it."""

    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; nothing was changed: restore the file from a copy")
