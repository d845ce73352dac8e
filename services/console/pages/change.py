# SPDX-License-Identifier: Apache-2.0
"""Change: the effect of a change before its confirmation (Preview), and its outcome (Receipt)."""

import hashlib
from collections.abc import Iterable
from typing import ClassVar, Literal
from urllib.parse import quote

import msgspec
from msgspec import Struct

from services.console.pages.page import Page

Outcome = Literal["done", "not_done", "unknown"]
STATUSES: dict[Outcome, int] = {"done": 200, "not_done": 409, "unknown": 503}
Cell = str | int | None


class Input(Struct, frozen=True):
    """A field in which a reader chooses an argument of the change."""

    name: str
    label: str
    value: str
    options: tuple[tuple[str, str], ...] = ()
    """Values to choose from, with their names; empty for a field of text."""
    hint: str = ""


class Preview(Page, frozen=True, kw_only=True):
    """The effect that a change would have. Without a summary there is nothing to confirm."""

    template: ClassVar = "change.html"

    title: str
    name: str = ""
    """The group that is changed; empty for a change of no group."""
    back: str
    """The address of the page about the object."""
    inputs: tuple[Input, ...] = ()
    refusal: str = ""
    """Why the change is not possible."""
    summary: str = ""
    warnings: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    verb: str = ""
    """The text of the button."""
    carried: tuple[tuple[str, str], ...] = ()
    """The exact arguments of the change, which the confirmation carries."""
    state: str = ""
    """A digest of the state behind the preview: the change is refused if the store has moved on."""
    stale: str = ""
    """How the store has moved on if the digest differs."""


class Receipt(Page, frozen=True, kw_only=True):
    """The outcome of a change."""

    template: ClassVar = "receipt.html"

    title: str
    outcome: Outcome
    text: str
    back: str
    """Where a reader looks for the present state."""
    again: str = ""
    """The address of a new preview."""

    @property
    def status(self) -> int:
        """The status of HTTP."""
        return STATUSES[self.outcome]


def address(*parts: str) -> str:
    """Return the address of a page from the parts of its path."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def digest(values: Iterable[object]) -> str:
    """Return a short digest of values of JSON."""
    return hashlib.sha256(msgspec.json.encode(list(values))).hexdigest()[:32]
