# SPDX-License-Identifier: Apache-2.0
"""Answers: JSON below 100 kB. The answer itself names parts that could not be read, and parts that were left off."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from libs.moments import time_text
from services.console.pages.page import Gap, merged

ANSWER_BYTES_MAX = 98_000
"""Bytes of an answer inside a line of the protocol, so that the line is below 100,000."""
TEXT_CHARACTERS_MAX, TEXTS_MAX = 2_000, 100
"""Characters of a text, but for bodies; texts of a list in a row."""
GAPS_MAX, GAP_CHARACTERS_MAX, NOTES_MAX = 20, 500, 20
LAST_MS = 253_402_300_799_999
NARROWER = "ask for less: a smaller limit, a narrower name or time"


class Answer:
    """The result of a tool. `lists` are the parts that may be cut, each with how to ask for the rest."""

    def __init__(self, values: Mapping[str, Any], *, is_found: bool, gaps: Iterable[Gap]) -> None:
        self._values = {name: plain(value) for name, value in values.items()}
        self._gaps = merged(gaps)
        self._is_found = is_found
        self._notes: list[str] = []
        self._advice: dict[str, str] = {}

    def left_off(self, note: str) -> None:
        """Name a part that the answer leaves off, and the way to ask for it."""
        self._notes.append(note)

    def rest_by(self, name: str, advice: str) -> None:
        """Say how to ask for the rest of a list that may have to be cut."""
        self._advice[name] = advice

    def text(self) -> str:
        """Return the answer as JSON, cut to its largest size."""
        values, kept = dict(self._values), dict[str, int]()
        while (size := size_of(written := self._written(values, kept))) > ANSWER_BYTES_MAX:
            lists = {name: size_of(json_of(value)) for name, value in values.items() if isinstance(value, list)}
            name = max(lists, key=lists.__getitem__)
            spare = size - ANSWER_BYTES_MAX
            count = len(values[name])
            kept[name] = max(min(count * (lists[name] - spare) // lists[name], count - 1), 0)
            values[name] = values[name][: kept[name]]
        return written

    def _written(self, values: Mapping[str, Any], kept: Mapping[str, int]) -> str:
        gaps = [
            {"subject": clipped(gap.subject, GAP_CHARACTERS_MAX), "reason": clipped(gap.reason, GAP_CHARACTERS_MAX)}
            for gap in self._gaps[:GAPS_MAX]
        ]
        if len(self._gaps) > GAPS_MAX:
            gaps.append({"subject": f"{len(self._gaps) - GAPS_MAX} more", "reason": "see the others"})
        notes = [clipped(note, GAP_CHARACTERS_MAX) for note in self._notes[:NOTES_MAX]]
        for name, count in kept.items():
            missing = len(self._values[name]) - count
            notes.append(f"{missing} of {missing + count} {name}: {self._advice.get(name, NARROWER)}")
        said = {"could_not_look": tuple(gaps), "left_off": tuple(notes)}
        return json_of({"outcome": self._outcome(), **{name: one for name, one in said.items() if one}, **values})

    def _outcome(self) -> str:
        if self._is_found:
            return "partial" if self._gaps else "found"
        return "could_not_look" if self._gaps else "not_found"


def plain(value: Any) -> Any:
    """Return a value of a page as JSON has it: moments as text, long texts cut, and without empty values."""
    if isinstance(value, Struct):
        return plain({name: getattr(value, name) for name in value.__struct_fields__})
    if isinstance(value, Mapping):
        named = (_moment(str(name), one) for name, one in value.items())
        return {name: plain(one) for name, one in named if one not in ("", (), [], {})}
    if isinstance(value, list | tuple):
        more = len(value) - TEXTS_MAX
        if more > 0 and isinstance(value[0], str):
            return [*map(plain, value[:TEXTS_MAX]), f"… ({more:,} more)"]
        return [plain(one) for one in value]
    return clipped(value, TEXT_CHARACTERS_MAX) if isinstance(value, str) else value


class Whole(str):
    """A text that is not cut: its maker bounds it."""

    __slots__ = ()


def clipped(text: str, count: int) -> str:
    """Return a text with at most so many characters, and how many are missing."""
    if isinstance(text, Whole) or len(text) <= count:
        return text
    return f"{text[:count]}… ({len(text) - count:,} more characters)"


def _moment(name: str, value: Any) -> tuple[str, Any]:
    if not name.endswith("_ms"):
        return name, value
    return name.removesuffix("_ms"), value if value is None else time_text(min(max(value, 0), LAST_MS))


def json_of(value: Any) -> str:
    """Return a value as JSON with invisible characters escaped, as directions of writing."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def size_of(text: str) -> int:
    """Return the bytes of a text as a string inside JSON."""
    return len(json.dumps(text, ensure_ascii=False).encode())


def fitting(text: str, bytes_max: int) -> str:
    """Return the begin of a text that has at most so many bytes in an answer, where it is a string inside two JSONs."""
    while size_of(json_of(text)) > bytes_max:
        text = text[: len(text) * 3 // 4]
    return text
