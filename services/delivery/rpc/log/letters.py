# SPDX-License-Identifier: Apache-2.0
"""Turns the messages that the engine appends beside its events into messages of an append.

A dead letter is the original message with notes on its origin; a replayed letter is the same message without them.
"""

from collections.abc import Collection, Mapping

from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import StoredMessage

from libs.formats.limits import PROPERTIES_SIZE_BYTES_MAX
from libs.formats.records import properties
from libs.formats.records.record import TRANSACTION_COMMIT, TRANSACTION_MASK, born_time_within
from services.delivery.engine.ports.messages import DeadLetter, JournaledMessage, Note, Replayed

DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
"""RocketMQ's names of these properties."""
DLQ_ORIGIN_QUEUE_ID, DLQ_ORIGIN_QUEUE_OFFSET = "DLQ_ORIGIN_QUEUE_ID", "DLQ_ORIGIN_QUEUE_OFFSET"
DLQ_ATTEMPTS = "DLQ_ATTEMPTS"

NOTES = frozenset({DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_QUEUE_ID, DLQ_ORIGIN_QUEUE_OFFSET, DLQ_ATTEMPTS})
STORE_PROPERTIES = frozenset({"__CRC32#"})
"""Properties of the stored message that the log adds again."""
ORDERS = frozenset({"DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG"})
"""Properties that would make the log delay the message, or treat it as a half message, once more."""
ADDED_SIZE_BYTES = 64
"""Bytes that the log may add to the properties of a message."""


def message_of(letter: JournaledMessage) -> AppendMessage:
    """Return a message as it is appended."""
    if isinstance(letter, Note):
        return AppendMessage(
            topic=letter.topic, queue_id=letter.queue_id, body=letter.body, properties=letter.properties
        )
    if isinstance(letter, DeadLetter):
        return _again(letter.found.message.message, letter.topic, _notes(letter), ORDERS)
    if isinstance(letter, Replayed):
        return _again(letter.found.message.message, letter.topic, {}, ORDERS | NOTES)
    message = _again(letter.message, letter.topic, letter.properties, letter.without)
    if letter.queue_id is not None:
        message.queue_id = letter.queue_id
    if letter.committed_offset is not None:
        message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        message.prepared_transaction_offset = letter.committed_offset
    return message


def properties_of(stored: StoredMessage) -> Mapping[str, str]:
    """Return the properties of a message. Bytes of a property string that are not UTF-8 become U+FFFD."""
    if not stored.raw_properties:
        return stored.properties
    return {
        name.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for name, value in properties.pieces(stored.raw_properties)
    }


def _again(stored: StoredMessage, topic: str, more: Mapping[str, str], without: Collection[str]) -> AppendMessage:
    kept = {
        name: value
        for name, value in properties_of(stored).items()
        if name not in STORE_PROPERTIES and name not in without
    }
    return AppendMessage(
        topic=topic,
        body=stored.body,
        properties={**kept, **more},
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_time_ms=born_time_within(stored.born_time_ms),
        born_host=stored.born_host,
        reconsume_times=stored.reconsume_times,
    )


def _notes(letter: DeadLetter) -> dict[str, str]:
    """Return the notes on a letter's origin, as far as there is room: a letter without them can't be replayed.

    A letter that becomes a dead letter again keeps its first origin.
    """
    stored = letter.found.message.message
    notes = {DLQ_ATTEMPTS: str(letter.attempt_count)}
    if DLQ_ORIGIN_TOPIC not in stored.properties:
        notes = {
            DLQ_ORIGIN_TOPIC: letter.origin.topic,
            DLQ_ORIGIN_MESSAGE_ID: stored.properties.get("UNIQ_KEY") or stored.offset_message_id,
            DLQ_ORIGIN_QUEUE_ID: str(letter.origin.queue_id),
            DLQ_ORIGIN_QUEUE_OFFSET: str(letter.found.queue_offset),
            **notes,
        }
    room = PROPERTIES_SIZE_BYTES_MAX - ADDED_SIZE_BYTES - sum(map(_size_bytes, stored.properties.items()))
    fitting: dict[str, str] = {}
    for name, value in notes.items():
        room -= _size_bytes((name, value))
        if room >= 0:
            fitting[name] = value
    return fitting


def _size_bytes(item: tuple[str, str]) -> int:
    """Return the bytes of a property in a record, with its separators."""
    return len(item[0].encode()) + len(item[1].encode()) + 2
