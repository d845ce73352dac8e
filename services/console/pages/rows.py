# SPDX-License-Identifier: Apache-2.0
"""MessageRow: a message in a list, and where the message stands: a topic of users, dead letters, a retry."""

import itertools
from typing import Literal

from msgspec import Struct
from reput_client import Message

from libs.formats.state.system_topics import CHECKED_TOPIC
from services.console.pages.mask import KEYS, TAGS, Mask, laid_out

PREVIEW_CHARACTERS_MAX = 160
PREVIEW_BYTES_MAX = 4 * PREVIEW_CHARACTERS_MAX
MASKED_BYTES_MAX = 4_096
NAMES_CHARACTERS_MAX = 1_000
"""Characters of a tag in a row, and of all its keys: a search may keep many rows, and a message 32 kB of keys."""
COMPRESSED_FLAG = 1
DEAD_LETTERS, RETRIES = "%DLQ%", "%RETRY%"
WaitsAs = Literal["", "delayed", "transaction"]


class MessageRow(Struct, frozen=True):
    """A message in a list."""

    id: str
    """The offset message id, by which its page is found."""
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    """The place of the message in the log, in bytes: messages of a millisecond are in its order."""
    store_time_ms: int
    tag: str
    """The begin of a long text."""
    keys: tuple[str, ...]
    """The first keys, if they are many; the property KEYS has all."""
    key_count: int
    unique_id: str
    body_size_bytes: int
    """Bytes of the body as it is stored."""
    preview: str
    """The begin of the body as text, empty if it is compressed, no text, or hidden."""
    place: str
    """The kind of a topic that is not of users: `dead letter of GROUP`, `retry of GROUP`, `given-up
    transaction`."""
    waits_as: WaitsAs = ""
    """The kind of a message that waits outside of its topic. Queue and offset are then in the store's own topic."""
    due_ms: int | None = None
    """When a delayed message comes into its topic."""
    shard: str = ""
    """Its shard, in a list over several shards."""


def row_of(message: Message, mask: Mask) -> MessageRow:
    """Return a message as a row."""
    keys = () if mask.covers(KEYS) else message.keys
    return MessageRow(
        id=message.offset_message_id,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        store_time_ms=message.store_time_ms,
        tag="" if mask.covers(TAGS) else (message.tag or "")[:NAMES_CHARACTERS_MAX],
        keys=_first(keys),
        key_count=len(keys),
        unique_id=message.unique_id or "",
        body_size_bytes=len(message.raw_body),
        preview="" if message.sys_flag & COMPRESSED_FLAG else preview_of(message.raw_body, mask),
        place=place_of(message.topic),
    )


def _first(keys: tuple[str, ...]) -> tuple[str, ...]:
    ends = itertools.accumulate(map(len, keys))
    return tuple(key for key, end in zip(keys, ends, strict=True) if end <= NAMES_CHARACTERS_MAX)


def preview_of(body: bytes, mask: Mask) -> str:
    """Return the begin of a body on a single line, empty if it is not UTF-8. A character that is cut is left out.

    With masked fields only small JSON has a preview: of the begin of a body nothing is known.
    """
    if mask.hides_bodies or (mask.names and len(body) > MASKED_BYTES_MAX):
        return ""
    if mask.names:
        return laid_out(body.decode(errors="replace"), mask, indent=None)[:PREVIEW_CHARACTERS_MAX]
    begin = body[:PREVIEW_BYTES_MAX]
    for cut in range(4):
        try:
            text = begin[: len(begin) - cut].decode()
        except UnicodeDecodeError:
            if len(body) <= PREVIEW_BYTES_MAX:
                return ""
            continue
        return " ".join(text.split())[:PREVIEW_CHARACTERS_MAX]
    return ""


def place_of(topic: str) -> str:
    """Return the content of a topic of the store itself in words, empty for a topic of users."""
    if topic.startswith(DEAD_LETTERS):
        return f"dead letter of {topic.removeprefix(DEAD_LETTERS)}"
    if topic.startswith(RETRIES):
        return f"retry of {topic.removeprefix(RETRIES)}"
    return "given-up transaction" if topic == CHECKED_TOPIC else ""
