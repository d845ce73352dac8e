# SPDX-License-Identifier: Apache-2.0
"""Options of `format("reput")`: text in, checked values out. Knows no Spark and no network.

Invariant: a ReadOptions is complete and consistent, and pickles; it holds no secret, only where to find one.
An unknown option is an error, because a misspelt filter would read everything. docs/spark.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reput_spark.errors import BadOption
from reput_spark.values import (
    CALL_NAMES,
    CallOptions,
    boolean,
    call_values,
    canonical,
    endpoints,
    json_value,
    number,
    required,
    size_bytes,
    topics,
    value,
)

EARLIEST, LATEST = -2, -1
"""In offset JSON, as in Spark's Kafka source: the first entry of a queue, and its end."""

ALIASES = {"bootstrap.servers": "endpoint", "topic": "subscribe"}
NAMES = (
    "endpoint", "subscribe", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "key", "keys",
    "tag", "queues", "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition", "failOnDataLoss", "fetchBytes",
    "compression", "includeProperties", *CALL_NAMES,
)  # fmt: skip

KEYS_COUNT_MAX = 10_000
"""Most keys of one read; the Indexer's own limit."""
FRAME_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame that the Indexer aims at."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Offsets = dict[str, dict[int, int]]
"""By topic and queue id: a queue offset, or EARLIEST, or LATEST."""


@dataclass(frozen=True, slots=True)
class ReadOptions(CallOptions):
    """What to read, how to cut it, and how to call the Indexer."""

    topics: tuple[str, ...]
    starting_offsets: Offsets
    """Inclusive. A queue that is not named is read from its first entry."""
    ending_offsets: Offsets
    """Exclusive. A queue that is not named is read to its end."""
    start_time_ms: int | None
    """Store time, inclusive. Milliseconds since the epoch."""
    end_time_ms: int | None
    """Store time, exclusive. Milliseconds since the epoch."""
    keys: tuple[str, ...]
    """Only messages with one of these keys; empty for all."""
    tag_expression: str
    """Only messages with one of these tags, `A||B`; empty for all."""
    queue_ids: tuple[int, ...]
    """Only these queues; empty for all."""
    partition_count_min: int
    partition_row_count_max: int
    partition_size_bytes_max: int
    fail_on_data_loss: bool
    frame_size_bytes: int
    compression: str
    """Of the frames: empty, `lz4` or `zstd`."""
    include_properties: bool


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Checks the options of a read; their names in any case. Raises BadOption."""
    given = canonical(options, NAMES, ALIASES)

    parsed = ReadOptions(
        endpoints=required(given, "endpoint", endpoints),
        topics=required(given, "subscribe", topics),
        starting_offsets=value(given, "startingOffsets", offsets, {}),
        ending_offsets=value(given, "endingOffsets", offsets, {}),
        start_time_ms=value(given, "startingTimestamp", time_ms, None),
        end_time_ms=value(given, "endingTimestamp", time_ms, None),
        keys=value(given, "keys", keys, ()) or value(given, "key", one_key, ()),
        tag_expression=value(given, "tag", tag_expression, ""),
        queue_ids=value(given, "queues", queue_ids, ()),
        partition_count_min=value(given, "minPartitions", number(1, 10_000), 1),
        partition_row_count_max=value(given, "maxRecordsPerPartition", number(1, 2**62), 1_000_000),
        partition_size_bytes_max=value(given, "maxBytesPerPartition", size_bytes(2**62), 128 * 1024 * 1024),
        fail_on_data_loss=value(given, "failOnDataLoss", boolean, True),
        frame_size_bytes=value(given, "fetchBytes", size_bytes(FRAME_SIZE_BYTES_MAX), 1024 * 1024),
        compression=value(given, "compression", compression, ""),
        include_properties=value(given, "includeProperties", boolean, True),
        **call_values(given, retry_count=3),
    )
    refuse_contradictions(given, parsed)
    return parsed


def refuse_contradictions(given: Mapping[str, str], parsed: ReadOptions) -> None:
    """Raises BadOption for options that can't be meant together."""
    for first, second in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("key", "keys"),
    ):
        if first in given and second in given:
            raise BadOption(second, f"can't be combined with {first!r}")
    starts_latest = any(value == LATEST for queues in parsed.starting_offsets.values() for value in queues.values())
    if given.get("startingOffsets", "").strip().lower() == "latest" or starts_latest:
        raise BadOption("startingOffsets", "a batch read that starts at the end reads nothing")
    for option, by_topic in (("startingOffsets", parsed.starting_offsets), ("endingOffsets", parsed.ending_offsets)):
        for topic in by_topic:
            if topic not in parsed.topics:
                raise BadOption(option, f"names topic {topic!r}, which is not subscribed")
    if given.get("endingOffsets", "").strip().lower() == "earliest":
        raise BadOption("endingOffsets", "a read that ends at the start reads nothing")
    end_time_ms = parsed.end_time_ms
    if parsed.start_time_ms is not None and end_time_ms is not None and end_time_ms < parsed.start_time_ms:
        raise BadOption("endingTimestamp", "lies before startingTimestamp")


def offsets(name: str, text: str) -> Offsets:
    """Parses `earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}`."""
    if text.lower() in ("earliest", "latest"):
        return {}
    parsed = json_value(name, text)
    if not isinstance(parsed, dict):
        raise BadOption(name, 'is neither earliest, latest nor {"topic": {"queue": offset}}')
    result: Offsets = {}
    for topic, queues in parsed.items():
        if not isinstance(queues, dict):
            raise BadOption(name, f"{topic!r} has no object of queues")
        result[topic] = {}
        for queue, offset in queues.items():
            if not queue.isascii() or not queue.isdigit() or int(queue) > 65535:
                raise BadOption(name, f"{queue!r} is not a queue id")
            if type(offset) is not int or not EARLIEST <= offset < 2**63:
                raise BadOption(name, f"{offset!r} is not an offset, -2 (earliest) or -1 (latest)")
            result[topic][int(queue)] = offset
    return result


def time_ms(name: str, text: str) -> int:
    """Parses milliseconds since the epoch, or ISO-8601 with a zone; parts of a millisecond are rounded up."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadOption(name, f"{text!r} is neither milliseconds nor ISO-8601") from error
    if moment.tzinfo is None:
        raise BadOption(name, f"{text!r} has no time zone; add Z or an offset such as +02:00")
    milliseconds = -((EPOCH - moment) // timedelta(milliseconds=1))
    if milliseconds < 0:
        raise BadOption(name, f"{text!r} lies before 1970")
    return milliseconds


def one_key(name: str, text: str) -> tuple[str, ...]:
    """Checks one key."""
    if not text or " " in text:
        raise BadOption(name, f"{text!r} is not a key: keys are not empty and have no spaces")
    return (text,)


def keys(name: str, text: str) -> tuple[str, ...]:
    """Parses a JSON array of keys."""
    parsed = json_value(name, text)
    if not isinstance(parsed, list) or not all(isinstance(item, str) for item in parsed):
        raise BadOption(name, "is not a JSON array of strings")
    if not 1 <= len(parsed) <= KEYS_COUNT_MAX:
        raise BadOption(name, f"has {len(parsed)} keys; 1 to {KEYS_COUNT_MAX} are possible")
    return tuple(dict.fromkeys(key for item in parsed for key in one_key(name, item)))


def tag_expression(name: str, text: str) -> str:
    """Checks tags separated by `||`."""
    if text in ("", "*"):
        return ""
    if not all(part.strip() for part in text.split("||")):
        raise BadOption(name, f"{text!r} has an empty tag")
    return text


def queue_ids(name: str, text: str) -> tuple[int, ...]:
    """Parses queue ids separated by commas."""
    convert = number(0, 65535)
    return tuple(sorted({convert(name, part.strip()) for part in text.split(",")}))


def compression(name: str, text: str) -> str:
    """Checks the compression of frames."""
    if text.lower() not in ("none", "lz4", "zstd"):
        raise BadOption(name, f"{text!r} is none of none, lz4, zstd")
    return "" if text.lower() == "none" else text.lower()
