# SPDX-License-Identifier: Apache-2.0
"""Encoded messages: the key that decides about the queue, and the queue's number in a message that has none.

A message is encoded once, before its queue is known. The queue's number is put behind its other fields, so that a
message that goes to another queue keeps its unique id and its born time.
"""

import hashlib
from functools import lru_cache

from reput.commitlog.v1.append_service_pb2 import AppendMessage

from reput_client.core.encode import varint
from reput_client.core.types import NewMessage

SHARDING_KEY = "__SHARDINGKEY"
QUEUE_FIELD_SIZE_MAX = 8
"""Most bytes that a queue's number adds to a chunk."""
_QUEUE_TAG = bytes((AppendMessage.DESCRIPTOR.fields_by_name["queue_id"].number << 3,))
_MESSAGES_TAG = b"\x0a"


def key_of(message: NewMessage) -> str | None:
    """Return the sharding key of a message, wherever it is given. None without a key."""
    if message.sharding_key is not None:
        return message.sharding_key
    if message.property_string is None:
        return message.properties.get(SHARDING_KEY) if message.properties else None
    name = f"{SHARDING_KEY}\x01".encode()
    for pair in bytes(message.property_string).split(b"\x02"):
        if pair.startswith(name):
            return pair[len(name) :].decode("utf-8", "replace")
    return None


@lru_cache(8192)
def key_hash(key: str) -> int:
    """Return the hash of a key: the first four bytes of the SHA-256 of its text, as each shard's ranges mean it."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4])


def queue_field(queue_id: int) -> bytes:
    """Return the field of a queue's number."""
    return _QUEUE_TAG + varint(queue_id)


def with_queue(chunk: bytes, field: bytes) -> bytes:
    """Return the chunk of a message without a queue, with the field of its queue."""
    at, size, shift = 1, 0, 0
    while True:
        byte = chunk[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return b"".join((_MESSAGES_TAG, varint(size + len(field)), chunk[at:], field))
