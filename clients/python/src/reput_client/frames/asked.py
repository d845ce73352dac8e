# SPDX-License-Identifier: Apache-2.0
"""What a read asks for: checked arguments, as the request of a plan. No I/O."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from reput.indexer.v1.scan_service_pb2 import ScanFilter, ScanRange

from reput_client.core.types import TimeLike, to_ms, to_timestamp
from reput_client.frames.columns import TYPES

Bounds: TypeAlias = tuple[int | None, int | None]
"""First entry and end, exclusive. None is the first stored entry, or the end."""
Offsets: TypeAlias = Mapping[int, Bounds] | Mapping[tuple[str, int], Bounds]
"""Bounds by queue id, for a single topic, or by topic and queue id."""

QUEUE_END = 2**63 - 1
"""The end of a queue, in a plan."""
DEFAULT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "tag", "properties", "born_timestamp")
COMPRESSIONS = ("", "lz4", "zstd")
FRAME_SIZE_BYTES_MAX = 8 << 20
"""Largest frame that the Indexer aims at."""


def names_of(topics: str | Iterable[str]) -> tuple[str, ...]:
    """Return the topics, each once. Raises ValueError for none."""
    names = tuple(dict.fromkeys((topics,) if isinstance(topics, str) else topics))
    if not names or "" in names:
        raise ValueError(f"topics is {topics!r}: expected a topic, or several")
    return names


def columns_of(columns: Iterable[str] | None) -> tuple[str, ...]:
    """Return the columns of a read. Raises ValueError for an unknown or repeated column, or none."""
    names = DEFAULT_COLUMNS if columns is None else tuple((columns,) if isinstance(columns, str) else columns)
    for name in names:
        if name not in TYPES:
            raise ValueError(f"columns names {name!r}: there are {', '.join(TYPES)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns is {names!r}: expected at least one column, and each once")
    return names


def filter_of(
    key: str | None,
    keys: Iterable[str],
    tags: str,
    where: str,
    start: TimeLike | None,
    end: TimeLike | None,
) -> ScanFilter:
    """Return the filter of a read. Raises ValueError and TypeError."""
    chosen = (keys,) if isinstance(keys, str) else tuple(keys)
    if key is not None and chosen:
        raise ValueError("key and keys are both given")
    chosen = tuple(dict.fromkeys(chosen if key is None else (key,)))
    for one in chosen:
        if not isinstance(one, str) or not one or " " in one:
            raise ValueError(f"key {one!r}: a key is a text that is not empty and has no space")
    if start is not None and end is not None and to_ms(end) < to_ms(start):
        raise ValueError(f"end is {end}, before start, {start}")
    return ScanFilter(
        tag_expression=tags, where=where, start_time=to_timestamp(start), end_time=to_timestamp(end), keys=chosen
    )


def ranges_of(topics: tuple[str, ...], offsets: Offsets) -> list[ScanRange]:
    """Return the ranges of queues that are cut. Raises ValueError and TypeError."""
    found = []
    for name, (start, end) in offsets.items():
        if isinstance(name, int) and len(topics) > 1:
            raise ValueError(f"offsets names queue {name}: with several topics it needs (topic, queue id)")
        topic, queue_id = (topics[0], name) if isinstance(name, int) else name
        if topic not in topics:
            raise ValueError(f"offsets names topic {topic!r}, which is not read")
        first, last = 0 if start is None else start, QUEUE_END if end is None else end
        if not 0 <= first <= last <= QUEUE_END:
            raise ValueError(
                f"offsets of {topic} queue {queue_id} are {start!r} to {end!r}: expected 0 <= start <= end"
            )
        found.append(ScanRange(topic=topic, queue_id=queue_id, start_queue_offset=first, end_queue_offset=last))
    return found


def check_form(*, thread_count: int, window_bytes: int, frame_size_bytes: int, compression: str) -> None:
    """Raise ValueError for a number or a word that is not possible."""
    for name, value, most in (
        ("thread_count", thread_count, 64),
        ("window_bytes", window_bytes, 1 << 40),
        ("frame_size_bytes", frame_size_bytes, FRAME_SIZE_BYTES_MAX),
    ):
        if not 1 <= value <= most:
            raise ValueError(f"{name} is {value}: expected 1 to {most}")
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is {compression!r}: expected one of {', '.join(map(repr, COMPRESSIONS))}")
