# SPDX-License-Identifier: Apache-2.0
"""Rows as messages: record batches as chunks of append requests.

Invariant: the same rows give the same bytes, on every machine and in every attempt. The clock is not used.
Properties: docs/formats/commit_log.md section 5.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from reput.commitlog.v1.append_service_pb2 import AppendMessage

from reput_client.core.encode import CHUNK_SIZE_BYTES_MAX, chunk, property_string

SLICE_ROW_COUNT = 4_096
"""Rows that are Python's objects at a time."""


class BadRowError(ValueError):
    """A row can't be a message: its column, its number from 0, and what is wrong."""

    def __init__(self, column: str, row: int, problem: str) -> None:
        super().__init__(column, row, problem)
        self.column, self.row, self.problem = column, row, problem

    def __str__(self) -> str:
        return f"column {self.column!r} of row {self.row} {self.problem}"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table that are parts of a message, "" for none. A column that is missing is null."""

    body: str = "value"
    topic: str = ""
    queue_id: str = ""
    key: str = ""
    """A text, or UTF-8."""
    keys: str = ""
    """A list of texts."""
    tag: str = ""
    properties: str = ""
    """A map of texts."""
    headers: str = ""
    """A list of structs of key and value, as Kafka has them."""
    born_time: str = ""
    flag: str = ""
    property_columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by the names of properties."""
    splits_key: bool = False
    """Spaces of a key separate keys; otherwise a key with a space is refused."""


class Encoder:
    """Encodes rows as chunks. It counts the rows, for its errors."""

    def __init__(self, columns: Columns, *, topic: str = "", has_sharding_key: bool = False) -> None:
        """`topic` is the topic of all rows, empty if a column names it."""
        self._columns, self._topic, self._has_sharding_key = columns, topic, has_sharding_key
        self._row = 0

    def chunks(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield a chunk for each row. Raises BadRowError."""
        for first in range(0, batch.num_rows, SLICE_ROW_COUNT):
            yield from self._chunks(batch.slice(first, SLICE_ROW_COUNT))

    def _chunks(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        named = self._columns
        topics = [self._topic] * batch.num_rows if self._topic else _values(batch, named.topic)
        columns = [
            _values(batch, named.body),
            topics,
            _values(batch, named.queue_id),
            _texts(batch, named.key),
            _values(batch, named.keys),
            _texts(batch, named.tag),
            _values(batch, named.properties),
            _values(batch, named.headers),
            _times_ms(batch, named.born_time),
            _values(batch, named.flag),
        ]
        extra = [_texts(batch, column) for column in named.property_columns.values()]
        columns.append(list(zip(*extra, strict=True)) if extra else [()] * batch.num_rows)
        for row in zip(*columns, strict=True):
            yield self._chunk(*row)
            self._row += 1

    def _chunk(
        self,
        body: bytes | str | None,
        topic: str | None,
        queue_id: int | None,
        key: bytes | str | None,
        keys: Sequence[str | None] | None,
        tag: str | None,
        properties: Any,
        headers: Sequence[dict[str, Any]] | None,
        born_time_ms: int | None,
        flag: int | None,
        extra: Sequence[str | None],
    ) -> bytes:
        """Return a message as a chunk. Raises BadRowError."""
        if body is None:
            raise self._bad(self._columns.body, "is null; a message has a body, though it may be empty")
        if topic is None:
            raise self._bad(self._columns.topic, "is null")
        if queue_id is not None and not 0 <= queue_id < 1 << 31:
            raise self._bad(self._columns.queue_id, f"is {queue_id}, below 0" if queue_id < 0 else f"is {queue_id}")
        found = self._headers(headers) | self._properties(properties)
        found |= {
            name: self._text(column, text)
            for (name, column), text in zip(self._columns.property_columns.items(), extra, strict=True)
            if text
        }
        message = AppendMessage(
            topic=topic,
            queue_id=queue_id,
            body=body.encode() if isinstance(body, str) else body,
            property_string=self._property_string(found, key, keys, tag),
            flag=flag or 0,
            born_time_ms=max(0, born_time_ms or 0),
        )
        encoded = chunk(message)
        if len(encoded) > CHUNK_SIZE_BYTES_MAX:
            size = f"{len(message.body)} bytes; a batch has at most {CHUNK_SIZE_BYTES_MAX} bytes"
            raise self._bad(self._columns.body, f"has {size}")
        return encoded

    def _property_string(
        self, found: dict[str, str], key: bytes | str | None, keys: Sequence[str | None] | None, tag: str | None
    ) -> bytes:
        """Make RocketMQ's property string. Columns override entries of the map, and the map overrides headers."""
        if tag:
            found["TAGS"] = self._text(self._columns.tag, tag)
        if key:
            found["KEYS"] = self._text(self._columns.key, key)
            if not self._columns.splits_key:
                self._check_key(self._columns.key, found["KEYS"])
        elif keys:
            texts = [self._text(self._columns.keys, one) for one in keys]
            for text in texts:
                self._check_key(self._columns.keys, text)
            found["KEYS"] = " ".join(texts)
        if self._has_sharding_key and "KEYS" in found:
            found["__SHARDINGKEY"] = found["KEYS"]
        try:
            return property_string({name: text for name, text in found.items() if text})
        except ValueError as error:
            raise self._bad(self._columns.properties or "properties", f"can't be stored: {error}") from None

    def _check_key(self, column: str, key: str) -> None:
        if not key or " " in key:
            raise self._bad(column, f"has the key {key!r}: a key is not empty and has no space")

    def _headers(self, headers: Sequence[dict[str, Any]] | None) -> dict[str, str]:
        return {one["key"]: self._text(self._columns.headers, one["value"]) for one in headers or ()}

    def _properties(self, properties: Any) -> dict[str, str]:
        """Return the properties of a map, of a list of structs, or of a struct, without those that are empty."""
        if not properties:
            return {}
        if isinstance(properties, dict):
            pairs: Any = properties.items()
        else:
            pairs = (tuple(one.values()) if isinstance(one, dict) else one for one in properties)
        return {name: self._text(self._columns.properties, text) for name, text in pairs if text}

    def _text(self, column: str, raw: Any) -> str:
        if raw is None or isinstance(raw, str):
            return raw or ""
        if not isinstance(raw, bytes):
            return str(raw)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._bad(column, "is not UTF-8") from None

    def _bad(self, column: str, problem: str) -> BadRowError:
        return BadRowError(column, self._row, problem)


def _column(batch: pa.RecordBatch, name: str) -> Any:
    position = batch.schema.get_field_index(name) if name else -1
    return batch.column(position) if position >= 0 else pa.nulls(batch.num_rows)


def _values(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """Return the values of a column in Python's form, None for a missing column."""
    values: Sequence[Any] = _column(batch, name).to_pylist()
    return values


def _texts(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """Return the values of a column as texts or bytes, numbers as Arrow writes them."""
    column = _column(batch, name)
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not is_bytes(column.type):
        column = column.cast(pa.string())
    values: Sequence[Any] = column.to_pylist()
    return values


def _times_ms(batch: pa.RecordBatch, name: str) -> Sequence[int | None]:
    column = _column(batch, name)
    if kinds.is_timestamp(column.type):
        column = pc.divide(column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64()), 1000)
    values: Sequence[int | None] = column.to_pylist()
    return values


def is_bytes(kind: Any) -> bool:
    """Return whether a type holds texts or bytes."""
    checks = (
        kinds.is_string, kinds.is_large_string, kinds.is_string_view, kinds.is_binary, kinds.is_large_binary,
        kinds.is_binary_view, kinds.is_fixed_size_binary,
    )  # fmt: skip
    return any(check(kind) for check in checks)
