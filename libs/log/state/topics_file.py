# SPDX-License-Identifier: Apache-2.0
"""The files with the topics of a data directory: `config/topics.json`, its copy, and `reput/topic_journal`.

The journal has the changes that topics.json lacks. Invariants: the journal is removed after both the file and the copy
have its changes; a change that is in neither was never answered.
The CommitLog writes the files. Programs that work on the directory's other files may read them, also meanwhile.
Layouts: docs/formats/config_files.md section 2, docs/formats/reput_files.md section 8.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from libs.formats import store_layout
from libs.formats.config import topics_json
from libs.formats.config.topics_json import TopicsFile
from libs.formats.errors import FormatError
from libs.formats.state import topic_journal
from libs.formats.state.topic_journal import TopicChange, TopicJournal
from libs.log.errors import ConfigFileDamaged
from libs.log.state import config_file
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


class StoredTopics(NamedTuple):
    """The topics of a data directory."""

    file: TopicsFile
    """All topics, with the changes of the journal."""
    changes: list[TopicChange]
    """The changes that topics.json lacks."""
    is_exact: bool
    """Whether the journal has these changes and nothing else."""


def read(fs: Fs, data_dir: Path) -> StoredTopics:
    """Read the file or its copy, and the journal. Without all three there are no topics. Blocks.

    Raises ConfigFileDamaged and NewerVersion.
    """
    journal, is_whole = _journal(fs, data_dir)  # first: the file has all changes that leave the journal meanwhile
    file = config_file.read(fs, data_dir / store_layout.TOPICS, topics_json.loads) or TopicsFile()
    changes = topic_journal.missing(file, journal.changes)
    is_exact = is_whole and changes == journal.changes
    return StoredTopics(topic_journal.applied(file, changes), changes, is_exact)


def load(fs: Fs, data_dir: Path) -> TopicsFile:
    """Return the topics of a data directory. Blocks. Raises the errors of `read`."""
    return read(fs, data_dir).file


def save(fs: Fs, data_dir: Path, file: TopicsFile) -> None:
    """Replace the file and its copy, durably. The journal stays. Blocks. Raises OSError."""
    config_file.save(fs, data_dir / store_layout.TOPICS, topics_json.dumps(file).encode())


def append_change(fs: Fs, data_dir: Path, change: bytes) -> None:
    """Append an encoded change to the journal, durably. After an error a part may be there. Blocks. Raises OSError."""
    fs.append(data_dir / store_layout.TOPIC_JOURNAL, change)


def replace_journal(fs: Fs, data_dir: Path, changes: bytes) -> None:
    """Replace the journal by these encoded changes, durably, or remove it without any. Blocks. Raises OSError."""
    path = data_dir / store_layout.TOPIC_JOURNAL
    if changes:
        fs.write_atomic(path, changes)
    elif fs.exists(path):
        failpoint("topics.before_journal_removal")
        fs.remove(path)
        fs.sync_directory(path.parent)
        failpoint("topics.after_journal_removal")


def _journal(fs: Fs, data_dir: Path) -> tuple[TopicJournal, bool]:
    """Return the journal, and whether it has nothing else than whole changes."""
    path = data_dir / store_layout.TOPIC_JOURNAL
    try:
        data = fs.read(path)
    except FileNotFoundError:
        return TopicJournal([], 0), True
    try:
        journal = topic_journal.decode(data)
    except FormatError as error:
        raise ConfigFileDamaged(path=path, reason=str(error)) from error
    if journal.end < len(data):
        what = "%s ends with %d bytes of a change that was not finished, and that no caller was told of"
        _log.warning(what, path, len(data) - journal.end)
    return journal, journal.end == len(data)
