# SPDX-License-Identifier: Apache-2.0
"""Plant: a bug to plant, a small change that a programmer could make, and that a simulation must catch.

A plant whose text is no longer in its file does not apply; then the plant is rewritten, never dropped.
"""

from pathlib import Path
from typing import NamedTuple


class Change(NamedTuple):
    """Replace `old`, which the file has once, by `new`."""

    path: str
    old: str
    new: str

    def texts(self, root: Path) -> tuple[str, str]:
        """Return the file before and after. Raises ValueError if the change does not apply."""
        before = (root / self.path).read_text()
        if before.count(self.old) != 1:
            raise ValueError(f"{self.path} has {before.count(self.old)} times what is to be replaced")
        return before, before.replace(self.old, self.new)


class Plant:
    """Some changes that make a bug, and the part of the harness and the seed by which it was caught before."""

    def __init__(self, name: str, *changes: Change, part: str = "sim", seed: int = 0) -> None:
        self.name = name
        self.changes = changes
        self.part = part
        self.seed = seed

    def apply(self, root: Path) -> None:
        """Change the files. Raises ValueError if a change does not apply."""
        for change in self.changes:
            (root / change.path).write_text(change.texts(root)[1])
