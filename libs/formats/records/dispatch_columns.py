# SPDX-License-Identifier: Apache-2.0
"""DispatchResponse: the steps of the dispatch stream as bytes, without a protobuf object per value.

`encode` makes `DispatchResponse{columns}` from the kernel's columns. `decode` returns a response's columns as numpy
arrays. Both agree with protos/reput/commitlog/v1/log_service.proto field by field.
`decode` checks all input: lengths, wire types, text, equal column lengths, queue indexes and key counts.
Not handled: whether the offsets follow each other (ReputLoop).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from libs.formats import fields
from libs.formats.epoch import Epoch
from libs.formats.errors import BadField, BadLength
from libs.formats.limits import INT32_MAX
from libs.formats.protobuf_wire import LENGTH_DELIMITED, VARINT, int_field, length_delimited, signed
from libs.formats.protobuf_wire import fields as fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from libs.formats.buffers import ReadableBuffer
    from libs.kernel.scan.scan_columns import ScanColumns

NO_QUEUE = -1
"""Queue index of a record that has no place in a queue."""

QUEUE_COUNT_REMEMBERED = 1 << 17
"""Queues whose name is not encoded or decoded anew in each step: more than a store may have by default. Some 300 bytes
for each queue that gets messages."""

QUEUE_SIZE_BYTES_REMEMBERED = 512
"""Size of the longest encoded name that is remembered. No topic that may be created has a longer name."""

_HANDSHAKE: dict[int, int | str] = {
    fields.DISPATCH_HANDSHAKE_COMMON_END_PHYSICAL_OFFSET: 0,
    fields.DISPATCH_HANDSHAKE_EPOCH: 0,
    fields.DISPATCH_HANDSHAKE_MIN_PHYSICAL_OFFSET: 0,
    fields.DISPATCH_HANDSHAKE_CONFIRMED_PHYSICAL_OFFSET: 0,
    fields.DISPATCH_HANDSHAKE_HISTORY_ID: "",
}
_EPOCH: dict[int, int | str] = {fields.EPOCH_NUMBER: 0, fields.EPOCH_START_PHYSICAL_OFFSET: 0}
_SET_APART: dict[int, int | str] = {fields.DISPATCH_SET_APART_TOPIC: "", fields.DISPATCH_SET_APART_WHY: ""}
_TOPIC_BEGIN: dict[int, int | str] = {
    fields.DISPATCH_TOPIC_BEGIN_TOPIC: "",
    fields.DISPATCH_TOPIC_BEGIN_BEGIN_PHYSICAL_OFFSET: 0,
}
_HEARTBEAT: dict[int, int | str] = {
    fields.DISPATCH_HEARTBEAT_CONFIRMED_PHYSICAL_OFFSET: 0,
    fields.DISPATCH_HEARTBEAT_MIN_PHYSICAL_OFFSET: 0,
}
_COLUMNS: dict[int, tuple[str, type[np.int64 | np.int32]]] = {
    fields.DISPATCH_COLUMNS_PHYSICAL_OFFSETS: ("physical_offsets", np.int64),
    fields.DISPATCH_COLUMNS_RECORD_SIZES_BYTES: ("record_sizes", np.int32),
    fields.DISPATCH_COLUMNS_QUEUE_INDEXES: ("queue_indexes", np.int32),
    fields.DISPATCH_COLUMNS_QUEUE_OFFSETS: ("queue_offsets", np.int64),
    fields.DISPATCH_COLUMNS_TAGS_CODES: ("tags_codes", np.int64),
    fields.DISPATCH_COLUMNS_STORE_TIMES_MS: ("store_times_ms", np.int64),
    fields.DISPATCH_COLUMNS_KEY_COUNTS: ("key_counts", np.int32),
    fields.DISPATCH_COLUMNS_KEY_HASHES: ("key_hashes", np.int32),
}


class Handshake(Struct, frozen=True):
    """The log's handshake, with the end of the common history. Fields as in DispatchHandshake."""

    common_end_physical_offset: int
    epoch: int
    min_physical_offset: int
    confirmed_physical_offset: int
    history_id: str = ""
    set_apart: Mapping[str, str] = field(default_factory=dict)
    """By topic: why it is set apart."""
    epochs: tuple[Epoch, ...] = ()
    """The log's epochs, ascending. Empty if the log does not send them."""
    topic_begins: Mapping[str, int] = field(default_factory=dict)
    """Where the messages of deleted topics begin, for all deleted topics."""


class Heartbeat(Struct, frozen=True):
    """A step without records. Fields as in DispatchHeartbeat."""

    confirmed_physical_offset: int
    min_physical_offset: int
    topic_begins: Mapping[str, int] = field(default_factory=dict)
    """The topic begins that changed. 0 for a begin that does not exist any more."""


class DispatchBatch(Struct, frozen=True):
    """Consecutive records as columns. Fields as in DispatchColumns.

    Arrays are read-only. Arrays of a response keep it in memory. Arrays of scanned columns change with the next scan.
    """

    start_physical_offset: int
    end_physical_offset: int
    queues: list[tuple[str, int]]
    physical_offsets: NDArray[np.int64]
    record_sizes: NDArray[np.int32]
    queue_indexes: NDArray[np.int32]
    queue_offsets: NDArray[np.int64]
    tags_codes: NDArray[np.int64]
    store_times_ms: NDArray[np.int64]
    key_counts: NDArray[np.int32]
    key_hashes: NDArray[np.int32]
    batch_queues: frozenset[int] = frozenset()
    """Indexes of queues whose records each have a batch of messages."""

    def below(self, physical_offset: int) -> DispatchBatch:
        """Return the part whose records are below an offset. The part ends at this offset."""
        return self.split(physical_offset)[0]

    def split(self, physical_offset: int) -> tuple[DispatchBatch, DispatchBatch]:
        """Return the part whose records are below an offset, and the part that begins at this offset."""
        count = int(np.searchsorted(self.physical_offsets, physical_offset))
        counts = dict.fromkeys((name for name, _ in _COLUMNS.values()), count)
        counts["key_hashes"] = int(self.key_counts[:count].sum())
        below = {name: getattr(self, name)[:end] for name, end in counts.items()}
        above = {name: getattr(self, name)[start:] for name, start in counts.items()}
        return (
            replace(self, end_physical_offset=physical_offset, **below),
            replace(self, start_physical_offset=physical_offset, **above),
        )


def batch_of(columns: ScanColumns, start: int, end: int) -> DispatchBatch:
    """Return the records between two physical offsets as a batch. Its arrays are views, which the next scan changes.

    Bytes of a topic that are not UTF-8 are escaped.
    """
    arrays: dict[str, NDArray[Any]] = {
        name: np.frombuffer(getattr(columns, name), kind, columns.key_count if name == "key_hashes" else columns.count)
        for name, kind in _COLUMNS.values()
    }
    for array in arrays.values():
        array.flags.writeable = False
    queues = [(_text(topic), queue_id) for topic, queue_id in columns.queues()]
    return DispatchBatch(start, end, queues, batch_queues=columns.batch_queues, **arrays)


def encode(columns: ScanColumns, start: int, end: int) -> bytes:
    """Serialize `DispatchResponse{columns}` for records of the log between physical offsets `start` and `end`.

    Bytes of a topic that are not UTF-8 are escaped.
    """
    parts = [
        int_field(fields.DISPATCH_COLUMNS_START_PHYSICAL_OFFSET, start),
        int_field(fields.DISPATCH_COLUMNS_END_PHYSICAL_OFFSET, end),
    ]
    parts += [
        _encoded_queue(topic, queue_id, index in columns.batch_queues)
        for index, (topic, queue_id) in enumerate(columns.queues())
    ]
    for number, (name, _) in _COLUMNS.items():
        count = columns.key_count if number == fields.DISPATCH_COLUMNS_KEY_HASHES else columns.count
        if count:
            parts.append(length_delimited(number, memoryview(getattr(columns, name))[:count].tobytes()))
    return length_delimited(fields.DISPATCH_RESPONSE_COLUMNS, b"".join(parts))


def decode(data: ReadableBuffer) -> DispatchBatch | Handshake | Heartbeat:
    """Read a serialized DispatchResponse. The last of several steps is used, as in a protobuf oneof.

    Raises FormatError for malformed bytes, and BadField for a response without a known step.
    """
    step: tuple[int, memoryview] | None = None
    for number, wire_type, value in fields_of(data):
        if number in (
            fields.DISPATCH_RESPONSE_HANDSHAKE,
            fields.DISPATCH_RESPONSE_COLUMNS,
            fields.DISPATCH_RESPONSE_HEARTBEAT,
        ):
            step = (number, _bytes(number, wire_type, value))
    if step is None:
        raise BadField(position=0, reason="a dispatch response without a known step", field="step")
    number, payload = step
    if number == fields.DISPATCH_RESPONSE_COLUMNS:
        return _decode_columns(payload)
    if number == fields.DISPATCH_RESPONSE_HEARTBEAT:
        begins = _topic_begins(payload, fields.DISPATCH_HEARTBEAT_TOPIC_BEGINS)
        confirmed, first = _scalars(payload, _HEARTBEAT)
        return Heartbeat(confirmed, first, begins)
    common_end, epoch, start, confirmed, history_id = _scalars(payload, _HANDSHAKE)
    set_apart = dict(
        _scalars(piece, _SET_APART) for piece in _messages(payload, fields.DISPATCH_HANDSHAKE_SET_APART_TOPICS)
    )
    epochs = tuple(Epoch(*_scalars(piece, _EPOCH)) for piece in _messages(payload, fields.DISPATCH_HANDSHAKE_EPOCHS))
    begins = _topic_begins(payload, fields.DISPATCH_HANDSHAKE_TOPIC_BEGINS)
    return Handshake(common_end, epoch, start, confirmed, history_id, set_apart, epochs, begins)


def _topic_begins(payload: memoryview, number: int) -> dict[str, int]:
    return dict(_scalars(piece, _TOPIC_BEGIN) for piece in _messages(payload, number))


def _messages(payload: memoryview, number: int) -> Iterator[memoryview]:
    """Yield all messages of a repeated field."""
    return (_bytes(*found) for found in fields_of(payload) if found[0] == number)


def _decode_columns(payload: memoryview) -> DispatchBatch:
    start = end = 0
    queues: list[tuple[str, int]] = []
    batch_queues: list[int] = []
    raw: dict[int, memoryview] = {}
    for number, wire_type, value in fields_of(payload):
        if number == fields.DISPATCH_COLUMNS_QUEUES:
            payload_of_queue = bytes(_bytes(number, wire_type, value))
            read = _queue if len(payload_of_queue) <= QUEUE_SIZE_BYTES_REMEMBERED else _queue.__wrapped__
            name, is_batch = read(payload_of_queue)
            if is_batch:
                batch_queues.append(len(queues))
            queues.append(name)
        elif number == fields.DISPATCH_COLUMNS_START_PHYSICAL_OFFSET:
            start = _number(number, wire_type, value)
        elif number == fields.DISPATCH_COLUMNS_END_PHYSICAL_OFFSET:
            end = _number(number, wire_type, value)
        elif number in _COLUMNS:
            if number in raw:
                raise BadField(position=0, reason=f"{_COLUMNS[number][0]} come twice", field=_COLUMNS[number][0])
            raw[number] = _bytes(number, wire_type, value)
    batch = DispatchBatch(
        start_physical_offset=start,
        end_physical_offset=end,
        queues=queues,
        batch_queues=frozenset(batch_queues),
        **{name: _column(name, kind, raw.get(number, memoryview(b""))) for number, (name, kind) in _COLUMNS.items()},
    )
    _check(batch)
    return batch


def _check(batch: DispatchBatch) -> None:
    count = len(batch.physical_offsets)
    for name, _ in _COLUMNS.values():
        if name != "key_hashes" and len(getattr(batch, name)) != count:
            raise BadLength(position=0, reason=f"{len(getattr(batch, name))} {name} of {count} records", field=name)
    indexes = batch.queue_indexes
    if count and (int(indexes.min()) < NO_QUEUE or int(indexes.max()) >= len(batch.queues)):
        raise BadField(position=0, reason=f"a queue index beyond {len(batch.queues)} queues", field="queue_indexes")
    counts = batch.key_counts
    key_count = int(counts.sum(dtype=np.int64))
    if (count and int(counts.min()) < 0) or key_count != len(batch.key_hashes):
        raise BadLength(position=0, reason=f"{len(batch.key_hashes)} hashes for {key_count} keys", field="key_hashes")
    if len(batch.key_hashes) and int(batch.key_hashes.min()) < 0:
        raise BadField(position=0, reason="a negative key hash", field="key_hashes")


def _column(name: str, kind: type[np.int64 | np.int32], payload: memoryview) -> NDArray[Any]:
    """Return a view of the bytes, or an aligned copy if their address is not aligned."""
    dtype = np.dtype(f"<i{np.dtype(kind).itemsize}")
    if len(payload) % dtype.itemsize:
        raise BadLength(position=0, reason=f"{len(payload)} bytes of {name}", field=name)
    column: NDArray[Any] = np.frombuffer(payload, dtype)
    if not column.flags.aligned:
        column = column.copy()
        column.flags.writeable = False
    return column


def _text(topic: bytes) -> str:
    return topic.decode("utf-8", "backslashreplace")


@functools.lru_cache(QUEUE_COUNT_REMEMBERED)
def _encoded_queue(topic: bytes, queue_id: int, is_batch: bool) -> bytes:
    return length_delimited(
        fields.DISPATCH_COLUMNS_QUEUES,
        length_delimited(fields.DISPATCH_QUEUE_TOPIC, _text(topic).encode())
        + int_field(fields.DISPATCH_QUEUE_QUEUE_ID, queue_id)
        + int_field(fields.DISPATCH_QUEUE_IS_BATCH, int(is_batch)),
    )


@functools.lru_cache(QUEUE_COUNT_REMEMBERED)
def _queue(payload: bytes) -> tuple[tuple[str, int], bool]:
    """Return the name of a queue, and whether its records each have a batch of messages."""
    topic, queue_id, is_batch = b"", 0, False
    for number, wire_type, value in fields_of(payload):
        if number == fields.DISPATCH_QUEUE_TOPIC:
            topic = bytes(_bytes(number, wire_type, value))
        elif number == fields.DISPATCH_QUEUE_QUEUE_ID:
            queue_id = _number(number, wire_type, value)
        elif number == fields.DISPATCH_QUEUE_IS_BATCH:
            is_batch = _number(number, wire_type, value) != 0
    if not -INT32_MAX - 1 <= queue_id <= INT32_MAX:  # the Indexer skips records whose queue can't have a directory
        raise BadField(position=0, reason=f"queue id {queue_id}", field="queue_id")
    try:
        return (topic.decode(), queue_id), is_batch
    except UnicodeDecodeError:
        raise BadField(position=0, reason=f"topic {topic[:80]!r} is not UTF-8", field="topic") from None


def _scalars(payload: memoryview, defaults: Mapping[int, int | str]) -> tuple[Any, ...]:
    """Return the fields with a default, in the defaults' order and types. The last of several values is used."""
    values = dict(defaults)
    for number, wire_type, value in fields_of(payload):
        if isinstance(values.get(number), int):
            values[number] = _number(number, wire_type, value)
        elif number in values:
            values[number] = bytes(_bytes(number, wire_type, value)).decode("utf-8", "replace")
    return tuple(values.values())


def _bytes(number: int, wire_type: int, value: int | memoryview) -> memoryview:
    if wire_type != LENGTH_DELIMITED or isinstance(value, int):
        raise BadField(position=0, reason=f"field {number} has wire type {wire_type}", field="wire type")
    return value


def _number(number: int, wire_type: int, value: int | memoryview) -> int:
    if wire_type != VARINT or not isinstance(value, int):
        raise BadField(position=0, reason=f"field {number} has wire type {wire_type}", field="wire type")
    return signed(value)
