# SPDX-License-Identifier: Apache-2.0
"""Page: the parts of each page. Gap: a question that the store did not answer."""

import shlex
from collections.abc import Iterable
from contextvars import ContextVar
from typing import ClassVar

from msgspec import Struct

SHARD_OPTIONS: ContextVar[tuple[str, ...]] = ContextVar("SHARD_OPTIONS", default=())
"""The options with which a command reaches the shard of the page that is being made."""
FOUND, NOT_FOUND, COULD_NOT_LOOK = 200, 404, 503


class Gap(Struct, frozen=True):
    """A question that was not answered, and the reason. The page lacks the answer, and says so."""

    subject: str
    """The object that the question was about."""
    reason: str


class Page(Struct, frozen=True, kw_only=True):
    """The base of all pages."""

    template: ClassVar[str]

    commands: tuple[str, ...]
    """Commands that give the same on a command line."""
    shard: str = ""
    """The shard that the page shows; empty for a store without shards, and on the page of all shards."""
    gaps: tuple[Gap, ...] = ()
    is_found: bool = True
    """Whether the object that the page is about was found."""

    @property
    def status(self) -> int:
        """The status of HTTP. Without the object: 404 if the store has none, 503 if the store could not be asked."""
        if self.is_found:
            return FOUND
        return COULD_NOT_LOOK if self.gaps else NOT_FOUND


def command(*words: str) -> str:
    """Return a command of `reput` as a shell needs it, for the shard of the page."""
    options = () if words[:1] == ("shards",) else SHARD_OPTIONS.get()
    return shlex.join(("reput", *options, *words))


def merged(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return gaps merged by reason: a service that is away is told once."""
    by_reason: dict[str, list[str]] = {}
    for gap in gaps:
        by_reason.setdefault(gap.reason, []).append(gap.subject)
    return tuple(Gap(_listed(list(dict.fromkeys(names))), reason) for reason, names in by_reason.items())


def _listed(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
