# SPDX-License-Identifier: Apache-2.0
"""The files of queues on the disk, for callers that do not open them as queues, or that make their names durable.

Callers: any thread; all functions block. Layout: docs/formats/consume_queue.md.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from libs.formats.errors import FormatError
from libs.formats.indexes.consume_queue import UNIT, UNIT_SIZE_BYTES
from libs.formats.names import is_topic, queue_id_of
from libs.formats.state.log_history import QueueEnd
from libs.formats.store_layout import is_file_name, parse_file_name
from libs.log.state.set_apart import SetApart
from libs.machine.fs import TEMPORARY_SUFFIX, Fs
from services.indexer.engine.tables.together import sync_directories


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


def remove_files(fs: Fs, directory: Path, *, is_durable: bool = True) -> None:
    """Remove the files of a queue, oldest first, and its directory unless something else is in it. Blocks.

    The removal is durable on return, or after a sync of the directory above.
    """
    names = [name for name in fs.list(directory) if is_file_name(name.removesuffix(TEMPORARY_SUFFIX))]
    for number, name in enumerate(names):
        fs.remove(directory / name)
        if is_durable or number < len(names) - 1:
            fs.sync_directory(directory)  # or a power cut might remove a later file and leave this file
    if not fs.list(directory):
        fs.remove_directory(directory)
        if is_durable:
            fs.sync_directory(directory.parent)
    elif not is_durable:
        fs.sync_directory(directory)


def remove_all(fs: Fs, root: Path, set_apart: SetApart, before_removal: Callable[[Iterator[QueueEnd]], None]) -> None:
    """Remove the files of all queues below `root`, durably. `before_removal` is called with their ends. Blocks."""
    found = listed(fs, root, set_apart)
    ends = (end_on_disk(fs, root / topic / name, topic=topic, queue_id=int(name)) for topic, name in found)
    before_removal(end for end in ends if end is not None)
    for topic, name in found:
        remove_files(fs, root / topic / name, is_durable=False)
    sync_directories(fs, root, list(dict.fromkeys(root / topic for topic, _ in found)))


def remove_queues(fs: Fs, root: Path, names: Sequence[tuple[str, int]]) -> None:
    """Remove the files of these queues below `root`, and directories that are empty then, durably. Blocks.

    The oldest file is removed first, so that after a crash the rest of a queue has the end of the queue.
    """
    for topic, queue_id in names:
        remove_files(fs, root / topic / str(queue_id))
    for topic in dict.fromkeys(topic for topic, _ in names):
        if not fs.list(root / topic):
            fs.remove_directory(root / topic)
            fs.sync_directory(root)


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
