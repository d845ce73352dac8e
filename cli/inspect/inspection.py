# SPDX-License-Identifier: Apache-2.0
"""What an inspection of a store file yields: items, findings, and a summary at the end.

An Inspection is read once, as a stream; nothing is kept but counts and the summary, so a file of any size fits.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Data: TypeAlias = "mmap.mmap | bytes"
"""The file's bytes, mapped read-only (an empty file cannot be mapped)."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the bytes looked at and the bytes of the file."""


class UnknownKind(Exception):
    """Nothing tells what kind of store file this is, or the kind that was asked for does not exist."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record, unit, entry, header or value. `number` counts from 0 in the file (index entries: from 1)."""

    kind: str
    number: int
    position: int
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: where it starts in the file, in which item and field, and why it is wrong."""

    position: int
    item: str
    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Window:
    """Which items to show: `limit` of them from number `start` on, or all from there. Checks cover the whole file."""

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


@dataclass(slots=True)
class Inspection:
    """A running inspection. Iterate once; `summary`, `item_count` and `finding_count` are complete afterwards.

    `steps` is the source of the iteration; callers iterate over the inspection itself.
    """

    path: Path
    kind: str
    size_bytes: int
    summary: dict[str, object] = field(default_factory=dict)
    item_count: int = 0
    finding_count: int = 0
    steps: Steps = field(default_factory=lambda: iter(()))

    def __iter__(self) -> Steps:
        for step in self.steps:
            if isinstance(step, Finding):
                self.finding_count += 1
            else:
                self.item_count += 1
            yield step

    def check(self) -> list[Finding]:
        """Run to the end and return the findings, without the items."""
        return [step for step in self if isinstance(step, Finding)]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found, after the whole iteration."""
        return self.finding_count == 0
