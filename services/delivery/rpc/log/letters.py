# SPDX-License-Identifier: Apache-2.0
"""Turns what the engine appends beside its events into messages of an append."""

from collections.abc import Collection, Mapping

from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import StoredMessage

from libs.formats.records.record import TRANSACTION_COMMIT, TRANSACTION_MASK
from services.delivery.engine.ports import DeadLetter, Letter, Note

DLQ_ORIGIN_TOPIC, DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
STORE_PROPERTIES = frozenset({"__CRC32#"})
"""Of the stored message; the log adds them again."""
ORDERS = frozenset({"DELAY", "REAL_TOPIC", "REAL_QID", "TRAN_MSG"})
"""What the log would do once more."""


def message_of(letter: Letter) -> AppendMessage:
    """Return a message as it is appended."""
    if isinstance(letter, Note):
        return AppendMessage(
            topic=letter.topic, queue_id=letter.queue_id, body=letter.body, properties=letter.properties
        )
    if isinstance(letter, DeadLetter):
        return _dead(letter)
    message = _again(letter.message, letter.topic, letter.properties, letter.without)
    if letter.queue_id is not None:
        message.queue_id = letter.queue_id
    if letter.committed_offset is not None:
        message.sys_flag = message.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
        message.prepared_transaction_offset = letter.committed_offset
    return message


def _dead(letter: DeadLetter) -> AppendMessage:
    """Return a message for the dead letters: as it was, with what says where it came from."""
    stored = letter.found.message
    origin = {
        DLQ_ORIGIN_TOPIC: letter.origin_topic,
        DLQ_ORIGIN_MESSAGE_ID: stored.properties.get("UNIQ_KEY") or stored.offset_message_id,
    }
    more = {name: value for name, value in origin.items() if name not in stored.properties}
    return _again(stored, letter.topic, more, ORDERS)


def _again(stored: StoredMessage, topic: str, more: Mapping[str, str], without: Collection[str]) -> AppendMessage:
    kept = {
        name: value for name, value in stored.properties.items() if name not in STORE_PROPERTIES and name not in without
    }
    return AppendMessage(
        topic=topic,
        body=stored.body,
        properties={**kept, **more},
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_time_ms=stored.born_time_ms,
        born_host=stored.born_host,
        reconsume_times=stored.reconsume_times,
    )
