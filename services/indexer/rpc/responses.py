# SPDX-License-Identifier: Apache-2.0
"""Answers with messages, made by the kernel without an object per message: as StoredMessages, or as records."""

from typing import NamedTuple

from libs.formats import fields
from libs.formats.protobuf_wire import int_field
from libs.kernel.answer.encode_cy import encode_messages, encode_records
from libs.requests.errors import RecordDamaged
from services.indexer.engine.log.source import RecordBlock


class AnswerFields(NamedTuple):
    """The numbers of the fields of an answer that hold its messages."""

    messages: int
    records: int
    record_count: int


PULL = AnswerFields(fields.PULL_RESPONSE_MESSAGES, fields.PULL_RESPONSE_RECORDS, fields.PULL_RESPONSE_RECORD_COUNT)
SUBSCRIBE = AnswerFields(
    fields.SUBSCRIBE_RESPONSE_MESSAGES, fields.SUBSCRIBE_RESPONSE_RECORDS, fields.SUBSCRIBE_RESPONSE_RECORD_COUNT
)
QUERY = AnswerFields(
    fields.QUERY_BY_KEY_RESPONSE_MESSAGES,
    fields.QUERY_BY_KEY_RESPONSE_RECORDS,
    fields.QUERY_BY_KEY_RESPONSE_RECORD_COUNT,
)
"""Of QueryByKeyResponse, and of QueryByTimeResponse, which has the same fields."""

KEY_MATCHES = AnswerFields(fields.KEY_MATCHES_MESSAGES, fields.KEY_MATCHES_RECORDS, fields.KEY_MATCHES_RECORD_COUNT)


def with_messages(head: bytes, found: RecordBlock, numbers: AnswerFields, *, wants_records: bool) -> bytes:
    """Return an answer: its other fields, `head`, and the messages in the form that the request wants.

    Raises RecordDamaged. The records were checked, with their checksums, when they were read (see RecordSource).
    """
    if not len(found.sizes):
        return head
    if not wants_records:
        return head + messages_field(found, numbers.messages)
    count = len(found.sizes)
    head += int_field(numbers.record_count, count)
    try:
        return encode_records(found.records, found.positions.data, found.sizes.data, count, numbers.records, head)
    except ValueError as error:
        raise _damaged(error) from error


def messages_field(found: RecordBlock, field_number: int) -> bytes:
    """Return the records as a serialized field of StoredMessages. Raises RecordDamaged."""
    if not len(found.sizes):
        return b""
    try:
        return encode_messages(found.records, found.positions.data, found.sizes.data, len(found.sizes), field_number)
    except ValueError as error:
        raise _damaged(error) from error


def _damaged(error: ValueError) -> RecordDamaged:
    return RecordDamaged(segment="of an answer", position=0, reason=str(error))
