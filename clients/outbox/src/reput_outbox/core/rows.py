# SPDX-License-Identifier: Apache-2.0
"""A row of the outbox: made and checked in the application's transaction, and read by the relay.

A row becomes the same message each time it is sent: its unique id, its born time and its delivery time are in the row.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple, TypedDict

from reput_client import NewMessage

from reput_outbox.core.errors import OutboxError

TOPIC_SIZE_MAX, KEY_SIZE_MAX, TAG_SIZE_MAX = 127, 255, 255
DELAY_S_MAX = 40 * 86_400
_SEPARATORS = "\x01\x02"


class State(IntEnum):
    """The state of a row."""

    PENDING = 0
    """It waits for its batch."""
    ASSIGNED = 1
    """It is in the batch that is being sent."""
    SENT = 2
    """Its message is stored."""
    REFUSED = 3
    """The store refused it; `reason` says why."""
    BLOCKED = 4
    """It waits for a refused row of its key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A new row."""

    uid: str
    topic: str
    order_key: str | None
    tag: str | None
    lookup_keys: str
    properties: str
    body: bytes
    size: int
    created_ms: int
    deliver_at_ms: int | None

    def values(self) -> dict[str, Any]:
        """Return the values by their columns."""
        return {name: getattr(self, name) for name in COLUMNS_OF_ENTRY}


class Fields(TypedDict, total=False):
    """The fields of a message beside its topic and its body, as `make_entry` takes them."""

    key: str | None
    tag: str | None
    keys: str | Sequence[str]
    properties: Mapping[str, str] | None
    deliver_at: datetime | None
    delay_s: float | None


COLUMNS_OF_ENTRY = tuple(Entry.__dataclass_fields__)


def make_entry(
    topic: str,
    body: bytes,
    *,
    key: str | None = None,
    tag: str | None = None,
    keys: str | Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    deliver_at: datetime | None = None,
    delay_s: float | None = None,
) -> Entry:
    """Return a new row. Raises OutboxError that names a wrong field, so that the application's transaction fails."""
    _check_text("topic", topic, TOPIC_SIZE_MAX)
    if not isinstance(body, bytes | bytearray | memoryview):
        raise OutboxError(f"body is of type {type(body).__name__}: expected bytes")
    if key is not None:
        _check_text("key", key, KEY_SIZE_MAX)
    if tag is not None:
        _check_text("tag", tag, TAG_SIZE_MAX)
    lookup_keys = (keys,) if isinstance(keys, str) else tuple(keys)
    for one in lookup_keys:
        _check_text("keys", one, KEY_SIZE_MAX)
        if " " in one:
            raise OutboxError(f"keys has {one!r}: a key has no space")
    shown = dict(properties or {})
    for name, value in shown.items():
        _check_text("a name of properties", name, None)
        _check_text(f"properties[{name!r}]", value, None)
    now_ms = time.time_ns() // 1_000_000
    text = json.dumps(shown, ensure_ascii=False) if shown else ""
    return Entry(
        uid=uuid.uuid4().hex.upper(),
        topic=topic,
        order_key=key,
        tag=tag,
        lookup_keys=" ".join(lookup_keys),
        properties=text,
        body=bytes(body),
        size=len(body) + len(text.encode()) + len(topic) + 200,
        created_ms=now_ms,
        deliver_at_ms=_deliver_at_ms(now_ms, deliver_at, delay_s),
    )


def _check_text(field: str, value: object, size_max: int | None) -> None:
    """Raise OutboxError for a value that is no text, is empty, too long, or has a separator of properties."""
    if not isinstance(value, str):
        raise OutboxError(f"{field} is of type {type(value).__name__}: expected a str")
    if not value:
        raise OutboxError(f"{field} is empty")
    if size_max is not None and len(value) > size_max:
        raise OutboxError(f"{field} has {len(value)} characters, the limit is {size_max}")
    if any(separator in value for separator in _SEPARATORS) or "\x00" in value:
        raise OutboxError(f"{field} is {value[:80]!r}: the characters 0x00, 0x01 and 0x02 are not allowed")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OutboxError(f"{field} is {value[:80]!r}: not UTF-8") from None


def _deliver_at_ms(now_ms: int, deliver_at: datetime | None, delay_s: float | None) -> int | None:
    """Return the delivery time. A delay counts from now, so that it does not begin anew when a row is sent again."""
    if deliver_at is not None and delay_s is not None:
        raise OutboxError("a message has one of deliver_at and delay_s")
    if delay_s is not None:
        if not 0 <= delay_s <= DELAY_S_MAX:
            raise OutboxError(f"delay_s is {delay_s}, but a delay is 0 to {DELAY_S_MAX} s (40 days)")
        return now_ms + round(delay_s * 1000)
    if deliver_at is None:
        return None
    if not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None:
        raise OutboxError(f"deliver_at is {deliver_at!r}: expected a datetime with a time zone")
    return round(deliver_at.timestamp() * 1000)


class Row(NamedTuple):
    """A row that is about to be sent."""

    id: int
    uid: str
    topic: str
    order_key: str | None
    tag: str | None
    lookup_keys: str
    properties: str
    body: bytes
    created_ms: int
    deliver_at_ms: int | None
    attempts: int

    def message(self) -> NewMessage:
        """Return the message of this row, each time the same."""
        return NewMessage(
            self.topic,
            bytes(self.body),
            tag=self.tag,
            keys=tuple(filter(None, self.lookup_keys.split(" "))),
            properties=json.loads(self.properties) if self.properties else {},
            sharding_key=self.order_key,
            unique_id=self.uid,
            born_time_ms=self.created_ms,
            deliver_at=self.deliver_at_ms,
        )
