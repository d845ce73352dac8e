# SPDX-License-Identifier: Apache-2.0
"""Serialized append requests of a wanted size, built once before the clock starts.

Every message carries a tag, two keys and a unique id, so that the Indexer has its full work. Prebuilt batches are sent
again and again, so their keys repeat; NumberedBatches gives every message a key of its own, for messages that are
looked up.
"""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from reput.commitlog.v1 import append_service_pb2
from reput.common.v1 import message_pb2

TOPIC = "bench"
QUEUE_COUNT = 4
VARIANT_COUNT = 8
PROPERTY_SIZE_BYTES = 120
VARIANT_STRIDE = 1_000_000
DIGIT_COUNT = 12
POWERS = 10 ** np.arange(DIGIT_COUNT - 1, -1, -1, dtype=np.int64)
UNIQUE_ID_PREFIX = "C0A8010A1F9018B4AAC2"

Keys = Literal["repeated", "distinct"]


@dataclass(frozen=True, slots=True)
class Batch:
    """A serialized AppendRequest (AppendStreamRequest has the same bytes)."""

    data: bytes
    message_count: int


Source = Callable[[], Batch]
"""Gives the batch to send next."""


def build(
    *,
    body_size_bytes: int,
    batch_size_bytes: int,
    durability: message_pb2.Durability.ValueType,
    variant: int,
    topics: Sequence[str] = (TOPIC,),
) -> Batch:
    """Make a batch of about `batch_size_bytes`, at least one message. `variant` makes keys differ between batches.

    Messages go to the topics in turn, from the place where the previous batch stopped, and to the next queue in the
    next round.
    """
    request = append_service_pb2.AppendRequest(durability=durability)
    message_count = max(1, batch_size_bytes // (body_size_bytes + PROPERTY_SIZE_BYTES))
    for index in range(message_count):
        number, place = variant * VARIANT_STRIDE + index, variant * message_count + index
        unique_id = f"{UNIQUE_ID_PREFIX}{number:0{DIGIT_COUNT}d}"
        keys = f"{order_key(number)} user-{index % 997}"
        request.messages.add(
            topic=topics[place % len(topics)],
            queue_id=(place // len(topics)) % QUEUE_COUNT,
            body=bytes(body_size_bytes),
            property_string=f"UNIQ_KEY\x01{unique_id}\x02TAGS\x01tag{index % 8}\x02KEYS\x01{keys}\x02".encode(),
            born_time_ms=1_700_000_000_000 + index,
        )
    return Batch(request.SerializeToString(), message_count)


def order_key(number: int) -> str:
    """Return the key of the message with this number."""
    return f"order-{number:0{DIGIT_COUNT}d}"


def prebuilt(
    *,
    body_size_bytes: int,
    batch_size_bytes: int,
    durability: message_pb2.Durability.ValueType,
    topics: Sequence[str] = (TOPIC,),
    variant_count: int = VARIANT_COUNT,
) -> Source:
    """Return a source of some different batches, over and over."""
    built = [
        build(
            body_size_bytes=body_size_bytes,
            batch_size_bytes=batch_size_bytes,
            durability=durability,
            variant=variant,
            topics=topics,
        )
        for variant in range(variant_count)
    ]
    return itertools.cycle(built).__next__


class NumberedBatches:
    """A batch whose numbers go on from call to call: the first message has number 0, and no two share a number."""

    def __init__(
        self, *, body_size_bytes: int, batch_size_bytes: int, durability: message_pb2.Durability.ValueType
    ) -> None:
        template = build(
            body_size_bytes=body_size_bytes, batch_size_bytes=batch_size_bytes, durability=durability, variant=0
        )
        self.next_number = 0
        self._data = np.frombuffer(bytearray(template.data), dtype=np.uint8)
        digits = np.arange(DIGIT_COUNT)
        self._places = [
            np.array([match.end() for match in re.finditer(marker, template.data)])[:, None] + digits
            for marker in (UNIQUE_ID_PREFIX.encode(), b"order-")
        ]
        assert all(len(places) == template.message_count for places in self._places)
        self._message_count = template.message_count

    def __call__(self) -> Batch:
        """Return the next batch."""
        numbers = np.arange(self.next_number, self.next_number + self._message_count, dtype=np.int64)
        digits = (numbers[:, None] // POWERS % 10 + ord("0")).astype(np.uint8)
        for places in self._places:
            self._data[places] = digits
        self.next_number += self._message_count
        return Batch(self._data.tobytes(), self._message_count)
