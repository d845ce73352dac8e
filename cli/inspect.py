# SPDX-License-Identifier: Apache-2.0
"""Offline dump and check of any store file, behind `reput inspect FILE`.

The file is mapped read-only and never changed. Kinds: segment, consume_queue, index_file, checkpoint, epoch_file,
topics, consumer_offsets, checksummed, lock, abort. What a damaged file costs is bounded by its size; memory is not
proportional to it. A store that is being written may show an unfinished last item: stop it first for a verdict.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.inspect_index import guess_slot_count, inspect_index_file
from cli.inspect_queue import inspect_consume_queue
from cli.inspect_segment import inspect_segment
from cli.inspection import Data, Finding, Inspection, Item, Progress, Steps, UnknownKind, Window
from libs.formats import (
    checksummed,
    consume_queue,
    consumer_offsets_json,
    epoch_file,
    index_file,
    offsets,
    record,
    store_checkpoint,
    topics_json,
)
from libs.formats.errors import FormatError

KINDS = (
    "segment",
    "consume_queue",
    "index_file",
    "checkpoint",
    "epoch_file",
    "topics",
    "consumer_offsets",
    "checksummed",
    "lock",
    "abort",
)
_KIND_OF_NAME = {
    "checkpoint": "checkpoint",
    "epochFileCheckpoint": "epoch_file",
    "topics.json": "topics",
    "consumerOffset.json": "consumer_offsets",
    "lock": "lock",
    "indexer.lock": "lock",
    "abort": "abort",
}
_LOCK = b"lock"
_TIME_MS_MAX = 4_102_444_800_000
"""1 January 2100: a later time in a checkpoint is damage."""


def inspect_file(
    path: Path,
    *,
    kind: str | None = None,
    start: int = 0,
    limit: int | None = None,
    progress: Progress = lambda _done, _total: None,
) -> Inspection:
    """A stream of the file's items from number `start` on, `limit` at most, and of all that is wrong in the whole file.

    `kind` None means: by path and content. An index file that is not of RocketMQ's proportions (four entries per slot)
    needs `index_file:SLOTS`. Raises UnknownKind, or OSError when the file cannot be read.
    """
    size_bytes = path.stat().st_size
    name, _, slots = (kind or detect_kind(path)).partition(":")
    if name not in KINDS or (slots and (name != "index_file" or not slots.isdecimal())):
        raise UnknownKind(f"{kind!r} is not one of {', '.join(KINDS)}")
    inspection = Inspection(path, name, size_bytes)
    window = Window(start, limit)

    def steps() -> Steps:
        with _mapped(path) as data:
            match name:
                case "segment":
                    yield from inspect_segment(data, _base(path), window, inspection.summary, progress)
                case "consume_queue":
                    topic = path.absolute().parent.parent.name if "consumequeue" in path.absolute().parts else None
                    yield from inspect_consume_queue(data, _base(path), topic, window, inspection.summary, progress)
                case "index_file":
                    slot_count = int(slots) if slots else None
                    yield from inspect_index_file(data, slot_count, window, inspection.summary, progress)
                case _:
                    yield from _small(data, _SMALL[name], window)

    inspection.steps = steps()
    return inspection


def detect_kind(path: Path) -> str:
    """The kind of a store file by its name, its directories, and at last its content; raises UnknownKind."""
    if (kind := _KIND_OF_NAME.get(path.name.removesuffix(".bak"))) is not None:
        return kind
    folders = path.absolute().parts[:-1]
    if _is_name(offsets.parse_file_name, path.name):
        if folders[-1] == "commitlog":
            return "segment"
        if "consumequeue" in folders:
            return "consume_queue"
    if folders[-1] == "index" and _is_name(index_file.parse_file_name, path.name):
        return "index_file"
    with _mapped(path) as data:
        kind = _kind_of_content(data)
    if kind is None:
        raise UnknownKind(f"neither name nor content of {path} tells its kind; give one of {', '.join(KINDS)}")
    return kind


def _kind_of_content(data: Data) -> str | None:
    head = data[:64]
    if head.startswith(checksummed.MAGIC):
        return "checksummed"
    magic = head[record.MAGIC_AT : record.BODY_CRC_AT]
    if magic in (record.INT.pack(value) for value in (record.MAGIC_V1, record.MAGIC_V2, record.MAGIC_BLANK)):
        return "segment"
    if head.lstrip().startswith(b"{"):
        text = data[:4096]
        return "topics" if b'"topicConfigTable"' in text else "consumer_offsets" if b'"offsetTable"' in text else None
    if head.startswith(_LOCK) and len(data) == len(_LOCK):
        return "lock"
    if len(data) == store_checkpoint.FILE_SIZE_BYTES:
        return "checkpoint"
    if len(data) == index_file.file_size_bytes():
        return "index_file"
    is_units = len(data) >= len(head) and len(data) % consume_queue.UNIT_SIZE_BYTES == 0
    if is_units and data and consume_queue.decode_unit(data).is_valid:
        return "consume_queue"
    return "index_file" if guess_slot_count(len(data)) is not None else None


def _is_name(parse: Callable[[str], int], name: str) -> bool:
    try:
        parse(name)
    except FormatError:
        return False
    return True


def _base(path: Path) -> int | None:
    try:
        return offsets.parse_file_name(path.name)
    except FormatError:
        return None


@contextmanager
def _mapped(path: Path) -> Iterator[Data]:
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _small(data: Data, inspect: Callable[[bytes], Steps], window: Window) -> Steps:
    """Run the inspection of a small file; whatever its decoder refuses is a finding."""
    try:
        for step in inspect(bytes(data)):
            if isinstance(step, Finding) or window.shows(step.number):
                yield step
    except FormatError as error:
        yield Finding(error.position, "file", error.field, error.reason)


def _checkpoint(data: bytes) -> Steps:
    checkpoint = store_checkpoint.decode(data)
    values = dataclasses.asdict(checkpoint)
    yield Item("checkpoint", 0, 0, {**values, "min_time_ms": checkpoint.min_time_ms})
    for index, (name, value) in enumerate(values.items()):
        is_time = name.endswith("_ms")
        if value < (0 if is_time else -1) or (is_time and value > _TIME_MS_MAX):
            yield Finding(8 * index, "checkpoint", name, f"{value} is not plausible")
    if len(data) != store_checkpoint.FILE_SIZE_BYTES:
        yield Finding(store_checkpoint.FILE_SIZE_BYTES, "file", "size", f"{len(data)} bytes, not 4096")
    rest = data[store_checkpoint.FIELDS.size :]
    if any(rest):
        position = len(data) - len(rest.lstrip(b"\0"))
        yield Finding(position, "file", "padding", "a byte behind the values is not zero")


def _epochs(data: bytes) -> Steps:
    for number, epoch in enumerate(epoch_file.decode(data)):
        yield Item("epoch", number, 0, {"epoch": epoch.number, "start_physical_offset": epoch.start_physical_offset})


def _topics(data: bytes) -> Steps:
    file = topics_json.loads(_text(data))
    for number, topic in enumerate(file.topics.values()):
        yield Item("topic", number, 0, dataclasses.asdict(topic))


def _consumer_offsets(data: bytes) -> Steps:
    file = consumer_offsets_json.loads(_text(data))
    for number, ((topic, group), queues) in enumerate(file.offsets.items()):
        yield Item("group", number, 0, {"topic": topic, "group": group, "queue_offsets": queues})
        for queue_id, queue_offset in queues.items():
            if queue_offset < 0:
                item = f"{topic}@{group} queue {queue_id}"
                yield Finding(0, item, "queue offset", f"it is {queue_offset}")


def _checksummed(data: bytes) -> Steps:
    kind, payload = checksummed.unwrap_any(data)
    fields: dict[str, object] = {"kind": kind, "payload_size_bytes": len(payload)}
    try:
        fields["payload"] = json.loads(payload)
    except ValueError:
        fields["payload_preview"] = payload[:256].decode("utf-8", "backslashreplace")
    yield Item("envelope", 0, 0, fields)


def _lock(data: bytes) -> Steps:
    yield Item("lock", 0, 0, {"size_bytes": len(data)})
    if data not in (_LOCK, b""):
        yield Finding(0, "file", "content", f"{data[:16]!r} is not {_LOCK!r}")


def _abort(data: bytes) -> Steps:
    yield Item("abort", 0, 0, {"process_id": int(data) if data.strip().isdigit() and len(data) < 20 else None})
    if data.strip() and not (data.strip().isdigit() and len(data) < 20):
        yield Finding(0, "file", "content", f"{data[:16]!r} is no process id")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(position=error.start, reason="not UTF-8") from None


_SMALL: dict[str, Callable[[bytes], Steps]] = {
    "checkpoint": _checkpoint,
    "epoch_file": _epochs,
    "topics": _topics,
    "consumer_offsets": _consumer_offsets,
    "checksummed": _checksummed,
    "lock": _lock,
    "abort": _abort,
}
