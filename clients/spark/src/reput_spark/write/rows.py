# SPDX-License-Identifier: Apache-2.0
"""Rows as messages: which columns a write understands, and record batches as chunks of append requests.

A chunk is one `messages` entry of an AppendRequest as protobuf writes it, so a request is chunks one behind the other.
Invariant: the same rows give the same bytes, on every machine and in every attempt; nothing here asks the clock.
Layout: reput/commitlog/v1/append_service.proto. Properties: docs/formats/commit_log.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from reput_spark.errors import BadRow, BadSchema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from reput_spark.write.options import WriteOptions

WRITTEN_TYPES = {
    "value": ("binary", "string"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "tag": ("string",),
    "properties": ("map<string,string>",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "born_timestamp": ("timestamp",),
    "flag": ("int",),
}
"""Columns that a write understands, with their types."""

IGNORED = ("offset", "timestamp", "timestampType", "physical_offset", "message_id", "sys_flag")
"""Columns that reading gives and only the store decides."""

INT32_SPAN = 1 << 64
"""Protobuf writes a negative int32 as 64 bits."""


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises BadSchema for columns that can't be written."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        expected = WRITTEN_TYPES.get(field.name)
        found = field.dataType.simpleString()
        if expected is None and field.name not in IGNORED:
            raise BadSchema(f"no column {field.name!r} can be written; these can: {', '.join(WRITTEN_TYPES)}")
        if expected is not None and found not in expected:
            raise BadSchema(f"column {field.name!r} must be {' or '.join(expected)}, not {found}")
        if names.count(field.name) > 1:
            raise BadSchema(f"column {field.name!r} is there twice")
    if "value" not in names:
        raise BadSchema("there is no column 'value', the body of the messages")
    if "topic" not in names and not options.topic:
        raise BadSchema("there is no column 'topic'; add one, or the option 'topic'")
    if options.has_sharding_key and "key" not in names:
        raise BadSchema("partitionBy=key needs a column 'key'")


class Encoder:
    """Makes chunks of rows. One for each task."""

    def __init__(self, options: WriteOptions) -> None:
        self._topic = options.topic
        self._has_sharding_key = options.has_sharding_key
        self._topic_fields: dict[str, bytes] = {}

    def chunks(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """One chunk for each row. Raises BadRow."""
        columns = {name: _column(batch, name) for name in WRITTEN_TYPES}
        if self._topic:
            columns["topic"] = [self._topic] * batch.num_rows
        for row in zip(*columns.values(), strict=True):
            payload = self._message(*row)
            yield b"\x0a" + varint(len(payload)) + payload

    def _message(
        self,
        body: bytes | str | None,
        key: bytes | str | None,
        topic: str | None,
        queue_id: int | None,
        tag: str | None,
        properties: Sequence[tuple[str, str | None]] | None,
        headers: Sequence[dict[str, Any]] | None,
        born_time_ms: int | None,
        flag: int | None,
    ) -> bytes:
        """One AppendMessage. Raises BadRow."""
        if body is None:
            raise BadRow("value", "is null; a message has a body, though it may be empty")
        if topic is None:
            raise BadRow("topic", "is null")
        if isinstance(body, str):
            body = body.encode()
        parts = [self._topic_fields.get(topic) or self._topic_field(topic)]
        if queue_id is not None:
            if queue_id < 0:
                raise BadRow("partition", f"is {queue_id}, below 0")
            parts.append(b"\x10" + varint(queue_id))
        parts += (b"\x1a", varint(len(body)), body)
        text = self._property_string(key, tag, properties, headers)
        if text:
            parts += (b"\x2a", varint(len(text)), text)
        if flag:
            parts.append(b"\x30" + varint(flag % INT32_SPAN))
        if born_time_ms is not None and born_time_ms > 0:
            parts.append(b"\x40" + varint(born_time_ms))
        return b"".join(parts)

    def _topic_field(self, topic: str) -> bytes:
        raw = topic.encode()
        return self._topic_fields.setdefault(topic, b"\x0a" + varint(len(raw)) + raw)

    def _property_string(
        self,
        key: bytes | str | None,
        tag: str | None,
        properties: Sequence[tuple[str, str | None]] | None,
        headers: Sequence[dict[str, Any]] | None,
    ) -> bytes:
        """RocketMQ's property string; columns win over entries of the map, and the map over headers."""
        found: dict[str, str] = {}
        for header in headers or ():
            found[header["key"]] = _text("headers", header["value"])
        found.update((name, text) for name, text in properties or () if text)
        if tag:
            found["TAGS"] = tag
        if key:
            found["KEYS"] = _text("key", key)
            if self._has_sharding_key:
                found["__SHARDINGKEY"] = found["KEYS"]
        pieces = []
        for name, text in found.items():
            if not text:
                continue
            if not name or "\x01" in name or "\x02" in name or "\x02" in text:
                raise BadRow("properties", f"{name!r} is empty or has a separator (0x01, 0x02), or its value has 0x02")
            pieces.append(f"{name}\x01{text}\x02")
        return "".join(pieces).encode()


def varint(number: int) -> bytes:
    """A number that is not negative in protobuf's base 128."""
    if number < 0x80:
        return _ONE_BYTE[number]
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def _column(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """The values of a column as Python has them; times as milliseconds; None for one that is not there."""
    position = batch.schema.get_field_index(name)
    if position < 0:
        return [None] * batch.num_rows
    column: Any = batch.column(position)
    if name == "born_timestamp":
        import pyarrow as pa
        import pyarrow.compute as pc

        column = pc.divide(column.cast(pa.int64()), 1000)  # microseconds
    values: Sequence[Any] = column.to_pylist()
    return values


def _text(name: str, raw: bytes | str | None) -> str:
    if raw is None or isinstance(raw, str):
        return raw or ""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadRow(name, "is not UTF-8") from None
