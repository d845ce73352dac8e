# SPDX-License-Identifier: Apache-2.0
"""The results of an inspection of a store file: items, findings, and a summary at the end.

An Inspection is read once, as a stream; only counts and the summary are kept, so a file of any size fits.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from libs.formats import store_layout

Data: TypeAlias = "mmap.mmap | bytes"
"""The file's bytes, mapped read-only (an empty file cannot be mapped)."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes of the file that were checked."""


class UnknownKind(Exception):
    """The kind of a store file is not known, or the requested kind does not exist."""


class Item(Struct, frozen=True):
    """A record, unit, entry, header or value. `number` counts from 0 in the file (index entries: from 1)."""

    kind: str
    number: int
    position: int
    fields: dict[str, object]


class Finding(Struct, frozen=True):
    """A fault: its start in the file, its item and field, and the reason."""

    position: int
    item: str
    field: str
    message: str


class Window(Struct, frozen=True):
    """The items to show: `limit` items from number `start` on, or all from there. Checks cover the whole file."""

    start: int = 0
    limit: int | None = None

    def shows(self, number: int) -> bool:
        """Return whether the item of this number is shown."""
        return number >= self.start and (self.limit is None or number < self.start + self.limit)

    def clip(self, count: int) -> range:
        """Return the shown numbers among the first `count`."""
        end = count if self.limit is None else min(count, self.start + self.limit)
        return range(min(self.start, end), end)


Steps: TypeAlias = Iterator["Item | Finding"]


class Inspection(Struct):
    """A running inspection. Iterate once. `summary` and `finding_count` are complete afterwards.

    `inspect` is the inspection of this kind of file. `slot_count` is that of an index file, if it was given.
    """

    path: Path
    kind: str
    size_bytes: int
    inspect: Callable[[Data, Inspection], Steps]
    window: Window
    progress: Progress
    slot_count: int = 0
    summary: dict[str, object] = field(default_factory=dict)
    finding_count: int = 0

    @property
    def base(self) -> int | None:
        """The number in the file's name, None for another name."""
        name = self.path.name
        return store_layout.parse_file_name(name) if store_layout.is_file_name(name) else None

    def __iter__(self) -> Steps:
        with mapped(self.path) as data:
            for step in self.inspect(data, self):
                self.finding_count += isinstance(step, Finding)
                yield step
            self.progress(self.size_bytes)

    @property
    def is_sound(self) -> bool:
        """Whether there is no finding, after the whole iteration."""
        return self.finding_count == 0


@contextmanager
def mapped(path: Path) -> Iterator[Data]:
    """Map a file for as long as the block runs."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
