# SPDX-License-Identifier: Apache-2.0
"""The messages that are appended when a transaction ends or is checked. Pure.

RocketMQ's counterpart is TransactionalMessageBridge.
"""

from collections.abc import Iterable
from typing import Any

from libs.formats.records.transaction_record import (
    FIRST,
    HALF_QUEUE_ID,
    OP_QUEUE_ID,
    Half,
    ended_body,
    ended_properties,
    renewed_properties,
)
from libs.formats.state.system_topics import CHECKED_TOPIC, HALF_TOPIC, OP_TOPIC
from services.delivery.engine.ports.messages import Copy, Note

OURS = frozenset({FIRST})
DELAY = "DELAY"


def committed(half: Half, message: Any) -> Copy:
    """Return the committed message for its own topic, where consumers see it."""
    place = half.topic, half.queue_id
    return Copy(message, half.size_bytes, *place, without=OURS, committed_offset=half.physical_offset)


def renewed(half: Half, message: Any, check_count: int) -> Copy:
    """Return the half message that replaces this half message, after its producers were asked `check_count` times."""
    properties = renewed_properties(half, check_count)
    return Copy(message, half.size_bytes, HALF_TOPIC, HALF_QUEUE_ID, properties, without=frozenset({DELAY}))


def parked(half: Half, message: Any) -> Copy:
    """Return the message of a transaction whose producers did not say how it ends."""
    return Copy(message, half.size_bytes, CHECKED_TOPIC, 0, without=frozenset({FIRST, DELAY}))


def ended(offsets: Iterable[int], ids: Iterable[str], how: str) -> list[Note]:
    """Return the records that end half messages."""
    properties = ended_properties(ids, how)
    return [Note(OP_TOPIC, OP_QUEUE_ID, ended_body(offset), properties) for offset in sorted(offsets)]
