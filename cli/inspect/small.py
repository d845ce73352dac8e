# SPDX-License-Identifier: Apache-2.0
"""Inspection of a store's small files: each is read whole, and an error of its decoder is a finding.

Specs: docs/formats/store_checkpoint.md, epoch_file.md, config_files.md, reput_files.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from cli.inspect.inspection import Data, Finding, Inspection, Item, Steps
from libs.formats.config import consumer_offsets_json, delay_offsets_json, subscription_groups_json, topics_json
from libs.formats.errors import FormatError, NewerVersion
from libs.formats.state import abort_file, checksummed, epoch_file, index_filter, store_checkpoint, topic_journal
from libs.formats.store_layout import LOCK_CONTENT
from libs.kernel.scan.filter_cy import first_damaged

_TIME_MS_MAX = 4_102_444_800_000
"""1 January 2100: a later time in a checkpoint is damage."""


def inspect_small(data: Data, inspection: Inspection) -> Steps:
    """Yield the items of a file with a kind of SMALL_KINDS, and its faults: the errors of its decoder."""
    try:
        for step in _INSPECTION_OF[inspection.kind](bytes(data)):
            if isinstance(step, Finding) or inspection.window.shows(step.number):
                yield step
    except (FormatError, NewerVersion) as error:
        yield Finding(error.position, "file", error.field, error.reason)


def _checkpoint(data: bytes) -> Steps:
    checkpoint = store_checkpoint.decode(data)
    values = msgspec.structs.asdict(checkpoint)
    yield Item("checkpoint", 0, 0, {**values, "min_time_ms": checkpoint.min_time_ms})
    for position, name in store_checkpoint.FIELD_POSITIONS:
        is_time = name.endswith("_ms")
        least = 0 if is_time and not name.startswith("flushed") else -1
        if values[name] < least or (is_time and values[name] > _TIME_MS_MAX):
            yield Finding(position, "checkpoint", name, f"{values[name]} is not plausible")
    if len(data) != store_checkpoint.FILE_SIZE_BYTES:
        yield Finding(store_checkpoint.FILE_SIZE_BYTES, "file", "size", f"{len(data)} bytes, not 4096")
    if (stray := store_checkpoint.stray_position(data)) is not None:
        yield Finding(stray, "file", "padding", "a byte that belongs to no value is not zero")


def _epochs(data: bytes) -> Steps:
    for number, epoch in enumerate(epoch_file.decode(data)):
        yield Item("epoch", number, 0, {"epoch": epoch.number, "start_physical_offset": epoch.start_physical_offset})


def _topics(data: bytes) -> Steps:
    file = topics_json.loads(_text(data))
    for number, topic in enumerate(file.topics.values()):
        yield Item("topic", number, 0, msgspec.structs.asdict(topic))


def _topic_journal(data: bytes) -> Steps:
    journal, position = topic_journal.decode(data), 0
    for number, change in enumerate(journal.changes):
        yield Item("change", number, position, msgspec.to_builtins(change))
        position += checksummed.HEADER_SIZE_BYTES + checksummed.COVERED.unpack_from(data, position)[3]
    if journal.end < len(data):
        yield Finding(journal.end, "file", "size", f"the last {len(data) - journal.end} bytes are no whole change")


def _index_filter(data: bytes) -> Steps:
    header = index_filter.decode_filter_header(data)
    yield Item("filter", 0, 0, {**header._asdict(), "index_header": header.index_header._asdict()})
    if len(data) != header.file_size_bytes:
        yield Finding(min(len(data), header.file_size_bytes), "file", "size", f"{len(data)} bytes for {header}")
        return
    if (number := first_damaged(data[index_filter.FILTER_HEADER_SIZE_BYTES :], header.seed)) >= 0:
        position = index_filter.FILTER_HEADER_SIZE_BYTES + index_filter.BLOCK_SIZE_BYTES * number
        yield Finding(position, f"block {number}", "check", "the block does not have its check")


def _consumer_offsets(data: bytes) -> Steps:
    file = consumer_offsets_json.loads(_text(data))
    for number, ((topic, group), queues) in enumerate(file.offsets.items()):
        yield Item("group", number, 0, {"topic": topic, "group": group, "queue_offsets": queues})
        for queue_id, queue_offset in queues.items():
            if queue_offset < 0:
                item = f"{topic}@{group} queue {queue_id}"
                yield Finding(0, item, "queue offset", f"it is {queue_offset}")


def _delay_offsets(data: bytes) -> Steps:
    file = delay_offsets_json.loads(_text(data))
    for number, (level, queue_offset) in enumerate(file.offsets.items()):
        yield Item("delay level", number, 0, {"delay_level": level, "next_queue_offset": queue_offset})


def _subscription_groups(data: bytes) -> Steps:
    file = subscription_groups_json.loads(_text(data))
    for number, (name, group) in enumerate(file.groups.items()):
        fields = {
            "group": name,
            "is_enabled": group.is_enabled,
            "is_orderly": group.is_orderly,
            "retry_count_max": group.retry_count_max,
            "backoffs_ms": list(group.backoffs_ms),
        }
        yield Item("group", number, 0, fields)


def _checksummed(data: bytes) -> Steps:
    kind, version, payload = checksummed.unwrap_any(data)
    fields: dict[str, object] = {"kind": kind, "version": version, "payload_size_bytes": len(payload)}
    try:
        fields["payload"] = json.loads(payload)
    except (ValueError, RecursionError):
        fields["payload_preview"] = payload[:256].decode("utf-8", "backslashreplace")
    yield Item("envelope", 0, 0, fields)


def _retention_history(data: bytes) -> Steps:
    position = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        try:
            yield Item("run", number, position, json.loads(line))
        except (ValueError, RecursionError) as error:
            yield Finding(position, f"line {number}", "content", f"not JSON: {error}")
        position += len(line)


def _ballast(data: bytes) -> Steps:
    yield Item("ballast", 0, 0, {"size_bytes": len(data)})


def _cut(data: bytes) -> Steps:
    """Yield a copy of bytes that recovery truncated. It need not have a whole record."""
    yield Item("cut", 0, 0, {"size_bytes": len(data), "first_bytes": data[:16].hex()})


def _lock(data: bytes) -> Steps:
    yield Item("lock", 0, 0, {"size_bytes": len(data)})
    if data not in (LOCK_CONTENT, b""):
        yield Finding(0, "file", "content", f"{data[:16]!r} is not {LOCK_CONTENT!r}")


def _abort(data: bytes) -> Steps:
    abort = abort_file.decode(data)
    fields: dict[str, object] = {"process_id": abort.process_id}
    fields |= {"is_owed_to_rocketmq": abort.is_owed, "follows": abort.follows, "is_behind": abort.is_behind}
    yield Item("abort", 0, 0, fields)
    if abort.noise:
        yield Finding(0, "file", "content", f"{abort.noise[:16]!r} is no process id")


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(position=error.start, reason="not UTF-8") from None


_INSPECTION_OF: dict[str, Callable[[bytes], Steps]] = {
    "checkpoint": _checkpoint,
    "epoch_file": _epochs,
    "topics": _topics,
    "topic_journal": _topic_journal,
    "index_filter": _index_filter,
    "consumer_offsets": _consumer_offsets,
    "delay_offsets": _delay_offsets,
    "subscription_groups": _subscription_groups,
    "checksummed": _checksummed,
    "retention_history": _retention_history,
    "ballast": _ballast,
    "cut": _cut,
    "lock": _lock,
    "abort": _abort,
}
SMALL_KINDS = tuple(_INSPECTION_OF)
