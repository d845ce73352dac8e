# SPDX-License-Identifier: Apache-2.0
"""Stored messages as the Indexer sent them: as records of the log, or as StoredMessages.

Delivery passes messages on. It makes no object of a record unless it has to look into it: for an ordering key, for a
dead letter, for the filters of members that differ. Format: docs/formats/records_in_answers.md.
"""

import hashlib
from array import array
from collections.abc import Sequence
from typing import Final, TypeVar

from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1.queue_service_pb2 import PullResponse

from libs.formats import fields
from libs.formats.limits import RECORD_SIZE_BYTES_MIN
from libs.formats.protobuf_wire import length_delimited
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES
from libs.formats.records.record import BORN_HOST_AT, BORN_HOST_V6_FLAG, HEAD, INT, TIME
from libs.kernel.answer.encode_cy import encode_messages
from libs.kernel.answer.values_cy import property_values
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.ports.messages import Found, Read
from services.delivery.rpc.log.letters import DLQ_ORIGIN_TOPIC

T = TypeVar("T")

INDEXER = "indexer"
ORDERING_KEY = "__SHARDINGKEY"
_NAMES: Final = (ORDERING_KEY.encode(), DLQ_ORIGIN_TOPIC.encode())
_START: Final = array("q", (0,))


class StoredContent:
    """A stored message. Memory: its record; once it was looked into, also the StoredMessage."""

    __slots__ = ("_message", "_record")

    def __init__(self, content: bytes | StoredMessage) -> None:
        self._record = content if isinstance(content, bytes) else b""
        self._message = None if isinstance(content, bytes) else content

    @property
    def message(self) -> StoredMessage:
        """The message as an object, which is kept."""
        if self._message is None:
            self._message = PullResponse.FromString(self.field(fields.PULL_RESPONSE_MESSAGES)).messages[0]
        return self._message

    def field(self, number: int) -> bytes:
        """Return the message as a serialized field of this number, 1 to 15, that is a StoredMessage."""
        if self._record:
            return encode_messages(self._record, _START, array("i", (len(self._record),)), 1, number)
        assert self._message is not None
        return length_delimited(number, self._message.SerializeToString())


def found_of(answer: PullResponse) -> list[Found]:
    """Return the messages of an answer, in either form. Raises DependencyUnavailable if its records are not whole."""
    if not answer.records:
        return [_found(StoredContent(message)) for message in answer.messages]
    records = answer.records
    positions, sizes = array("q"), array("i")
    at = 0
    while len(records) - at >= RECORD_SIZE_BYTES_MIN:
        size = INT.unpack_from(records, at)[0]
        positions.append(at)
        sizes.append(size)
        at += max(size, RECORD_SIZE_BYTES_MIN)
    if at != len(records) or len(sizes) != answer.record_count:
        raise DependencyUnavailable(INDEXER, f"its answer does not have {answer.record_count} whole records")
    try:
        keys, origins = property_values(records, positions, sizes, _NAMES)
    except ValueError as error:
        raise DependencyUnavailable(INDEXER, f"its answer does not have whole records: {error}") from error
    return [
        _found_at(records, *place) if place[2:] == (None, None) else _found(_content(records, *place[:2]))
        for place in zip(positions, sizes, keys, origins, strict=True)
    ]


def read_of(answer: PullResponse, found: Sequence[T]) -> Read[T]:
    """Return the records that an answer has, with the places in the answer."""
    return Read(found, answer.next_queue_offset, answer.min_queue_offset, answer.max_queue_offset)


def _content(records: bytes, start: int, size: int) -> StoredContent:
    return StoredContent(records[start : start + size])


def _found_at(records: bytes, start: int, size: int, *_: object) -> Found:
    """Return a message without an ordering key and an origin."""
    _, _, _, _, _, queue_offset, _, sys_flag, _ = HEAD.unpack_from(records, start)
    host_size = HOST_IPV6_SIZE_BYTES if sys_flag & BORN_HOST_V6_FLAG else HOST_IPV4_SIZE_BYTES
    (store_time_ms,) = TIME.unpack_from(records, start + BORN_HOST_AT + host_size)
    return Found(queue_offset, 0, size, _content(records, start, size), "", store_time_ms)


def _found(content: StoredContent) -> Found:
    message = content.message
    key = message.properties.get(ORDERING_KEY, "")
    origin_topic = message.properties.get(DLQ_ORIGIN_TOPIC, "")
    return Found(
        message.queue_offset,
        _hash(key) if key else 0,
        message.record_size_bytes,
        content,
        origin_topic,
        message.store_time_ms,
    )


def _hash(key: str) -> int:
    """Return a number from 1 to 2**63 - 1, the same in all processes. Keys with the same number wait for each other."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1 or 1
