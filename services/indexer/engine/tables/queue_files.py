# SPDX-License-Identifier: Apache-2.0
"""The files of queues on the disk, for callers that do not open them as queues, or that make their names durable.

Callers: any thread; all functions block. Layout: docs/formats/consume_queue.md.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from libs.formats.errors import FormatError
from libs.formats.indexes.consume_queue import UNIT, UNIT_SIZE_BYTES
from libs.formats.names import is_topic, queue_id_of
from libs.formats.state.log_history import QueueEnd
from libs.formats.store_layout import is_file_name, parse_file_name
from libs.log.state.set_apart import SetApart
from libs.machine.failpoints import failpoint
from libs.machine.fs import TEMPORARY_SUFFIX, Fs
from libs.segments.errors import SyncFailed
from services.indexer.engine.tables.queue import ConsumeQueue


def listed(fs: Fs, root: Path, set_apart: SetApart) -> list[tuple[str, str]]:
    """Return topic and queue id of the queues below `root`, without topics that are set apart."""
    names = fs.list(root)
    directories = [name for name in names if is_topic(name) and not set_apart.why(name)]
    return [
        (topic, name)
        for topic in directories
        if fs.is_directory(root / topic)
        for name in fs.list(root / topic)
        if queue_id_of(name) is not None
    ]


def remove_files(fs: Fs, directory: Path) -> None:
    """Remove the files of a queue, oldest first, durably, and its directory unless something else is in it. Blocks."""
    for name in fs.list(directory):
        if is_file_name(name.removesuffix(TEMPORARY_SUFFIX)):
            fs.remove(directory / name)
            fs.sync_directory(directory)  # or a power cut might remove a later file and leave this file
    if not fs.list(directory):
        fs.remove_directory(directory)
        fs.sync_directory(directory.parent)


def sync_names(fs: Fs, root: Path, queues: Sequence[ConsumeQueue]) -> None:
    """Make the names of new queues below `root` durable: each directory is synced once. Blocks. Raises SyncFailed."""
    directories = [queue.directory for queue in queues]
    topics = dict.fromkeys(directory.parent for directory in directories)
    for directory in (*directories, *topics, *([root] if topics else [])):
        failpoint("queue.before_names_sync")
        try:
            fs.sync_directory(directory)
        except OSError as error:
            raise SyncFailed(path=directory, position=0, reason=error.strerror or str(error)) from error
        failpoint("queue.after_names_sync")


def end_on_disk(fs: Fs, directory: Path, *, topic: str, queue_id: int) -> QueueEnd | None:
    """Return the end of a queue as its files have it, in any state of the files. Blocks.

    None if they have no unit.
    """
    for name in reversed(fs.list(directory)):
        try:
            base = parse_file_name(name)
        except FormatError:
            continue
        if fs.size(directory / name) == 0:
            continue
        mapped = fs.open_mapped(directory / name, writable=False)
        data_end = max((end for _, end in mapped.data_ranges(0)), default=0)
        unit_count = min(data_end + UNIT_SIZE_BYTES - 1, mapped.size_bytes) // UNIT_SIZE_BYTES
        units = np.frombuffer(mapped.buffer, UNIT, unit_count)
        found = np.flatnonzero((units["physical_offset"] >= 0) & (units["record_size_bytes"] > 0))
        last_physical_offset = int(units["physical_offset"][found[-1]]) if len(found) else 0
        del units
        mapped.close()
        if len(found):
            return QueueEnd(topic, queue_id, base // UNIT_SIZE_BYTES + int(found[-1]) + 1, last_physical_offset)
    return None
