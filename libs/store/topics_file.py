# SPDX-License-Identifier: Apache-2.0
"""The file `config/topics.json` of a data directory, and the backup that stands in for it.

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
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        data = fs.read(candidate) if fs.exists(candidate) else b""
        if not data:
            continue
        try:
            return topics_json.loads(data.decode("utf-8", "replace"))
        except FormatError as error:
            _log.warning("%s can't be read: %s", candidate, error)
            damage = error
    if damage is not None:
        raise damage
    return TopicsFile()


def save(fs: Fs, data_dir: Path, file: TopicsFile) -> None:
    """Replace the file, durably; what it held becomes the backup. Blocks. Raises OSError."""
    path = data_dir / PATH
    if fs.exists(path):
        fs.write_atomic(path.with_name(path.name + BACKUP_SUFFIX), fs.read(path))
    fs.write_atomic(path, topics_json.dumps(file).encode())
