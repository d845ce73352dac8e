# SPDX-License-Identifier: Apache-2.0
"""Answers with records: where an installation has the compiled part, it asks for records in place of messages.

Without it, protobuf's parser, which is C, makes messages faster than Python reads records: no records are asked for.
A server that does not know records answers with messages.
Format: docs/formats/records_in_answers.md.
"""

import functools
from collections.abc import Callable
from typing import Any

from reput_client.core import speedups
from reput_client.core.errors import nonsense
from reput_client.core.types import Message


class RecordsAnswer:
    """An answer with records, which stay where gRPC has put them. Its other fields are the fields of `rest`."""

    __slots__ = ("data", "end", "rest", "start")

    def __init__(self, rest: Any, data: bytes, start: int, end: int) -> None:
        self.rest, self.data, self.start, self.end = rest, data, start, end

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rest, name)

    @property
    def records(self) -> bytes:
        """The records, copied."""
        return self.data[self.start : self.end]

    def ByteSize(self) -> int:  # noqa: N802
        """Return the bytes of the whole answer, as protobuf's messages do."""
        return len(self.data)


def are_wanted() -> bool:
    """Return whether requests ask for records."""
    return speedups.RECORDS is not None


def parser_of(kind: Any) -> Callable[[bytes], Any]:
    """Return the parser of answers of this class of protobuf. The parser raises google.protobuf.message.DecodeError."""
    field = kind.DESCRIPTOR.fields_by_name.get("records")
    if field is None:
        return kind.FromString  # type: ignore[no-any-return]
    return functools.partial(_parse, kind.FromString, field.number)


def _parse(parse: Callable[[bytes], Any], field_number: int, data: bytes) -> Any:
    """Return an answer, as a RecordsAnswer if it has records. Protobuf's parser would copy the records twice."""
    if speedups.RECORDS is None:
        return parse(data)
    rest, start, end = speedups.RECORDS.split(data, field_number)
    return RecordsAnswer(parse(rest), data, start, end) if end else parse(data)


def count_in(answer: Any) -> int:
    """Return the number of messages of an answer, as it announces them."""
    return len(answer.messages) or int(answer.record_count)


def messages_in(answer: Any) -> list[Message]:
    """Return the messages of an answer in either form. Raises ServerError for records that are not sound."""
    if answer.messages:
        return [Message(raw) for raw in answer.messages]
    if isinstance(answer, RecordsAnswer):
        data, start, end = answer.data, answer.start, answer.end
    else:
        data, start, end = answer.records, 0, len(answer.records)
    if start == end and not answer.record_count:
        return []
    if speedups.RECORDS is None:
        raise nonsense(ValueError("it has records, which were not asked for"))
    try:
        return speedups.RECORDS.messages_of(data, start, end, answer.record_count, Message)
    except ValueError as error:
        raise nonsense(error) from None
