# SPDX-License-Identifier: Apache-2.0
"""The file `reput/log_directories`: the directories of a log's segments, if not `commitlog/` in its data directory.

The CommitLog writes it at a start, and when a read-only directory has lost its last segment. Readers of the log's files
without a CommitLog use it.
Layout: docs/formats/reput_files.md section 5. RocketMQ has only its settings storePathCommitLog and
readOnlyCommitLogStorePaths.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from libs.formats import store_layout
from libs.formats.state.log_directories import LogDirectories
from libs.formats.store_layout import is_file_name
from libs.machine.fs import Fs
from libs.segments.errors import SegmentTwice


def load(fs: Fs, data_dir: Path) -> list[Path]:
    """Return the directories that had segments, or were to get segments, when the log last ran, else `commitlog/`.

    Raises FormatError for a damaged file, and OSError.
    """
    path = data_dir / store_layout.LOG_DIRECTORIES
    if not fs.exists(path):
        return [data_dir / store_layout.COMMIT_LOG]
    return [data_dir / directory for directory in LogDirectories.decode(fs.read(path)).directories]


def save(fs: Fs, data_dir: Path, directories: Iterable[Path]) -> None:
    """Replace the file, durably, if its content changes. The default alone needs no file. Raises OSError."""
    names = [str(_relative(directory, data_dir)) for directory in directories]
    path = data_dir / store_layout.LOG_DIRECTORIES
    if names == [store_layout.COMMIT_LOG] and not fs.exists(path):
        return
    data = LogDirectories(names).encode()
    if not fs.exists(path) or fs.read(path) != data:
        fs.make_directory(path.parent)
        fs.write_atomic(path, data)


def real(path: Path) -> Path:
    """Return the unique name of a directory, with all links and dots resolved."""
    return Path(os.path.realpath(path))


def segment_paths(fs: Fs, directories: Sequence[Path]) -> list[Path]:
    """Return the segments in these directories, oldest first. Raises SegmentTwice and FileNotFoundError."""
    found: dict[str, Path] = {}
    for directory in directories:
        for name in filter(is_file_name, fs.list(directory)):
            if name in found:
                raise SegmentTwice(path=directory / name, other=found[name])
            found[name] = directory / name
    return [found[name] for name in sorted(found)]


def _relative(directory: Path, data_dir: Path) -> Path:
    """Return the path, relative to the data directory if it is in it, so that the store may be moved."""
    directory, data_dir = real(directory), real(data_dir)
    return directory.relative_to(data_dir) if directory.is_relative_to(data_dir) else directory
