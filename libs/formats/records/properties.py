# SPDX-License-Identifier: Apache-2.0
"""Properties of a message: `name 0x01 value 0x02 ...`, UTF-8, no escaping. Spec: docs/formats/commit_log.md section 5.

Readers follow RocketMQ 5.3: the last 0x02 may be missing, a piece without a name or a value is ignored, a value may
contain 0x01, and of several equal names the last is used. Writers always write the last 0x02.
Names and constants are RocketMQ's own (MessageConst).
"""

from collections.abc import Iterator, Mapping

from libs.formats.errors import BadField

NAME_VALUE_SEPARATOR = b"\x01"
PROPERTY_SEPARATOR = b"\x02"
KEY_SEPARATOR = b" "

KEYS = b"KEYS"
TAGS = b"TAGS"
UNIQ_KEY = b"UNIQ_KEY"
DELAY = b"DELAY"
WAIT = b"WAIT"
CLUSTER = b"CLUSTER"
REAL_TOPIC = b"REAL_TOPIC"
REAL_QID = b"REAL_QID"
SHARDING_KEY = b"__SHARDINGKEY"
CRC32 = b"__CRC32#"
WRITER = b"REPUT_WRITER"
TIMER_PREFIX = b"TIMER_"
TIMER_DELIVER_MS = b"TIMER_DELIVER_MS"
TIMER_DELAY_SEC = b"TIMER_DELAY_SEC"
TIMER_DELAY_MS = b"TIMER_DELAY_MS"
TIMER_OUT_MS = b"TIMER_OUT_MS"
TIMER_ROLL_TIMES = b"TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = b"TIMER_DEL_UNIQKEY"
TRAN_MSG = b"TRAN_MSG"
INNER_NUM = b"INNER_NUM"
INNER_BASE = b"INNER_BASE"
INNER_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"


def pieces(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield every (name, value) that RocketMQ reads, in stored order, duplicates included."""
    for piece in raw.split(PROPERTY_SEPARATOR):
        name, separator, value = piece.partition(NAME_VALUE_SEPARATOR)
        if name and separator and value:
            yield name, value


def decode(raw: bytes) -> dict[str, str]:
    """Return all properties. Bytes that are not UTF-8 become replacement characters, as in Java."""
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pieces(raw)}


def encode(mapping: Mapping[str, str]) -> bytes:
    """Return the properties as a single string, in the mapping's order.

    Raises BadField for properties that would be lost: an empty name or value, a separator in a name, 0x02 in a value.
    """
    return b"".join(encode_one(name.encode(), value.encode()) for name, value in mapping.items())


def encode_one(name: bytes, value: bytes) -> bytes:
    """Return a property with its separators. Raises BadField as `encode` does."""
    if not name or not value or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name + value:
        raise BadField(position=0, reason=f"property {name[:80]!r} cannot be stored", field="properties")
    return name + NAME_VALUE_SEPARATOR + value + PROPERTY_SEPARATOR


def get(raw: bytes, name: bytes) -> bytes | None:
    """Return the value of the last property of this name, without decoding other properties."""
    wanted = name + NAME_VALUE_SEPARATOR
    end = len(raw)
    while (start := raw.rfind(wanted, 0, end)) >= 0:
        if start == 0 or raw[start - 1 : start] == PROPERTY_SEPARATOR:
            value_start = start + len(wanted)
            value_end = raw.find(PROPERTY_SEPARATOR, value_start)
            if value_end != value_start and value_start < len(raw):
                return raw[value_start : value_end if value_end >= 0 else len(raw)]
        end = start + len(wanted) - 1
    return None


def remove(raw: bytes, name: bytes) -> bytes:
    """Return the string without any piece of this name. All other bytes are unchanged."""
    prefix = name + NAME_VALUE_SEPARATOR
    if prefix not in raw:
        return raw
    kept = [piece for piece in raw.split(PROPERTY_SEPARATOR) if not piece.startswith(prefix)]
    return PROPERTY_SEPARATOR.join(kept)


def keys_of(raw: bytes) -> list[bytes]:
    """Return the index keys: the unique id first, then the pieces of KEYS.

    Empty pieces are left out, duplicates are kept.
    """
    keys = [] if (unique := get(raw, UNIQ_KEY)) is None else [unique]
    listed = get(raw, KEYS) or b""
    return keys + [key for key in listed.split(KEY_SEPARATOR) if key]
