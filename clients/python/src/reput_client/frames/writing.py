# SPDX-License-Identifier: Apache-2.0
"""Writing: tables as messages of a topic, each row a single time.

Invariant: the same rows in the same order, with the same batch size, make the same numbered batches, however the data
is cut. So a write that is done again under its writer id finds what it has stored.
"""

import re
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as kinds

from reput_client.core.errors import ReputError
from reput_client.core.sending import BATCH_MESSAGE_COUNT_MAX
from reput_client.core.types import Durability
from reput_client.core.writing import Batch, WriteQueue, Written
from reput_client.frames.rows import BadRowError, Columns, Encoder, is_bytes
from reput_client.sync.client import Client
from reput_client.sync.writer import AppendStream, Writer

Data: TypeAlias = Any
"""A table, a record batch, an iterable of record batches, or anything with Arrow's stream interface."""

BATCH_SIZE_BYTES_MAX = 8 << 20
"""Largest batch size. The CommitLog accepts requests of 16 MiB, and the last message of a batch may be large."""
REFUSED = re.compile(r"messages\[(\d+)\]\.?(\w*)")
"""The message at fault and its field, in an error of the CommitLog."""


def write(
    client: Client,
    topic: str,
    data: Data,
    *,
    body: str = "value",
    key: str = "",
    keys: str = "",
    tag: str = "",
    properties: str | Iterable[str] | Mapping[str, str] = (),
    queue_id: str = "",
    born_time: str = "",
    by_key: bool = False,
    writer_id: str | None = None,
    durability: Durability = Durability.DEFAULT,
    batch_size_bytes: int = 512 << 10,
    window_bytes: int = 8 << 20,
) -> Written:
    """Append a message for each row of a table, and return their number when they are stored.

    `data` is a table, a record batch, an iterable of batches, or an object with Arrow's stream interface: a DataFrame
    of pandas or polars, a relation of DuckDB, a Frames. The other arguments name its columns: `body` has bytes or
    texts, `key` a key or `keys` a list of keys, `tag` a tag, `queue_id` a queue, `born_time` a time. `properties` is a
    column that is a map, or columns whose names and values are properties, or columns by the names of properties.
    Numbers become texts; a null or an empty text is no property. With `by_key` messages with the same key go to the
    same queue.
    A row is stored once, even if the connection breaks. With a `writer_id` that is also true of a program that was
    killed and writes the same rows again: a writer id names one write, and rows that are stored already are counted in
    `repeated_message_count`. Memory holds a batch of `data` and `window_bytes` bytes without an outcome.
    Raises ReputError; BadRowError for a row that can't be a message, with its column and number; ValueError for columns
    that can't be parts of messages. Rows before a bad row may be stored.
    """
    if not 1 <= batch_size_bytes <= min(window_bytes, BATCH_SIZE_BYTES_MAX):
        raise ValueError(
            f"batch_size_bytes is {batch_size_bytes}: expected 1 to {BATCH_SIZE_BYTES_MAX}, at most window_bytes"
        )
    property_map = properties if isinstance(properties, str) else ""
    if not isinstance(properties, str | Mapping):
        properties = {name: name for name in properties}
    columns = Columns(
        body=body, queue_id=queue_id, key=key, keys=keys, tag=tag, properties=property_map, born_time=born_time,
        property_columns=properties if isinstance(properties, Mapping) else {},
    )  # fmt: skip
    if key and keys:
        raise ValueError("key and keys are both given")
    if by_key and not key and not keys:
        raise ValueError("by_key needs key or keys")
    encoder = Encoder(columns, topic=topic, has_sharding_key=by_key)
    channels = client._channels  # noqa: SLF001 - a client keeps the writers that it makes; a write has one of its own
    queue = WriteQueue(writer_id or f"frames-{uuid.uuid4().hex}", durability=durability, window_bytes=window_bytes)
    chunks = (chunk for batch in batches_of(data) for chunk in encoder.chunks(_checked(batch, columns)))
    with Writer(lambda: AppendStream(channels), queue, channels.retry) as writer:
        _append(writer, cut(chunks, batch_size_bytes), columns)
    return queue.written


def batches_of(data: Data) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of data. Raises TypeError."""
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    elif hasattr(data, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(data)
    else:
        for batch in data:
            if not isinstance(batch, pa.RecordBatch):
                raise TypeError(f"data has a {type(batch).__name__}: expected a table, or record batches")
            yield batch


def cut(chunks: Iterable[bytes], batch_size_bytes: int) -> Iterator[Batch]:
    """Yield batches of at least `batch_size_bytes` bytes, or of the most messages. The last may be smaller."""
    waiting: list[bytes] = []
    size_bytes = 0
    for chunk in chunks:
        if size_bytes >= batch_size_bytes or len(waiting) == BATCH_MESSAGE_COUNT_MAX:
            yield Batch(b"".join(waiting), len(waiting))
            waiting, size_bytes = [], 0
        waiting.append(chunk)
        size_bytes += len(chunk)
    if waiting:
        yield Batch(b"".join(waiting), len(waiting))


def _append(writer: Writer, batches: Iterable[Batch], columns: Columns) -> None:
    """Append batches until all are stored. Raises BadRowError in place of a refusal that names a message."""
    counts: deque[int] = deque()
    """Rows of the batches without an outcome."""
    stored_count = row_count = 0

    def settle() -> None:
        nonlocal stored_count, row_count
        while stored_count < writer.next_sequence:
            stored_count, row_count = stored_count + 1, row_count + counts.popleft()

    try:
        for batch in batches:
            counts.append(batch.message_count)
            writer.append_encoded(batch)
            settle()
        writer.flush()
    except ReputError as error:
        settle()
        refused = REFUSED.match(error.metadata.get("field", ""))
        if refused is None:
            raise
        part = {"body": columns.body, "queue_id": columns.queue_id}.get(refused[2], refused[2] or "value")
        limit = f"; the limit is {error.metadata['limit']}" if error.metadata.get("limit") else ""
        raise BadRowError(part, row_count + int(refused[1]), f"is refused: {error}{limit}") from error


def _checked(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """Return a batch whose columns can be parts of messages. Raises ValueError."""
    wanted = {
        "body": columns.body, "key": columns.key, "keys": columns.keys, "tag": columns.tag,
        "properties": columns.properties, "queue_id": columns.queue_id, "born_time": columns.born_time,
        **{f"property {name}": column for name, column in columns.property_columns.items()},
    }  # fmt: skip
    for argument, name in wanted.items():
        if not name:
            continue
        if batch.schema.get_field_index(name) < 0:
            raise ValueError(f"{argument} is column {name!r}: there are {', '.join(batch.schema.names)}, each once")
        kind: Any = batch.schema.field(name).type
        if not _fits(argument, kind):
            raise ValueError(f"{argument} is column {name!r}, which has type {kind}")
    return batch


def _fits(argument: str, kind: Any) -> bool:
    is_list = kinds.is_list(kind) or kinds.is_large_list(kind)
    match argument:
        case "body":
            return is_bytes(kind)
        case "keys":
            return is_list and is_bytes(kind.value_type)
        case "properties":
            return kinds.is_map(kind) or kinds.is_struct(kind) or (is_list and kinds.is_struct(kind.value_type))
        case "queue_id":
            return kinds.is_integer(kind)
        case "born_time":
            return kinds.is_timestamp(kind) or kinds.is_integer(kind)
    return kinds.is_null(kind) or not kinds.is_nested(kind)
