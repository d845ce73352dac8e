# SPDX-License-Identifier: Apache-2.0
"""Options of `format("reput")`: text in, checked values out. Knows no Spark and no network.

Invariant: a ReadOptions is complete and consistent, and pickles; it holds no secret, only where to find one.
An unknown option is an error, because a misspelt filter would read everything. docs/spark-reference.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

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
TOPIC_NAMES = ("subscribe", "subscribePattern", "assign")
NAMES = (
    "endpoint", *TOPIC_NAMES, "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "key", "keys",
    "tag", "queues", "maxOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition",
    "failOnDataLoss", "fetchBytes", "compression", "includeProperties", "includeHeaders", *CALL_NAMES,
)  # fmt: skip
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "key", "keys")
STREAM_ONLY = ("maxOffsetsPerTrigger",)

KEYS_COUNT_MAX = 10_000
"""Most keys of one read; the Indexer's own limit."""
FRAME_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame that the Indexer aims at."""

QUEUE_ID_MAX = 65_535
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Offsets = dict[str, dict[int, int]]
"""By topic and queue id: a queue offset, or EARLIEST, or LATEST."""


@dataclass(frozen=True, slots=True)
class ReadOptions(CallOptions):
    """What to read, how to cut it, and how to call the Indexer."""

    topics: tuple[str, ...]
    """Empty if a pattern or an assignment names them."""
    topic_pattern: str
    """A regular expression for whole names; empty without one."""
    assigned: dict[str, tuple[int, ...]]
    """Queues by topic; empty without an assignment."""
    starts_latest: bool
    """A stream begins at the ends of the queues that no other option gives a start."""
    starting_offsets: Offsets
    """Inclusive. A queue that is not named is read from its first entry, or as starts_latest says."""
    ending_offsets: Offsets
    """Exclusive. A queue that is not named is read to its end."""
    start_time_ms: int | None
    """Store time, inclusive. Milliseconds since the epoch."""
    end_time_ms: int | None
    """Store time, exclusive. Milliseconds since the epoch."""
    starting_times_ms: Offsets
    """Store times by topic and queue id, inclusive."""
    ending_times_ms: Offsets
    """Store times by topic and queue id, exclusive."""
    fails_without_time: bool
    """A queue without a message at or after its starting time fails the query, instead of beginning at its end."""
    keys: tuple[str, ...]
    """Only messages with one of these keys; empty for all."""
    tag_expression: str
    """Only messages with one of these tags, `A||B`; empty for all."""
    queue_ids: tuple[int, ...]
    """Only these queues; empty for all."""
    trigger_row_count_max: int | None
    """Most entries of one micro-batch; None for all that there are."""
    partition_count_min: int
    partition_row_count_max: int
    partition_size_bytes_max: int
    fail_on_data_loss: bool
    frame_size_bytes: int
    compression: str
    """Of the frames: empty, `lz4` or `zstd`."""
    include_properties: bool
    include_headers: bool


def parse(options: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """Checks the options of a read; their names in any case. Raises BadOption."""
    given = canonical(options, NAMES, ALIASES)
    refuse_contradictions(given, is_stream=is_stream)
    position = given.get("startingOffsets", "latest" if is_stream else "earliest").strip().lower()
    parsed = ReadOptions(
        endpoints=required(given, "endpoint", endpoints),
        topics=value(given, "subscribe", topics, ()),
        topic_pattern=value(given, "subscribePattern", pattern, ""),
        assigned=value(given, "assign", assignment, {}),
        starts_latest=position == "latest",
        starting_offsets=value(given, "startingOffsets", offsets, {}),
        ending_offsets=value(given, "endingOffsets", offsets, {}),
        start_time_ms=value(given, "startingTimestamp", time_ms, None),
        end_time_ms=value(given, "endingTimestamp", time_ms, None),
        starting_times_ms=value(given, "startingOffsetsByTimestamp", times, {}),
        ending_times_ms=value(given, "endingOffsetsByTimestamp", times, {}),
        fails_without_time=value(given, "startingOffsetsByTimestampStrategy", time_strategy, True),
        keys=value(given, "keys", keys, ()) or value(given, "key", one_key, ()),
        tag_expression=value(given, "tag", tag_expression, ""),
        queue_ids=value(given, "queues", queue_ids, ()),
        trigger_row_count_max=value(given, "maxOffsetsPerTrigger", number(1, 2**62), None),
        partition_count_min=value(given, "minPartitions", number(1, 10_000), 1),
        partition_row_count_max=value(given, "maxRecordsPerPartition", number(1, 2**62), 1_000_000),
        partition_size_bytes_max=value(given, "maxBytesPerPartition", size_bytes(2**62), 128 * 1024 * 1024),
        fail_on_data_loss=value(given, "failOnDataLoss", boolean, True),
        frame_size_bytes=value(given, "fetchBytes", size_bytes(FRAME_SIZE_BYTES_MAX), 1024 * 1024),
        compression=value(given, "compression", compression, ""),
        include_properties=value(given, "includeProperties", boolean, True),
        include_headers=value(given, "includeHeaders", boolean, False),
        **call_values(given, retry_count=3),
    )
    refuse_impossible(parsed, is_stream=is_stream)
    return parsed


def refuse_contradictions(given: Mapping[str, str], *, is_stream: bool) -> None:
    """Raises BadOption for options that can't be given together, or not here."""
    for first, second in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("startingOffsetsByTimestamp", "startingOffsets"),
        ("startingOffsetsByTimestamp", "startingTimestamp"),
        ("endingOffsetsByTimestamp", "endingOffsets"),
        ("endingOffsetsByTimestamp", "endingTimestamp"),
        ("assign", "queues"),
        ("key", "keys"),
    ):
        if first in given and second in given:
            raise BadOption(second, f"can't be combined with {first!r}")
    chosen = [name for name in TOPIC_NAMES if given.get(name, "").strip()]
    if not chosen:
        raise BadOption("subscribe", "is required, or subscribePattern, or assign")
    if len(chosen) > 1:
        raise BadOption(chosen[1], f"can't be combined with {chosen[0]!r}")
    for name in BATCH_ONLY if is_stream else STREAM_ONLY:
        if name in given:
            raise BadOption(name, "is for batch reads" if is_stream else "is for streams")
    if not is_stream and given.get("startingOffsets", "").strip().lower() == "latest":
        raise BadOption("startingOffsets", "a batch read that starts at the end reads nothing")
    if given.get("endingOffsets", "").strip().lower() == "earliest":
        raise BadOption("endingOffsets", "a read that ends at the start reads nothing")


def refuse_impossible(parsed: ReadOptions, *, is_stream: bool) -> None:
    """Raises BadOption for values that can't be meant together."""
    starts_latest = any(value == LATEST for queues in parsed.starting_offsets.values() for value in queues.values())
    if starts_latest and not is_stream:
        raise BadOption("startingOffsets", "a batch read that starts at the end reads nothing")
    for option, by_topic in (
        ("startingOffsets", parsed.starting_offsets),
        ("endingOffsets", parsed.ending_offsets),
        ("startingOffsetsByTimestamp", parsed.starting_times_ms),
        ("endingOffsetsByTimestamp", parsed.ending_times_ms),
    ):
        for topic in by_topic:
            if not parsed.topic_pattern and topic not in parsed.topics and topic not in parsed.assigned:
                raise BadOption(option, f"names topic {topic!r}, which is not subscribed")
    end_time_ms = parsed.end_time_ms
    if parsed.start_time_ms is not None and end_time_ms is not None and end_time_ms < parsed.start_time_ms:
        raise BadOption("endingTimestamp", "lies before startingTimestamp")


def offsets(name: str, text: str) -> Offsets:
    """Parses `earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}`."""
    if text.lower() in ("earliest", "latest"):
        return {}
    found = by_queue(name, text, 'earliest, latest nor {"topic": {"queue": offset}}')
    for queues in found.values():
        for offset in queues.values():
            if type(offset) is not int or not EARLIEST <= offset < 2**63:
                raise BadOption(name, f"{offset!r} is not an offset, -2 (earliest) or -1 (latest)")
    return found


def times(name: str, text: str) -> Offsets:
    """Parses `{"topic": {"0": 1700000000000}}`: milliseconds since the epoch."""
    found = by_queue(name, text, '{"topic": {"queue": milliseconds}}')
    for queues in found.values():
        for moment in queues.values():
            if type(moment) is not int or not 0 <= moment < 10**15:
                raise BadOption(name, f"{moment!r} is not a time in milliseconds since 1970")
    return found


def by_queue(name: str, text: str, form: str) -> dict[str, dict[int, Any]]:
    """Parses a JSON object of topics with objects of queues."""
    parsed = json_value(name, text)
    if not isinstance(parsed, dict):
        raise BadOption(name, f"is neither {form}")
    result: dict[str, dict[int, Any]] = {}
    for topic, queues in parsed.items():
        if not isinstance(queues, dict):
            raise BadOption(name, f"{topic!r} has no object of queues")
        for queue in queues:
            if not queue.isascii() or not queue.isdigit() or int(queue) > QUEUE_ID_MAX:
                raise BadOption(name, f"{queue!r} is not a queue id")
        result[topic] = {int(queue): found for queue, found in queues.items()}
    return result


def assignment(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """Parses `{"topic": [0, 2]}`."""
    parsed = json_value(name, text)
    if not isinstance(parsed, dict) or not parsed:
        raise BadOption(name, 'is not {"topic": [queue, ...]}')
    result = {}
    for topic, queues in parsed.items():
        topics(name, topic)
        if not isinstance(queues, list) or not queues:
            raise BadOption(name, f"{topic!r} has no list of queues")
        for queue in queues:
            if type(queue) is not int or not 0 <= queue <= QUEUE_ID_MAX:
                raise BadOption(name, f"{queue!r} is not a queue id")
        result[topic] = tuple(sorted(set(queues)))
    return result


def pattern(name: str, text: str) -> str:
    """Checks a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(name, f"{text!r} is not a regular expression: {error}") from error
    return text


def time_strategy(name: str, text: str) -> bool:
    """Whether a queue without a message at or after its starting time fails the query."""
    if text.lower() not in ("error", "latest"):
        raise BadOption(name, f"{text!r} is neither error nor latest")
    return text.lower() == "error"


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
    convert = number(0, QUEUE_ID_MAX)
    return tuple(sorted({convert(name, part.strip()) for part in text.split(",")}))


def compression(name: str, text: str) -> str:
    """Checks the compression of frames."""
    if text.lower() not in ("none", "lz4", "zstd"):
        raise BadOption(name, f"{text!r} is none of none, lz4, zstd")
    return "" if text.lower() == "none" else text.lower()
