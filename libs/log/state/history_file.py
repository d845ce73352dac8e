# SPDX-License-Identifier: Apache-2.0
"""The file `reput/history`: the name of the history of a log, which tells one log from another.

Layout: docs/formats/reput_files.md section 4. The CommitLog writes it; whoever reads the log's files looks at it.
"""

import logging
from pathlib import Path

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.formats.state import log_history
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


def load(fs: Fs, data_dir: Path) -> str:
    """Return the name. It is empty if there is none, or none that can be believed, which is logged."""
    path = data_dir / store_layout.HISTORY
    if not fs.exists(path):
        return ""
    try:
        return log_history.decode_name(fs.read(path))
    except FormatError as error:
        _log.warning("%s can't be read, so that an Indexer of another log is told by its epoch alone: %s", path, error)
        return ""


def save(fs: Fs, data_dir: Path, history_id: str) -> None:
    """Replace the name, durably. Raises OSError."""
    path = data_dir / store_layout.HISTORY
    fs.make_directory(path.parent)
    fs.write_atomic(path, log_history.encode_name(history_id))
