# SPDX-License-Identifier: Apache-2.0
"""QueueFiles: the files of a consume queue, read as a single run of bytes, and the queues of a directory.

Listing them reports wrong names and sizes and missing files. Missing bytes are read as zeros.
Layout: docs/formats/consume_queue.md section 2.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from cli.verify.codes import Area
from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.log.files import base_of, common_size
from libs.formats import store_layout
from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.limits import INT64_MAX
from libs.formats.names import is_topic, queue_id_of
from libs.log.state.set_apart import SetApart


class QueueFiles:
    """Files of a queue, by the byte position of their first unit. Call `settle` after all sizes are known."""

    def __init__(self, files: Files, directory: Path, name: str) -> None:
        self.name = name
        """The queue's directory as findings name it."""
        self.bases: list[tuple[int, int]] = []
        """First byte and size in bytes of every file, ascending."""
        self.end_unit = 0
        """Number of units up to the last unit that is not all zero."""
        self._files = files
        self._directory = directory
        self._holes: list[tuple[int, int]] = []

    @property
    def is_there(self) -> bool:
        """Whether the queue has a file."""
        return bool(self.bases)

    @property
    def first_unit(self) -> int:
        """The number of the first unit that has a place in a file."""
        return -(-self.bases[0][0] // UNIT_SIZE_BYTES) if self.bases else 0

    @property
    def size_bytes(self) -> int:
        """Number of bytes of all files."""
        return sum(size for _, size in self.bases)

    def list(self, report: Report) -> None:
        """Find the files. Raises OSError."""
        for path in sorted(self._directory.iterdir()):
            base = base_of(path, f"{self.name}/{path.name}", "QUEUE_FILE_NAME", report)
            if base is not None:
                self.bases.append((base, path.stat().st_size))

    def settle(self, file_size_bytes: int, report: Report) -> None:
        """Check sizes and names against the size of the store's queue files, and find the end."""
        for base, size in self.bases:
            if size != file_size_bytes or size % UNIT_SIZE_BYTES or not size:
                message = f"{size} bytes, but queue files of this store have {file_size_bytes}, a multiple of 20"
                report.add("QUEUE_FILE_SIZE", self.file_at(base), message)
                self._holes.append((base + size, base + max(size, file_size_bytes)))
            if file_size_bytes and base % file_size_bytes:
                message = f"{base} is not a multiple of the file size {file_size_bytes}"
                report.add("QUEUE_FILE_NAME", self.file_at(base), message)
        for (left, _), (right, _) in pairwise(self.bases):
            expected = left + file_size_bytes
            if right > expected:
                message = f"the queue has no units from number {expected // UNIT_SIZE_BYTES} to its next file"
                report.add("QUEUE_FILE_MISSING", self.file_at(expected), message)
                self._holes.append((expected, right))
        for base, size in reversed(self.bases):
            try:
                end = self._files.content_end(self._path(base), 0, size)
            except OSError as error:
                report.add("FILE_UNREADABLE", self.file_at(base), error.strerror or str(error))
                end = size
            if end:
                self.end_unit = -(-(base + end) // UNIT_SIZE_BYTES)
                break

    def is_missing(self, unit: int) -> bool:
        """Return whether the unit's place is in a file that is missing or too short, which was reported."""
        position = unit * UNIT_SIZE_BYTES
        return any(start <= position < end for start, end in self._holes)

    def file_of(self, unit: int) -> tuple[str, int]:
        """Return the file, as findings name it, and the position of a unit in it."""
        position = unit * UNIT_SIZE_BYTES
        index = bisect_right(self.bases, (position, INT64_MAX)) - 1
        base = self.bases[index][0] if index >= 0 else 0
        return self.file_at(base), position - base

    def file_at(self, base: int) -> str:
        """Return the file of this name, as findings name it."""
        return f"{self.name}/{store_layout.file_name(base)}"

    def read(self, unit: int, count: int) -> bytes:
        """Return the bytes of these units, zeros for missing units. Raises OSError."""
        if unit >= self.end_unit:
            return bytes(count * UNIT_SIZE_BYTES)
        start, end = unit * UNIT_SIZE_BYTES, (unit + count) * UNIT_SIZE_BYTES
        first = max(bisect_right(self.bases, (start, INT64_MAX)) - 1, 0)
        parts: list[bytes] = []
        at = start
        for base, size in self.bases[first:]:
            if base >= end:
                break
            part_start, part_end = max(at, base), min(end, base + size)
            if part_start < part_end:
                parts.append(bytes(part_start - at))
                parts.append(self._files.read(self._path(base), part_start - base, part_end - part_start))
                at = part_start + len(parts[-1])
        parts.append(bytes(end - at))
        return b"".join(parts)

    def _path(self, base: int) -> Path:
        return self._directory / store_layout.file_name(base)


class QueueState(Struct):
    """A queue during the walk. Numbers count units."""

    topic: str
    queue_id: int
    files: QueueFiles
    is_checked: bool = True
    first: int | None = None
    """Queue offset of the first record in the log; None before the first record."""
    next: int = 0
    last_physical_offset: int = 0
    missing_count: int = 0
    first_missing: int = 0
    begin_physical_offset: int = 0
    """Physical offset at which the generation of the files begins; records before it have no unit any more."""
    is_behind: bool = False
    """Whether the files are still of an older generation than the records."""


Queues: TypeAlias = dict[tuple[str, int], QueueFiles]
"""Queues by topic and queue id."""


def list_queues(files: Files, data_dir: Path, set_apart: SetApart, report: Report) -> Queues | None:
    """Return all queues of a data directory that are Reput's, with their files settled.

    None if there is no such directory, or if queues are not to be checked.
    """
    root = data_dir / store_layout.QUEUES
    if Area.QUEUES not in report.areas:
        return None
    if not root.is_dir():
        report.add("NO_QUEUES", store_layout.QUEUES, "there are no queues")
        return None
    queues: Queues = {}
    for topic in sorted(root.iterdir()):
        name = str(topic.relative_to(data_dir))
        if why := set_apart.why(topic.name):
            report.add("QUEUE_NOT_CHECKED", name, f"set apart for RocketMQ: {why}")
            continue
        if not is_topic(topic.name) or not topic.is_dir():
            report.add("QUEUE_DIRECTORY_NAME", name, "it is no directory whose name could be a topic")
            continue
        for directory in sorted(topic.iterdir()):
            name = str(directory.relative_to(data_dir))
            queue_id = queue_id_of(directory.name)
            if queue_id is None or not directory.is_dir():
                report.add("QUEUE_DIRECTORY_NAME", name, "it is no directory whose name is a queue id")
                continue
            queue = queues[topic.name, queue_id] = QueueFiles(files, directory, name)
            queue.list(report)
    sizes = [pair for queue in queues.values() for pair in queue.bases]
    size = common_size(sizes) if sizes else 0
    for queue in queues.values():
        queue.settle(size, report)
    return queues
