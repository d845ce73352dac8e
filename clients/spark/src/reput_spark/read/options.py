# SPDX-License-Identifier: Apache-2.0
"""Options of `format("reput")`: parses texts into checked values. Uses neither Spark nor the network.

Invariant: a ReadOptions is complete and consistent, and pickles. It holds no secret, only the names of files with
secrets. An unknown option is an error, because a misspelt filter would read all messages. docs/spark-reference.md has
the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reput_spark.errors import BadOption
from reput_spark.read.schema import DEFAULT_COLUMNS, HEADERS, PROPERTIES, SPARK_TYPES, spark_type
from reput_spark.values import (
    KAFKA_ADDRESS_NAMES,
    REQUIRED,
    STORE,
    CallOptions,
    addresses,
    boolean,
    canonical,
    choice,
    json_value,
    names_of,
    number,
    option,
    shard_names,
    size_bytes,
    topic_names,
    values_of,
    with_store,
)

EARLIEST, LATEST = -2, -1
"""Values in offset JSON, as in Spark's Kafka source: the first entry of a queue, and its end."""

ALIASES = {
    **dict.fromkeys(KAFKA_ADDRESS_NAMES, "endpoint"),
    "topic": "subscribe",
    "kafkaConsumer.pollTimeoutMs": "rpcTimeoutMs",
    "fetchOffset.numRetries": "numRetries",
    "fetchOffset.retryIntervalMs": "retryIntervalMs",
}
"""Names of Spark's Kafka source, and a name of its sink, with the same meaning."""
TOPIC_NAMES = ("subscribe", "subscribePattern", "assign")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "key", "keys")
STREAM_ONLY = ("maxOffsetsPerTrigger",)

KEYS_COUNT_MAX = 10_000
"""Most keys of a read; the Indexer's own limit."""
FRAME_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame that the Indexer aims at."""

QUEUE_ID_MAX = 65_535
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Offsets = dict[str, dict[int, int]]
"""By topic and queue id: a queue offset, or EARLIEST, or LATEST."""


def offsets(name: str, text: str) -> Offsets:
    """Parse `earliest`, `latest` or `{"topic": {"0": 23, "1": -2}}`."""
    if text.lower() in ("earliest", "latest"):
        return {}
    form = 'earliest, latest nor {"topic": {"queue": offset}}'
    return by_queue(name, text, form, range(EARLIEST, 2**63), "an offset, -2 (earliest) or -1 (latest)")


def is_latest(_name: str, text: str) -> bool:
    """Return whether a position is the end."""
    return text.lower() == "latest"


def times(name: str, text: str) -> Offsets:
    """Parse `{"topic": {"0": 1700000000000}}`: milliseconds since the epoch."""
    form = '{"topic": {"queue": milliseconds}}'
    found = by_queue(name, text, form, range(10**20), "a time in milliseconds since 1970")
    for queues in found.values():
        for value in queues.values():
            plausible(name, value)
    return found


def by_queue(name: str, text: str, form: str, allowed: range, what: str) -> Offsets:
    """Parse a JSON object of topics with objects of queues. `form` and `what` describe the accepted values."""
    parsed = json_value(name, text)
    if not isinstance(parsed, dict):
        raise BadOption(name, f"is neither {form}")
    result: Offsets = {}
    for topic, queues in parsed.items():
        if not isinstance(queues, dict):
            raise BadOption(name, f"{topic!r} has no object of queues")
        for queue, found in queues.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,4}", queue) or int(queue) > QUEUE_ID_MAX:
                raise BadOption(name, f"{queue!r} is not a queue id")
            if type(found) is not int or found not in allowed:
                raise BadOption(name, f"{found!r} is not {what}")
        result[topic] = {int(queue): found for queue, found in queues.items()}
    return result


def assignment(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """Parse `{"topic": [0, 2]}`."""
    parsed = json_value(name, text)
    if not isinstance(parsed, dict) or not parsed:
        raise BadOption(name, 'is not {"topic": [queue, ...]}')
    result = {}
    for topic, queues in parsed.items():
        topic_names(name, topic)
        if not isinstance(queues, list) or not queues:
            raise BadOption(name, f"{topic!r} has no list of queues")
        for queue in queues:
            if type(queue) is not int or not 0 <= queue <= QUEUE_ID_MAX:
                raise BadOption(name, f"{queue!r} is not a queue id")
        result[topic] = tuple(sorted(set(queues)))
    return result


def pattern(name: str, text: str) -> str:
    """Check a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(name, f"{text!r} is not a regular expression: {error}") from error
    return text


def time_ms(name: str, text: str) -> int:
    """Parse milliseconds since the epoch, or ISO-8601 with a zone. Parts of a millisecond are rounded up."""
    if re.fullmatch(r"[0-9]{1,20}", text):
        return plausible(name, int(text))
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


def plausible(name: str, value: int) -> int:
    """Return a time in milliseconds. Raises BadOption for a time in another unit, by the Python client's rule."""
    from reput_client.core.types import PLAUSIBLE_MS_MIN, TIME_MS_MAX

    if 0 < value < PLAUSIBLE_MS_MIN:
        raise BadOption(
            name,
            f"{value} looks like seconds: use milliseconds since 1970 ({value}000), or ISO-8601 for so early a time",
        )
    if value > TIME_MS_MAX:
        raise BadOption(name, f"{value} is behind the year 9999: use milliseconds since 1970, not a smaller unit")
    return value


def one_key(name: str, text: str) -> tuple[str, ...]:
    """Check a key."""
    if not text or " " in text:
        raise BadOption(name, f"{text!r} is not a key: keys are not empty and have no spaces")
    return (text,)


def key_list(name: str, text: str) -> tuple[str, ...]:
    """Parse a JSON array of keys."""
    parsed = json_value(name, text)
    if not isinstance(parsed, list) or not all(isinstance(item, str) for item in parsed):
        raise BadOption(name, "is not a JSON array of strings")
    if not 1 <= len(parsed) <= KEYS_COUNT_MAX:
        raise BadOption(name, f"has {len(parsed)} keys; 1 to {KEYS_COUNT_MAX} are possible")
    return tuple(dict.fromkeys(key for item in parsed for key in one_key(name, item)))


def tags(name: str, text: str) -> str:
    """Check tags separated by `||`."""
    if text in ("", "*"):
        return ""
    if not all(part.strip() for part in text.split("||")):
        raise BadOption(name, f"{text!r} has an empty tag")
    return text


def condition(_name: str, text: str) -> str:
    """Return a condition on properties unchanged: only the Indexer parses it."""
    return text


def column_names(name: str, text: str) -> tuple[str, ...]:
    """Parse names of columns separated by commas, in any case."""
    known = {column.lower(): column for column in SPARK_TYPES}
    for part in text.split(","):
        if part.strip().lower() not in known:
            raise BadOption(name, f"there is no column {part.strip()!r}; there are {', '.join(SPARK_TYPES)}")
    return tuple(dict.fromkeys(known[part.strip().lower()] for part in text.split(",")))


def queue_numbers(name: str, text: str) -> tuple[int, ...]:
    """Parse queue ids separated by commas."""
    convert = number(0, QUEUE_ID_MAX)
    return tuple(sorted({convert(name, part.strip()) for part in text.split(",")}))


@dataclass(frozen=True, slots=True)
class ReadOptions(CallOptions):
    """The options of a read: the selected messages, the partitions, and the calls of the Indexer."""

    endpoints: tuple[str, ...] = option("endpoint", addresses, REQUIRED)
    retry_count_max: int = option("numRetries", number(0, 1000), 3)
    shards: tuple[str, ...] = option("shards", shard_names, ())
    """Shards that are read as one store, at a gateway before them; empty for a single store, or a single shard."""
    topics: tuple[str, ...] = option("subscribe", topic_names, ())
    """Topics; empty if a pattern or an assignment names them."""
    topic_pattern: str = option("subscribePattern", pattern, "")
    """A regular expression for whole topic names; empty without a pattern."""
    assigned: dict[str, tuple[int, ...]] = option("assign", assignment, {})
    """Queues by topic; empty without an assignment."""
    starts_latest: bool = option("startingOffsets", is_latest, False)
    """A stream begins at the end of each queue that has no start from another option."""
    starting_offsets: Offsets = option("startingOffsets", offsets, {})
    """Inclusive. A queue that is not named is read from its first entry, or with starts_latest from its end."""
    ending_offsets: Offsets = option("endingOffsets", offsets, {})
    """Exclusive. A queue that is not named is read to its end."""
    start_time_ms: int | None = option("startingTimestamp", time_ms, None)
    """Store time, inclusive. Milliseconds since the epoch."""
    end_time_ms: int | None = option("endingTimestamp", time_ms, None)
    """Store time, exclusive. Milliseconds since the epoch."""
    starting_times_ms: Offsets = option("startingOffsetsByTimestamp", times, {})
    """Store times by topic and queue id, inclusive."""
    ending_times_ms: Offsets = option("endingOffsetsByTimestamp", times, {})
    """Store times by topic and queue id, exclusive."""
    fails_without_time: bool = option("startingOffsetsByTimestampStrategy", choice(error=True, latest=False), True)
    """A queue without a message at or after its starting time fails the query; otherwise it begins at its end."""
    keys: tuple[str, ...] = option("keys", key_list, ())
    """Only messages that have any of these keys; empty for all messages."""
    tag_expression: str = option("tag", tags, "")
    """Only messages that have any of these tags, `A||B`; empty for all messages."""
    where: str = option("where", condition, "")
    """Only messages whose properties fulfil this condition, in RocketMQ's SQL92; empty for all messages."""
    queue_ids: tuple[int, ...] = option("queues", queue_numbers, ())
    """Only these queues; empty for all."""
    trigger_row_count_max: int | None = option("maxOffsetsPerTrigger", number(1, 2**62), None)
    """Most entries of a micro-batch; None for all entries."""
    partition_count_min: int = option("minPartitions", number(1, 10_000), 1)
    partition_row_count_max: int = option("maxRecordsPerPartition", number(1, 2**62), 1_000_000)
    partition_size_bytes_max: int = option("maxBytesPerPartition", size_bytes(2**62), 128 * 1024 * 1024)
    fail_on_data_loss: bool = option("failOnDataLoss", boolean, True)
    frame_size_bytes: int = option("fetchBytes", size_bytes(FRAME_SIZE_BYTES_MAX), 1024 * 1024)
    compression: str = option("compression", choice(none="", lz4="lz4", zstd="zstd"), "")
    """Compression of the frames: empty, `lz4` or `zstd`."""
    columns: tuple[str, ...] = option("columns", column_names, ())
    """Only these columns, in this order; empty for the default columns."""
    include_properties: bool = option("includeProperties", boolean, True)
    include_headers: bool = option("includeHeaders", boolean, False)
    has_binary_key: bool = option("binaryKey", boolean, False)
    """Keys are bytes, as in Spark's Kafka source."""


NAMES = (*names_of(ReadOptions), "key", STORE)


def parse(options: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """Check the options of a read. Names are case-insensitive. Raises BadOption."""
    given = with_store(canonical(options, NAMES, ALIASES), "endpoint")
    refuse_contradictions(given, is_stream=is_stream)
    values = values_of(ReadOptions, {"startingOffsets": "latest" if is_stream else "earliest"} | given)
    if "key" in given:
        values["keys"] = one_key("key", given["key"].strip())
    parsed = ReadOptions(**values)
    refuse_impossible(parsed, is_stream=is_stream)
    return parsed


def refuse_contradictions(given: Mapping[str, str], *, is_stream: bool) -> None:
    """Raise BadOption for options that can't be given together, or not for this kind of read."""
    for first, second in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
        ("startingOffsetsByTimestamp", "startingOffsets"),
        ("startingOffsetsByTimestamp", "startingTimestamp"),
        ("endingOffsetsByTimestamp", "endingOffsets"),
        ("endingOffsetsByTimestamp", "endingTimestamp"),
        ("assign", "queues"),
        ("key", "keys"),
        ("columns", "includeProperties"),
        ("columns", "includeHeaders"),
        ("shard", "shards"),
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
    """Raise BadOption for values that contradict each other."""
    starts_latest = any(value == LATEST for queues in parsed.starting_offsets.values() for value in queues.values())
    if starts_latest and not is_stream:
        raise BadOption("startingOffsets", "a batch read that starts at the end reads nothing")
    if any(value == EARLIEST for queues in parsed.ending_offsets.values() for value in queues.values()):
        raise BadOption("endingOffsets", "a read that ends at the start reads nothing: -2 is for startingOffsets")
    for name, by_topic in (
        ("startingOffsets", parsed.starting_offsets),
        ("endingOffsets", parsed.ending_offsets),
        ("startingOffsetsByTimestamp", parsed.starting_times_ms),
        ("endingOffsetsByTimestamp", parsed.ending_times_ms),
    ):
        for topic in by_topic:
            if not parsed.topic_pattern and topic not in parsed.topics and topic not in parsed.assigned:
                raise BadOption(name, f"names topic {topic!r}, which is not subscribed")
    end_time_ms = parsed.end_time_ms
    if parsed.start_time_ms is not None and end_time_ms is not None and end_time_ms < parsed.start_time_ms:
        raise BadOption("endingTimestamp", "lies before startingTimestamp")


def default_ddl(options: ReadOptions) -> str:
    """Return the schema of a read without a schema of the user, as DDL."""
    names = options.columns or (
        *(name for name in DEFAULT_COLUMNS if options.include_properties or name != PROPERTIES),
        *([HEADERS] if options.include_headers else []),
    )
    return ", ".join(f"{name} {spark_type(name, has_binary_key=options.has_binary_key)}" for name in names)
