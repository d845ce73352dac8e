# SPDX-License-Identifier: Apache-2.0
"""Offline dump and check of any store file, behind `reput inspect FILE`.

The file is mapped read-only and never changed. Kinds: segment, consume_queue, index_file, checkpoint, epoch_file,
topics, topic_journal, index_filter, consumer_offsets, delay_offsets, subscription_groups, checksummed,
retention_history, ballast, cut, lock, abort; and batch_queue and queue_extension, which only RocketMQ uses. The cost of
a damaged file is bounded by its size; memory is not proportional to it, except for the small files and the filters of
index files (cli/inspect/small.py). A store that is being written may show an unfinished last item: stop it first for a
verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

from cli.inspect.foreign import inspect_batch_queue, inspect_extension
from cli.inspect.index import inspect_index_file
from cli.inspect.inspection import Data, Inspection, Progress, Steps, UnknownKind, Window, mapped
from cli.inspect.queue import inspect_consume_queue
from cli.inspect.segment import inspect_segment
from cli.inspect.small import SMALL_KINDS, inspect_small
from libs.formats import store_layout
from libs.formats.indexes import consume_queue, index_file
from libs.formats.records import record
from libs.formats.state import checksummed, store_checkpoint
from libs.log.tail_search import MAGIC_OR_BLANK

_INSPECT_OF: dict[str, Callable[[Data, Inspection], Steps]] = {
    "segment": inspect_segment,
    "consume_queue": inspect_consume_queue,
    "index_file": inspect_index_file,
    "batch_queue": inspect_batch_queue,
    "queue_extension": inspect_extension,
    **dict.fromkeys(SMALL_KINDS, inspect_small),
}
KINDS = tuple(_INSPECT_OF)


def _last(path: str) -> str:
    return PurePath(path).name


_FOREIGN = {
    store_layout.BATCH_QUEUES: "batch_queue",
    _last(store_layout.COMPACTED_QUEUES): "batch_queue",
    store_layout.QUEUE_EXTENSIONS: "queue_extension",
    _last(store_layout.COMPACTED_LOG): None,
    store_layout.TIMER_LOG: None,
}
"""Directories of RocketMQ, and the kind of their files: None for files that are not read here, with any content."""
_KIND_OF_PATH = {
    store_layout.CHECKPOINT: "checkpoint",
    store_layout.EPOCHS: "epoch_file",
    store_layout.TOPICS: "topics",
    store_layout.TOPIC_JOURNAL: "topic_journal",
    store_layout.CONSUMER_OFFSETS: "consumer_offsets",
    store_layout.DELAY_OFFSETS: "delay_offsets",
    store_layout.GROUP_CONFIGS: "subscription_groups",
    store_layout.RETENTION_HISTORY: "retention_history",
    store_layout.BALLAST: "ballast",
    store_layout.INDEX_BALLAST: "ballast",
    store_layout.LOCK: "lock",
    store_layout.INDEXER_LOCK: "lock",
    store_layout.ABORT: "abort",
}
_KIND_OF_NAME = {_last(path): kind for path, kind in _KIND_OF_PATH.items()}


def inspect_file(
    path: Path,
    *,
    kind: str | None = None,
    start: int = 0,
    limit: int | None = None,
    progress: Progress = lambda _done: None,
) -> Inspection:
    """Return a stream of the file's items from number `start` on, `limit` at most, and of all faults of the whole file.

    `kind` None selects the kind by path and content. An index file that is not of RocketMQ's proportions (four entries
    per slot) needs `index_file:SLOTS`. Raises UnknownKind, or OSError when the file cannot be read.
    """
    name, _, slots = (kind or detect_kind(path)).partition(":")
    if name not in KINDS or (slots and (name != "index_file" or not slots.isdecimal())):
        raise UnknownKind(f"{kind!r} is not one of {', '.join(KINDS)}")
    size_bytes, window = path.stat().st_size, Window(start, limit)
    return Inspection(path, name, size_bytes, _INSPECT_OF[name], window, progress, int(slots or 0))


def detect_kind(path: Path) -> str:
    """Return the kind of a store file by its name, its directories, and at last its content. Raises UnknownKind."""
    if (kind := _KIND_OF_NAME.get(path.name.removesuffix(store_layout.BACKUP_SUFFIX))) is not None:
        return kind
    folders = path.absolute().parts[:-1]
    if store_layout.is_file_name(path.name):
        if folders[-1] == store_layout.COMMIT_LOG:
            return "segment"
        if store_layout.QUEUES in folders:
            return "consume_queue"
        for folder, kind in _FOREIGN.items():
            if folder in folders:
                if kind is None:
                    raise UnknownKind(f"{path}: what lies in {folder} is RocketMQ's alone")
                return kind
    if folders[-1] == store_layout.INDEX and store_layout.is_index_file_name(path.name):
        return "index_file"
    if folders[-1] == _last(store_layout.INDEX_FILTERS) and store_layout.is_index_file_name(path.name):
        return "index_filter"
    if folders[-1] == _last(store_layout.CUT) and store_layout.cut_offset(path.name) is not None:
        return "cut"
    with mapped(path) as data:
        kind = _kind_of_content(data)
    if kind is None:
        raise UnknownKind(f"neither name nor content of {path} tells its kind; give one of {', '.join(KINDS)}")
    return kind


def _kind_of_content(data: Data) -> str | None:
    head = data[:64]
    if head.startswith(checksummed.MAGIC):
        return "checksummed"
    if MAGIC_OR_BLANK.match(head, record.MAGIC_AT):
        return "segment"
    if head.lstrip().startswith(b"{"):
        return _kind_of_json(data[:4096])
    if head.startswith(store_layout.LOCK_CONTENT) and len(data) == len(store_layout.LOCK_CONTENT):
        return "lock"
    if len(data) == store_checkpoint.FILE_SIZE_BYTES:
        return "checkpoint"
    if len(data) == index_file.file_size_bytes():
        return "index_file"
    is_units = len(data) >= len(head) and len(data) % consume_queue.UNIT_SIZE_BYTES == 0
    if is_units and data and consume_queue.decode_unit(data).is_valid:
        return "consume_queue"
    return "index_file" if index_file.guess_slot_count(len(data)) else None


def _kind_of_json(text: bytes) -> str | None:
    if b'"topicConfigTable"' in text:
        return "topics"
    if b'"subscriptionGroupTable"' in text:
        return "subscription_groups"
    if b'"offsetTable"' in text:
        return "consumer_offsets" if b"@" in text else "delay_offsets"
    return None
