# SPDX-License-Identifier: Apache-2.0
"""A file of `config/`, and its copy `.bak`, which replaces a missing or damaged file.

Invariants: a log line names the file when the copy is used, and when no content is found although there is a copy. The
copy has the content that was saved last or, after a crash during a save, the content before. It never has damaged
content of the file. (RocketMQ's copy is always a change behind.)
Layouts: docs/formats/config_files.md.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.log.errors import ConfigFileDamaged
from libs.machine.fs import Fs

T = TypeVar("T")

_log = logging.getLogger(__name__)


def backup_of(path: Path) -> Path:
    """Return the path of the copy."""
    return path.with_name(path.name + store_layout.BACKUP_SUFFIX)


def save(fs: Fs, path: Path, data: bytes) -> None:
    """Replace the file, durably, then its copy. Blocks. Raises OSError."""
    for target in (path, backup_of(path)):
        fs.write_atomic(target, data)


def read(fs: Fs, path: Path, loads: Callable[[str], T]) -> T | None:
    """Read the file, or its copy if the file is missing, empty or damaged. Returns None without either.

    Raises ConfigFileDamaged if either is damaged and the other can't replace it. Blocks.
    """
    has_backup = fs.exists(backup_of(path))
    damage: ConfigFileDamaged | None = None
    for candidate in (path, backup_of(path)):
        try:
            data = fs.read(candidate)
            if data.strip():
                return loads(data.decode())
            why: object = "it is empty"
        except FileNotFoundError:
            why = "it is missing"
        except (FormatError, UnicodeDecodeError) as error:
            damage, why = damage or ConfigFileDamaged(path=candidate, reason=str(error)), error
        if has_backup or fs.exists(candidate):
            _log.warning("%s can't be read%s: %s", candidate, ", its copy is taken" if candidate == path else "", why)
    if damage is not None:
        raise damage
    return None
