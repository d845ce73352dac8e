# SPDX-License-Identifier: Apache-2.0
"""The description of a read, in a line for Spark's plans and job descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from reput_spark.read.options import EPOCH

if TYPE_CHECKING:
    from reput_spark.read.options import ReadOptions

SHOWN_COUNT_MAX = 3
"""A longer list is shown with its first names and its length."""
SIZE_MAX = 300


def described(options: ReadOptions) -> str:
    """Return the line: `reput orders key order-7 from 2026-11-26T00:00:00Z at indexer:7102`."""
    words = ["reput", _topics(options)]
    words += [f"queues {','.join(map(str, options.queue_ids))}"] if options.queue_ids else []
    words += [f"key {_some(options.keys)}"] if options.keys else []
    words += [f"tag {options.tag_expression}"] if options.tag_expression else []
    words += [f"from {_time(options.start_time_ms)}"] if options.start_time_ms is not None else []
    words += [f"to {_time(options.end_time_ms)}"] if options.end_time_ms is not None else []
    positions = (options.starting_offsets, options.ending_offsets, options.starting_times_ms, options.ending_times_ms)
    words += ["between given positions"] if any(positions) else []
    line = " ".join([*words, "at", ",".join(options.endpoints)])
    return line if len(line) <= SIZE_MAX else f"{line[: SIZE_MAX - 1]}…"


def _topics(options: ReadOptions) -> str:
    if options.topic_pattern:
        return f"/{options.topic_pattern}/"
    if options.assigned:
        return _some([f"{topic}[{','.join(map(str, ids))}]" for topic, ids in options.assigned.items()])
    return _some(options.topics)


def _some(names: Sequence[str]) -> str:
    shown = ",".join(names[:SHOWN_COUNT_MAX])
    return shown if len(names) <= SHOWN_COUNT_MAX else f"{shown},… ({len(names)})"


def _time(time_ms: int) -> str:
    return (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
