# SPDX-License-Identifier: Apache-2.0
"""Batch: the body of a client's batch message, a plain concatenation of small messages. Spec: docs/formats/batch.md.

The reader does what the broker does: it ignores the stored total, magic and CRC and goes by the body's and the
properties' sizes. Nothing in the format tells how many messages follow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libs.formats.errors import BadLength, Truncated
from libs.formats.limits import BATCH_MESSAGE_COUNT_MAX, PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from libs.formats.buffers import ReadableBuffer

HEAD = struct.Struct(">iiiii")  # total, magic 0, body CRC 0, flag, body size
PROPERTIES_SIZE = struct.Struct(">h")
MESSAGE_OVERHEAD_BYTES = HEAD.size + PROPERTIES_SIZE.size
assert MESSAGE_OVERHEAD_BYTES == 22


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """One message of a batch; topic, queue and hosts come from the batch."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode(messages: Iterable[BatchMessage]) -> bytes:
    """The batch body as RocketMQ's clients write it."""
    parts = []
    for message in messages:
        assert len(message.properties) <= PROPERTIES_SIZE_BYTES_MAX
        total = MESSAGE_OVERHEAD_BYTES + len(message.body) + len(message.properties)
        parts += [
            HEAD.pack(total, 0, 0, message.flag, len(message.body)),
            message.body,
            PROPERTIES_SIZE.pack(len(message.properties)),
            message.properties,
        ]
    return b"".join(parts)


def decode(buffer: ReadableBuffer) -> list[BatchMessage]:
    """All messages; raises Truncated, or BadLength for a negative size or too many messages."""
    messages: list[BatchMessage] = []
    with memoryview(buffer) as view:
        position = 0
        while position < len(view):
            if len(messages) == BATCH_MESSAGE_COUNT_MAX:
                raise BadLength(position=position, reason=f"more than {BATCH_MESSAGE_COUNT_MAX} messages")
            message, position = _decode_one(view, position)
            messages.append(message)
    return messages


def _decode_one(view: memoryview, position: int) -> tuple[BatchMessage, int]:
    if len(view) - position < MESSAGE_OVERHEAD_BYTES:
        raise Truncated(position=position, reason=f"a message takes {MESSAGE_OVERHEAD_BYTES} bytes and more")
    _, _, _, flag, body_size = HEAD.unpack_from(view, position)
    body_at = position + HEAD.size
    properties_at = _end(view, body_at, body_size, PROPERTIES_SIZE.size, "body size") + PROPERTIES_SIZE.size
    properties_size = PROPERTIES_SIZE.unpack_from(view, properties_at - PROPERTIES_SIZE.size)[0]
    end = _end(view, properties_at, properties_size, 0, "properties size")
    body = bytes(view[body_at : body_at + body_size])
    return BatchMessage(body, bytes(view[properties_at:end]), flag), end


def _end(view: memoryview, position: int, size: int, tail_size: int, field: str) -> int:
    if size < 0:
        raise BadLength(position=position, reason=f"{field} {size}", field=field)
    if size + tail_size > len(view) - position:
        raise Truncated(position=position, reason=f"{field} {size}, {len(view) - position} bytes left", field=field)
    return position + size
