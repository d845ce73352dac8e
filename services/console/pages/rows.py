# SPDX-License-Identifier: Apache-2.0
"""MessageRow: a message in a list, and where the message stands: a topic of users, dead letters, a retry."""

from msgspec import Struct
from reput_client import Message

PREVIEW_CHARACTERS_MAX = 160
PREVIEW_BYTES_MAX = 4 * PREVIEW_CHARACTERS_MAX
COMPRESSED_FLAG = 1
DEAD_LETTERS, RETRIES = "%DLQ%", "%RETRY%"


class MessageRow(Struct, frozen=True):
    """A message in a list."""

    id: str
    """The offset message id, by which its page is found."""
    topic: str
    queue_id: int
    queue_offset: int
    store_time_ms: int
    tag: str
    keys: tuple[str, ...]
    unique_id: str
    body_size_bytes: int
    """Bytes of the body as it is stored."""
    preview: str
    """The begin of the body as text, empty if it is compressed, no text, or hidden."""
    place: str
    """What the topic is, if it is not a topic of users: `dead letter of GROUP`, `retry of GROUP`."""


def row_of(message: Message, *, hides_bodies: bool) -> MessageRow:
    """Return a message as a row."""
    return MessageRow(
        id=message.offset_message_id,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        store_time_ms=message.store_time_ms,
        tag=message.tag or "",
        keys=message.keys,
        unique_id=message.unique_id or "",
        body_size_bytes=len(message.raw_body),
        preview="" if hides_bodies or message.sys_flag & COMPRESSED_FLAG else preview_of(message.raw_body),
        place=place_of(message.topic),
    )


def preview_of(body: bytes) -> str:
    """Return the begin of a body on a single line, empty if it is not UTF-8. A character that is cut is left out."""
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
    """Return what a topic of the store itself holds, empty for a topic of users."""
    if topic.startswith(DEAD_LETTERS):
        return f"dead letter of {topic.removeprefix(DEAD_LETTERS)}"
    if topic.startswith(RETRIES):
        return f"retry of {topic.removeprefix(RETRIES)}"
    return ""
