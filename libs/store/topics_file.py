# SPDX-License-Identifier: Apache-2.0
"""The file `config/topics.json` of a data directory, and the backup that stands in for it.

Invariant: the backup has what was saved last, or, if the machine died in between, what was saved before; what is found
in the file, which may be damaged, never gets there. (RocketMQ's backup is always one change behind.)
The CommitLog writes it; whoever works on the directory's other files may look at it.
Layout: docs/formats/config_files.md section 2.
"""

import logging
from pathlib import Path

from libs.formats import topics_json
from libs.formats.errors import FormatError
from libs.formats.topics_json import TopicsFile
from libs.machine.fs import Fs

PATH = Path("config") / "topics.json"
BACKUP_SUFFIX = ".bak"

_log = logging.getLogger(__name__)


def load(fs: Fs, data_dir: Path) -> TopicsFile:
    """Read the file, or its backup when it is missing, empty or damaged; no topics without either.

    Raises FormatError when there are files and none can be read. Blocks.
    """
    damage: FormatError | None = None
    path = data_dir / PATH
    for candidate in (path, _backup(path)):
        if not fs.exists(candidate):
            if candidate == path and fs.exists(_backup(path)):
                _log.warning("%s is missing: its backup is read", path)
            continue
        try:
            return topics_json.loads(fs.read(candidate).decode("utf-8", "replace"))
        except FormatError as error:
            _log.warning("%s can't be read: %s", candidate, error)
            damage = error
    if damage is not None:
        raise damage
    return TopicsFile()


def save(fs: Fs, data_dir: Path, file: TopicsFile) -> None:
    """Replace the file, durably, then the backup. Blocks. Raises OSError."""
    path, data = data_dir / PATH, topics_json.dumps(file).encode()
    fs.write_atomic(path, data)
    fs.write_atomic(_backup(path), data)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP_SUFFIX)
