# SPDX-License-Identifier: Apache-2.0
"""The file `config/topics.json` of a data directory.

The CommitLog writes it. Programs that work on the directory's other files may read it.
Layout: docs/formats/config_files.md section 2.
"""

from pathlib import Path

from libs.formats import store_layout
from libs.formats.config import topics_json
from libs.formats.config.topics_json import TopicsFile
from libs.log.state import config_file
from libs.machine.fs import Fs


def load(fs: Fs, data_dir: Path) -> TopicsFile:
    """Read the file or its copy. Returns no topics without either. Raises ConfigFileDamaged. Blocks."""
    return config_file.read(fs, data_dir / store_layout.TOPICS, topics_json.loads) or TopicsFile()


def save(fs: Fs, data_dir: Path, file: TopicsFile) -> None:
    """Replace the file and its copy, durably. Blocks. Raises OSError."""
    config_file.save(fs, data_dir / store_layout.TOPICS, topics_json.dumps(file).encode())
