# SPDX-License-Identifier: Apache-2.0
"""Options of `format("reput")`: text in, checked values out. Knows no Spark and no network.

Invariant: a ReadOptions is complete and consistent, and pickles; it holds no secret, only where to find one.
An unknown option is an error, because a misspelt filter would read everything. docs/spark.md has the table.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from reput_spark.errors import BadOption

EARLIEST, LATEST = -2, -1
"""In offset JSON, as in Spark's Kafka source: the first entry of a queue, and its end."""

ALIASES = {"bootstrap.servers": "endpoint", "topic": "subscribe"}
NAMES = (
    "endpoint", "subscribe", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "key", "keys",
    "tag", "queues", "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition", "failOnDataLoss", "fetchBytes",
    "compression", "includeProperties", "rpcTimeoutMs", "numRetries", "retryIntervalMs", "auth.token.file",
    "tls.ca.file", "tls.cert.file", "tls.key.file",
)  # fmt: skip

KEYS_COUNT_MAX = 10_000
"""Most keys of one read; the Indexer's own limit."""
FRAME_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Largest frame that the Indexer aims at."""

TOPIC_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
ENDPOINT_PATTERN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):([0-9]{1,5})")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Offsets = dict[str, dict[int, int]]
"""By topic and queue id: a queue offset, or EARLIEST, or LATEST."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, how to cut it, and how to call."""

    endpoints: tuple[str, ...]
    """Addresses of Indexers of the same store, `host:port`; tried in turn."""
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
    rpc_timeout_ms: int
    """Longest wait for one answer or one frame."""
    retry_count_max: int
    """Retries in a row without progress before the read fails."""
    retry_interval_ms: int
    """Wait before the first retry; doubles with each."""
    auth_token_file: str
    tls_ca_file: str
    tls_cert_file: str
    tls_key_file: str


def parse(options: Mapping[str, str]) -> ReadOptions:
    """Checks the options of a read; their names in any case. Raises BadOption."""
    given = canonical(options)

    def value(name: str, convert: Callable[[str, str], T], default: T) -> T:
        text = given.get(name)
        return default if text is None else convert(name, text.strip())

    parsed = ReadOptions(
        endpoints=required(given, "endpoint", endpoints),
        topics=required(given, "subscribe", topics),
        starting_offsets=value("startingOffsets", offsets, {}),
        ending_offsets=value("endingOffsets", offsets, {}),
        start_time_ms=value("startingTimestamp", time_ms, None),
        end_time_ms=value("endingTimestamp", time_ms, None),
        keys=value("keys", keys, ()) or value("key", one_key, ()),
        tag_expression=value("tag", tag_expression, ""),
        queue_ids=value("queues", queue_ids, ()),
        partition_count_min=value("minPartitions", number(1, 10_000), 1),
        partition_row_count_max=value("maxRecordsPerPartition", number(1, 2**62), 1_000_000),
        partition_size_bytes_max=value("maxBytesPerPartition", size_bytes(2**62), 128 * 1024 * 1024),
        fail_on_data_loss=value("failOnDataLoss", boolean, True),
        frame_size_bytes=value("fetchBytes", size_bytes(FRAME_SIZE_BYTES_MAX), 1024 * 1024),
        compression=value("compression", compression, ""),
        include_properties=value("includeProperties", boolean, True),
        rpc_timeout_ms=value("rpcTimeoutMs", number(1, 3_600_000), 30_000),
        retry_count_max=value("numRetries", number(0, 1000), 3),
        retry_interval_ms=value("retryIntervalMs", number(0, 600_000), 1000),
        auth_token_file=given.get("auth.token.file", ""),
        tls_ca_file=given.get("tls.ca.file", ""),
        tls_cert_file=given.get("tls.cert.file", ""),
        tls_key_file=given.get("tls.key.file", ""),
    )
    refuse_contradictions(given, parsed)
    return parsed


def canonical(options: Mapping[str, str]) -> dict[str, str]:
    """The options by their own names. Raises BadOption for one that is unknown or given under two names."""
    known = {name.lower(): name for name in (*NAMES, *ALIASES)}
    given: dict[str, str] = {}
    for key, text in options.items():
        name = known.get(key.lower())
        if name is None:
            raise BadOption(key, unknown_option(key, known))
        target = ALIASES.get(name, name)
        if target in given:
            raise BadOption(key, f"given twice, it is the same as {target!r}")
        given[target] = text
    return given


def unknown_option(key: str, known: Mapping[str, str]) -> str:
    """Why an option is refused, with the name that was probably meant."""
    if key.lower() == "auth.token":
        return "options appear in query plans; use 'auth.token.file', or REPUT_CLIENT_TOKEN in the environment"
    if key.lower() == "path":
        return "load() takes no path; name the topic with 'subscribe'"
    near = difflib.get_close_matches(key.lower(), known, n=1)
    return "no such option" + (f"; did you mean {known[near[0]]!r}?" if near else "; docs/spark.md lists them")


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
    if bool(parsed.tls_cert_file) != bool(parsed.tls_key_file):
        raise BadOption("tls.cert.file", "and 'tls.key.file' need each other")


def required(given: Mapping[str, str], name: str, convert: Callable[[str, str], T]) -> T:
    """The value of an option that has no default."""
    if not given.get(name, "").strip():
        raise BadOption(name, "is required")
    return convert(name, given[name].strip())


def endpoints(name: str, text: str) -> tuple[str, ...]:
    """Parses `host:port[,host:port]`."""
    parts = tuple(part.strip() for part in text.split(","))
    for part in parts:
        match = ENDPOINT_PATTERN.fullmatch(part)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise BadOption(name, f"{part!r} is not host:port")
    return parts


def topics(name: str, text: str) -> tuple[str, ...]:
    """Parses topic names separated by commas."""
    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for part in parts:
        if TOPIC_PATTERN.fullmatch(part) is None:
            raise BadOption(name, f"{part!r} is not a topic name")
    return parts


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


def boolean(name: str, text: str) -> bool:
    """Parses true or false."""
    if text.lower() not in ("true", "false"):
        raise BadOption(name, f"{text!r} is neither true nor false")
    return text.lower() == "true"


def number(least: int, most: int) -> Callable[[str, str], int]:
    """A parser of whole numbers from `least` to `most`."""

    def convert(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise BadOption(name, f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return convert


def size_bytes(most: int) -> Callable[[str, str], int]:
    """A parser of sizes such as `65536`, `512k`, `128m`, `1g`, up to `most` bytes."""

    def convert(name: str, text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,19})\s*([kmg]?)b?", text.lower())
        size = int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]] if match else 0
        if not 1 <= size <= most:
            raise BadOption(name, f"{text!r} is not a size from 1 to {most} bytes, such as 512k or 128m")
        return size

    return convert


def json_value(name: str, text: str) -> Any:
    """Parses JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadOption(name, f"is not JSON: {error}") from error
