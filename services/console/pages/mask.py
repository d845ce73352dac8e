# SPDX-License-Identifier: Apache-2.0
"""Mask: the fields of messages that the console hides. They can't be searched for either."""

import json
import re
from typing import Any

from msgspec import Struct

from libs.requests.errors import BadArgument

SHOWN = "•••"
"""In place of a masked value."""
NUMBER_MARK, NUMBER_MARK_ESCAPED = "\ue000", "\\ue000"
"""A character for private use, which no JSON needs. JSON that has it is shown as text."""
MARKED_NUMBER = re.compile(rf'"{NUMBER_MARK}([^"]*)"')
UNIQUE_ID = re.compile(r"[0-9A-Fa-f]{32}")
KEYS, TAGS = "KEYS", "TAGS"


class Mask(Struct, frozen=True):
    """Bodies are shown, hidden, or shown without the values of some fields."""

    hides_bodies: bool = False
    names: frozenset[str] = frozenset()
    """Fields of JSON bodies, and properties, in lower case."""

    def covers(self, name: str) -> bool:
        """Whether the values of this field or property are masked."""
        return name.casefold() in self.names

    def value(self, name: str, value: str) -> str:
        """Return the value of a property as it is shown."""
        return SHOWN if self.covers(name) else value

    def json(self, value: Any) -> Any:
        """Return a JSON value without masked values. A text that may be JSON again is masked as a whole."""
        if not self.names:
            return value
        if isinstance(value, dict):
            return {name: SHOWN if self.covers(name) else self.json(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self.json(one) for one in value]
        return SHOWN if isinstance(value, str) and value.lstrip().startswith(("{", "[")) else value

    def refusal(self, *, where: str = "", tags: str = "", key: str = "") -> str:
        """Return why a condition, tags or a key can't be used, "" if they can: answers would tell masked values."""
        if not self.names:
            return ""
        for is_used, name in ((tags and tags != "*", TAGS), (key and not UNIQUE_ID.fullmatch(key), KEYS)):
            if is_used and self.covers(name):
                return _refusal(name)
        if not where.strip():
            return ""
        from libs.filters.property_filter import parse_where  # the grammar takes some MB, and few stores are masked

        try:
            named = [name.decode() for name in parse_where(where, field="where").names]
        except BadArgument as error:
            return str(error)
        return next((_refusal(name) for name in named if self.covers(name)), "")


def mask_of(masked_fields: str, *, hides_bodies: bool) -> Mask:
    """Return the mask of the settings. Names have commas between."""
    names = {name.strip().casefold() for name in masked_fields.split(",")} - {""}
    return Mask(hides_bodies, frozenset(names))


def laid_out(text: str, mask: Mask, *, indent: int | None = 2) -> str:
    """Return a JSON object or array with a line for each value, "" for another text. Numbers stay as they are written.

    A number becomes a string behind a mark while it is laid out: a float would round it.
    """
    if not text.lstrip().startswith(("{", "[")) or NUMBER_MARK in text or NUMBER_MARK_ESCAPED in text.lower():
        return ""
    try:
        value = json.loads(text, parse_float=_marked, parse_int=_marked, parse_constant=_marked)
        written = json.dumps(mask.json(value), indent=indent, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""
    return MARKED_NUMBER.sub(r"\1", written)


def _marked(number: str) -> str:
    return NUMBER_MARK + number


def _refusal(name: str) -> str:
    return f"the settings mask {name}: it can't be searched for"
