# SPDX-License-Identifier: Apache-2.0
"""Serialized append requests of a wanted size, built once before the clock starts.

Every message carries a tag, two keys and a unique id, so that the Indexer has its full work.
"""

from dataclasses import dataclass

from reput.commitlog.v1 import append_service_pb2
from reput.common.v1 import message_pb2

TOPIC = "bench"
QUEUE_COUNT = 4
PROPERTY_SIZE_BYTES = 130
VARIANT_STRIDE = 1_000_000


@dataclass(frozen=True, slots=True)
class Batch:
    """One serialized AppendRequest (AppendStreamRequest has the same bytes)."""

    data: bytes
    message_count: int


def build(
    *, body_size_bytes: int, batch_size_bytes: int, durability: message_pb2.Durability.ValueType, variant: int
) -> Batch:
    """A batch of about `batch_size_bytes`, at least one message; `variant` makes keys differ between batches."""
    request = append_service_pb2.AppendRequest(durability=durability)
    message_count = max(1, batch_size_bytes // (body_size_bytes + PROPERTY_SIZE_BYTES))
    for index in range(message_count):
        number = variant * VARIANT_STRIDE + index
        unique_id = f"C0A8010A1F9018B4AAC2{number:012X}"
        keys = f"{order_key(number)} user-{index % 997}"
        request.messages.add(
            topic=TOPIC,
            queue_id=index % QUEUE_COUNT,
            body=bytes(body_size_bytes),
            property_string=f"UNIQ_KEY\x01{unique_id}\x02TAGS\x01tag{index % 8}\x02KEYS\x01{keys}\x02".encode(),
            born_time_ms=1_700_000_000_000 + index,
        )
    return Batch(request.SerializeToString(), message_count)


def order_key(number: int) -> str:
    """Key of the message with this number."""
    return f"order-{number}"
