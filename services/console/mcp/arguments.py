# SPDX-License-Identifier: Apache-2.0
"""The arguments of tools: the type of a tool makes the schema that callers read and the check of their arguments."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from libs.formats.limits import GROUP_SIZE_BYTES_MAX, STORED_TOPIC_SIZE_BYTES_MAX
from libs.moments import NotAMoment, parse_time
from services.console.ask.store import Store
from services.console.pages.find import LAST_MS, zone_of

ROWS_MAX, ROWS_USUAL = 100, 20
KEY_CHARACTERS_MAX = 1_024
TIME_CHARACTERS_MAX = 64
PAGE_MAX = 100_000
BODY_START_MAX = 1 << 26
PHYSICAL_OFFSET_MAX = 2**63 - 1
VALUE_CHARACTERS_MAX = 60
TIMES = (
    "ISO 8601 as 2026-11-26T12:03 (UTC without a zone), milliseconds since the epoch, '-1h', '2 hours ago', 'yesterday'"
)

WORD, MAYBE_WORD = r"^\S+$", r"^\S*$"
TOPIC, TOPIC_PART, GROUP = r"^[%|+a-zA-Z0-9_-]+$", r"^[%|+a-zA-Z0-9_-]*$", r"^[%|a-zA-Z0-9_-]+$"
ALLOWED = {
    WORD: "it must have no spaces",
    MAYBE_WORD: "it must have no spaces",
    TOPIC: "letters, digits and %|+_- are allowed",
    TOPIC_PART: "letters, digits and %|+_- are allowed",
    GROUP: "letters, digits and %|_- are allowed",
}

A = TypeVar("A", bound="Arguments")


class Refused(ValueError):
    """An argument can't be used. The text names the argument, its value and the allowed values."""


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of the arguments of a tool. An argument with a default may be left out or be null."""


Key = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=KEY_CHARACTERS_MAX,
        pattern=WORD,
        description="A key as its producer set it (an order number, say), or the unique id of a message. Exact.",
    ),
]
MessageId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        pattern=WORD,
        description="The `id` of a row of another answer (offset message id), or the unique id of a message.",
    ),
]
TopicName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=STORED_TOPIC_SIZE_BYTES_MAX,
        pattern=TOPIC,
        description="The exact name of a topic. %DLQ%GROUP has the dead letters of a group, %RETRY%GROUP its retries.",
    ),
]
AnyTopic = Annotated[
    str,
    Meta(
        max_length=STORED_TOPIC_SIZE_BYTES_MAX,
        pattern=TOPIC_PART,
        description="Look in this topic only; empty for all topics.",
    ),
]
AfterTopic = Annotated[
    str,
    Meta(
        max_length=STORED_TOPIC_SIZE_BYTES_MAX,
        pattern=TOPIC_PART,
        description="Search only topics behind this one by name: where an answer about many topics ended.",
    ),
]
GroupName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=GROUP_SIZE_BYTES_MAX,
        pattern=GROUP,
        description="The exact name of a consumer group.",
    ),
]
NamePart = Annotated[
    str,
    Meta(
        max_length=STORED_TOPIC_SIZE_BYTES_MAX,
        pattern=TOPIC_PART,
        description="List only names that contain this text, in lower or upper case; empty for all.",
    ),
]
Rows = Annotated[int, Meta(ge=1, le=ROWS_MAX, description="Rows of the answer, at most.")]
PageNumber = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Part of the list, from 1; answers have `page_count`.")]
Start = Annotated[
    str,
    Meta(max_length=TIME_CHARACTERS_MAX, description=f"Messages stored from this time on: {TIMES}. Empty: no bound."),
]
End = Annotated[
    str,
    Meta(max_length=TIME_CHARACTERS_MAX, description=f"Messages stored before this time: {TIMES}. Empty: no bound."),
]
Form = Annotated[
    Literal["best", "text", "json", "hex"],
    Meta(description="Form of the body. best: laid out JSON, else text, else a hexadecimal dump."),
]
BodyStart = Annotated[
    int,
    Meta(
        ge=0,
        le=BODY_START_MAX,
        description="Where in the body to begin, to read on where an answer ended: characters, for hex bytes.",
    ),
]
PhysicalOffset = Annotated[
    int,
    Meta(
        ge=-1,
        le=PHYSICAL_OFFSET_MAX,
        description="Only the segment with this physical offset, which the answer of get_message has; -1 for all.",
    ),
]
Behind = Annotated[
    int,
    Meta(
        ge=-1,
        le=PHYSICAL_OFFSET_MAX,
        description="Only messages behind this place in the log, to go on where an answer ended; -1 for all.",
    ),
]
TokenOfKey = Annotated[
    str,
    Meta(
        max_length=2_000,
        pattern=MAYBE_WORD,
        description="Where the messages of `topic` go on: next_token, start and end as `left_off` names them.",
    ),
]
Token = Annotated[
    str, Meta(max_length=2_000, pattern=MAYBE_WORD, description="Where the list goes on: `next_token` of an answer.")
]


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the JSON schema of arguments."""
    _, parts = msgspec.json.schema_components([arguments])
    schema = dict(parts[arguments.__name__])
    del schema["title"]
    schema.pop("description", None)
    return schema


def checked(arguments: type[A], given: Mapping[str, Any]) -> A:
    """Return the arguments of a call. Raises Refused."""
    known = arguments.__struct_fields__
    for name, value in given.items():
        if name not in known:
            allowed = f"allowed are {', '.join(known)}" if known else "this tool has no arguments"
            raise Refused(f"{shown(name)} is no argument: {allowed}")
        if isinstance(value, str) and (at := _unprintable(value)) is not None:
            raise Refused(
                f"{name} is {shown(value)}: the character U+{ord(value[at]):04X} at position {at} is not printable"
            )
    try:
        return msgspec.convert({name: value for name, value in given.items() if value is not None}, arguments)
    except msgspec.ValidationError as error:
        raise Refused(_refusal(str(error), arguments, given)) from None


def _unprintable(text: str) -> int | None:
    return next((at for at, character in enumerate(text) if not character.isprintable()), None)


def _refusal(text: str, arguments: type[Arguments], given: Mapping[str, Any]) -> str:
    """Return an error of msgspec with the name and the value of the argument, and with the allowed values."""
    words, _, path = text.partition(" - at ")
    place = re.match(r"`\$\.(\w+)", path)
    if place is None:  # an object whose names are known has no other error
        return f"{words.rpartition(' ')[2].strip('`')} is missing"
    allowed = schema_of(arguments)["properties"][place[1]]
    if words.startswith("Invalid enum"):
        words = f"{', '.join(allowed['enum'])} are allowed"
    elif "matching regex" in words:
        words = ALLOWED[allowed["pattern"]]
    return f"{place[1]} is {shown(given[place[1]])}: {words[:1].lower()}{words[1:].replace('`', '')}"


def shown(value: object) -> str:
    """Return the form of a value in an error, cut."""
    text = repr(value if not isinstance(value, str) else value[: VALUE_CHARACTERS_MAX + 1])
    length = f" ({len(value):,} characters)" if isinstance(value, str) and len(value) > VALUE_CHARACTERS_MAX else ""
    return (text if len(text) <= 2 * VALUE_CHARACTERS_MAX else f"{text[: 2 * VALUE_CHARACTERS_MAX]}…") + length


def moment_ms(name: str, text: str, store: Store) -> int | None:
    """Return the moment of an argument, None for no text. Raises Refused."""
    if not text.strip():
        return None
    try:
        moment = parse_time(text, now=store.now, zone=zone_of("UTC"))
    except NotAMoment as error:
        raise Refused(f"{name} is {shown(text)}: {error}") from None
    if not 0 <= moment <= LAST_MS:
        raise Refused(f"{name} is {shown(text)}: times of the years 1970 to 9999 are allowed")
    return moment


def span_ms(start: str, end: str, store: Store) -> tuple[int | None, int | None]:
    """Return the moments of `start` and `end`, in order. Raises Refused."""
    first, last = moment_ms("start", start, store), moment_ms("end", end, store)
    if first is not None and last is not None and first >= last:
        raise Refused(f"end is {shown(end)}: it must be later than start, which is {shown(start)}")
    return first, last
