# SPDX-License-Identifier: Apache-2.0
"""Rows as messages: record batches as chunks of append requests.

Invariant: the same rows give the same bytes, on every machine and in every attempt. The clock is not used.
Properties: docs/formats/commit_log.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput_client.core.encode import chunk, property_string

from reput_spark.errors import BadRow
from reput_spark.write.columns import WRITTEN_TYPES

if TYPE_CHECKING:
    from reput_spark.write.options import WriteOptions


class Encoder:
    """Encodes rows as chunks. Each task has its own encoder."""

    def __init__(self, options: WriteOptions) -> None:
        self._topic = options.topic
        self._has_sharding_key = options.has_sharding_key

    def chunks(self, batch: pa.RecordBatch) -> Iterator[bytes]:
        """Yield a chunk for each row. Raises BadRow."""
        columns = {name: _column(batch, name) for name in WRITTEN_TYPES}
        if self._topic:
            columns["topic"] = [self._topic] * batch.num_rows
        for row in zip(*columns.values(), strict=True):
            yield self._chunk(*row)

    def _chunk(
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
        """Return a message as a chunk. Raises BadRow."""
        if body is None:
            raise BadRow("value", "is null; a message has a body, though it may be empty")
        if topic is None:
            raise BadRow("topic", "is null")
        if queue_id is not None and queue_id < 0:
            raise BadRow("partition", f"is {queue_id}, below 0")
        message = AppendMessage(
            topic=topic,
            queue_id=queue_id,
            body=body.encode() if isinstance(body, str) else body,
            property_string=self._property_string(key, tag, properties, headers),
            flag=flag or 0,
            born_time_ms=max(0, born_time_ms or 0),
        )
        return chunk(message)

    def _property_string(
        self,
        key: bytes | str | None,
        tag: str | None,
        properties: Sequence[tuple[str, str | None]] | None,
        headers: Sequence[dict[str, Any]] | None,
    ) -> bytes:
        """Make RocketMQ's property string. Columns override entries of the map, and the map overrides headers."""
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
        try:
            return property_string({name: text for name, text in found.items() if text})
        except ValueError as error:
            raise BadRow("properties", f"can't be stored: {error}") from None


def _column(batch: pa.RecordBatch, name: str) -> Sequence[Any]:
    """Return the values of a column in Python's form: times as milliseconds, None for a missing column."""
    position = batch.schema.get_field_index(name)
    if position < 0:
        return [None] * batch.num_rows
    column: Any = batch.column(position)
    if name == "born_timestamp":
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
