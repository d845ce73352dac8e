# SPDX-License-Identifier: Apache-2.0
"""The columns of messages: their Arrow types, and frames of the Indexer as record batches of exactly given columns."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import grpc
import pyarrow as pa

from reput_client.frames.calls import BadAnswerError

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
KEY, HEADERS, PROPERTIES, VALUE = "key", "headers", "properties", "value"
TYPES: Mapping[str, pa.DataType] = {
    KEY: pa.string(),
    VALUE: pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "tag": pa.string(),
    PROPERTIES: pa.map_(pa.string(), pa.string()),
    "born_timestamp": pa.timestamp("us", tz="UTC"),
    "physical_offset": pa.int64(),
    "message_id": pa.string(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    HEADERS: pa.list_(HEADER),
}
"""Every column with its type. `headers` and `timestampType` are Kafka's form of properties and of the clock's owner."""

ALIGNMENT_BYTES = 8
"""Arrow's alignment of a column."""
LOG_APPEND_TIME = 1
"""Value of timestampType: the timestamp is the store's."""


def schema_of(names: Iterable[str], *, has_binary_key: bool = False) -> pa.Schema:
    """Return the schema of these columns: all nullable, times as UTC microseconds."""
    types = {**TYPES, KEY: pa.binary()} if has_binary_key else TYPES
    return pa.schema([pa.field(name, types[name], nullable=True) for name in names])


def sent_columns(names: Iterable[str]) -> list[str]:
    """Return the columns to ask the Indexer for."""
    return list(dict.fromkeys(PROPERTIES if name == HEADERS else name for name in names))


def headers_of(properties: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return the column of headers that is made of a column of properties, row by row."""
    assert isinstance(properties, pa.MapArray)
    entries = pa.StructArray.from_arrays(
        [properties.keys, properties.items.cast(pa.binary())], fields=[HEADER.field(0), HEADER.field(1)]
    )
    return pa.ListArray.from_arrays(properties.offsets, entries, type=TYPES[HEADERS])


def batches_of(arrow_ipc: memoryview) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an answer. Raises BadAnswerError."""
    if not arrow_ipc:
        return
    try:
        with pa.ipc.open_stream(_aligned(arrow_ipc)) as stream:
            yield from stream
    except (pa.ArrowInvalid, OSError) as error:
        raise bad_answer(f"a frame is not Arrow IPC: {error}") from error


def _aligned(arrow_ipc: memoryview) -> pa.Buffer:
    """Return a frame at an address that Arrow's columns may have. In an answer a frame begins at any byte."""
    found = pa.py_buffer(arrow_ipc)
    if found.address % ALIGNMENT_BYTES == 0:
        return found
    copied = pa.allocate_buffer(len(arrow_ipc))
    memoryview(copied).cast("B")[:] = arrow_ipc
    return copied


def conform(batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, object]) -> pa.RecordBatch:
    """Return a batch with exactly the columns of `schema`. Missing columns come from `constants`.

    Raises BadAnswerError.
    """
    columns: list[pa.Array[Any]] = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position >= 0:
            column = batch.column(position)
            if field.name == KEY and pa.types.is_string(column.type):
                column = column.cast(field.type)  # the same bytes
        elif field.name == HEADERS and batch.schema.get_field_index(PROPERTIES) >= 0:
            column = headers_of(batch[PROPERTIES])
        elif field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        else:
            raise bad_answer(f"column {field.name!r} is missing in a frame")
        if not column.type.equals(field.type):
            raise bad_answer(f"column {field.name!r} came as {column.type}, not {field.type}")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def bad_answer(text: str) -> BadAnswerError:
    """Return the error for an answer that can't be right."""
    return BadAnswerError(text, code=grpc.StatusCode.INTERNAL)
