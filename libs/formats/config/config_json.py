# SPDX-License-Identifier: Apache-2.0
"""The JSON dialect of RocketMQ's config files. Spec: docs/formats/config_files.md.

RocketMQ writes them with fastjson: tab indentation, no space after the colon, and integer keys without quotes
(`{"T@G":{0:5}}`), which no standard parser reads. The reader accepts integer keys in both forms and returns them as
text.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from libs.formats.errors import BadField, BadLength
from libs.formats.limits import CONFIG_FILE_SIZE_BYTES_MAX, INT64_MAX

# A string is matched first, as a whole, so that no part of it is taken for a key. An unfinished string runs to the end.
_STRING_OR_KEY = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|(?P<before>[{,]\s*)(?P<key>-?[0-9]+)(?=\s*:)', re.DOTALL)
_NESTING_MAX = 64
_INTEGER_DIGIT_COUNT_MAX = 20


class DataVersion(Struct, frozen=True):
    """RocketMQ's version stamp of a table: the number of changes, and the time of the last change (ms since 1970)."""

    counter: int = 0
    timestamp_ms: int = 0
    state_version: int = 0

    def to_json(self) -> dict[str, int]:
        """Return the object in the form of 5.x."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp_ms}

    @classmethod
    def from_json(cls, value: object) -> "DataVersion":
        """Return the version of a parsed object, with 0 for missing numbers. Raises BadField."""
        fields = mapping(value, "dataVersion")
        numbers = (integer(fields.get(name, 0), name) for name in ("counter", "timestamp", "stateVersion"))
        return cls(*numbers)


def loads(text: str) -> Any:
    """Return the parsed value, with integer keys as text. Raises BadField with the character position, or BadLength."""
    if len(text) > CONFIG_FILE_SIZE_BYTES_MAX:
        raise BadLength(position=0, reason=f"{len(text)} characters are too many for a config file")
    quoted_at: list[int] = []

    def quote(match: re.Match[str]) -> str:
        if match["key"] is None:
            return match[0]
        quoted_at.append(match.start("key"))
        return f'{match["before"]}"{match["key"]}"'

    standard = _STRING_OR_KEY.sub(quote, text)
    try:
        value = json.loads(standard, parse_int=_parse_int, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        # Each quoted key before the error moved it by two characters; count the keys before it in the original.
        position = error.pos
        for index, key_at in enumerate(quoted_at):
            if key_at + 2 * index < error.pos:
                position = error.pos - 2 * (index + 1)
        raise BadField(position=max(0, min(position, len(text))), reason=error.msg) from None
    except RecursionError:
        raise BadField(position=0, reason="nested too deep") from None
    return value


def _parse_int(text: str) -> int:
    if len(text) > _INTEGER_DIGIT_COUNT_MAX or abs(value := int(text)) > INT64_MAX + 1:
        raise BadField(position=0, reason=f"{text[:_INTEGER_DIGIT_COUNT_MAX]}... does not fit 64 bits")
    return value


def _refuse_constant(text: str) -> None:
    raise BadField(position=0, reason=f"{text} is not a JSON value")


def dumps(value: object) -> str:
    """Return the value in fastjson's pretty format. A mapping keeps its order, and integer keys have no quotes.

    A tuple is an array of numbers in Java, and is written on a single line.
    """
    return _dumps(value, 0)


def entry(key: object, value: object, *, depth: int) -> str:
    """Return a key and its value as text of an object, at this depth below the file's own object."""
    return f"{_key(key)}:{_dumps(value, depth)}"


def block(entries: list[str], *, depth: int) -> str:
    """Return an object of entries that are already text."""
    return _block("{", entries, "}", depth)


def _dumps(value: object, depth: int) -> str:
    assert depth < _NESTING_MAX
    if isinstance(value, Mapping):
        items = [entry(key, item, depth=depth + 1) for key, item in value.items()]
        return _block("{", items, "}", depth)
    if isinstance(value, tuple):
        return "[" + ",".join(map(str, value)) + "]"
    if isinstance(value, list):
        return _block("[", [_dumps(item, depth + 1) for item in value], "]", depth)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _key(key: object) -> str:
    return str(key) if isinstance(key, int) else json.dumps(key, ensure_ascii=False)


def _block(opening: str, items: list[str], closing: str, depth: int) -> str:
    if not items:
        return opening + closing
    inner = "\t" * (depth + 1)
    return f"{opening}\n{inner}" + f",\n{inner}".join(items) + "\n" + "\t" * depth + closing


def mapping(value: object, field: str) -> dict[str, Any]:
    """Return the value if it is an object. Raises BadField."""
    if not isinstance(value, dict):
        raise BadField(position=0, reason=f"{field} is not an object", field=field)
    return value


def integer(value: object, field: str, *, least: int = -(2**63), most: int = INT64_MAX) -> int:
    """Return the value if it is an integer in this range. Raises BadField."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadField(position=0, reason=f"{field} is {str(value)[:40]}", field=field)
    return value


def integer_key(text: str, field: str, *, least: int = 0, most: int = INT64_MAX) -> int:
    """Return an integer key, which `loads` returns as text. Raises BadField."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
        raise BadField(position=0, reason=f"{field} is {text[:40]!r}", field=field)
    return integer(int(text), field, least=least, most=most)


def parse_object(text: str) -> dict[str, Any]:
    """Return the content of a whole file, which must be a single object. Raises FormatError's subclasses."""
    return mapping(loads(text), "the file")
