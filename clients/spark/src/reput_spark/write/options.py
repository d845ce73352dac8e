# SPDX-License-Identifier: Apache-2.0
"""Options of writes in `format("reput")`. Knows no Spark and no network. docs/spark-reference.md has the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from reput_spark.errors import BadOption
from reput_spark.values import (
    CALL_NAMES,
    TOPIC_PATTERN,
    CallOptions,
    boolean,
    call_values,
    canonical,
    endpoints,
    required,
    size_bytes,
    value,
)

NAMES = (
    "commitlog.endpoint", "endpoint", "topic", "partitionBy", "durability", "idempotent", "changedReplay", "writerId",
    "batchBytes", "windowBytes", "checkpointLocation", *CALL_NAMES,
)  # fmt: skip
"""`endpoint` is for reading and `checkpointLocation` is Spark's own; both may be given and mean nothing here."""
ALIASES = {"bootstrap.servers": "endpoint"}

BATCH_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Largest batch; the CommitLog takes requests of 16 MiB, and the last message of a batch may be large."""
WINDOW_SIZE_BYTES_MAX = 1 << 30

DURABILITIES = {"store": 0, "memory": 1, "disk": 2}
"""By name, as in reput/common/v1/message.proto."""

ChangedReplay = Literal["append", "fail"]


@dataclass(frozen=True, slots=True)
class WriteOptions(CallOptions):
    """What to write where, and how to call the CommitLog."""

    topic: str
    """Topic of all rows; empty if a column names it."""
    has_sharding_key: bool
    """Messages with the same key go to the same queue."""
    durability: int
    """What every row waits for, as in reput/common/v1/message.proto."""
    is_idempotent: bool
    """Batches name their writer, so that the log stores each once."""
    writer_id: str
    """Name of a batch write; empty for one that is made up."""
    changed_replay: ChangedReplay
    """What to do when a batch that is written again has other rows than the one that is stored."""
    batch_size_bytes: int
    window_size_bytes: int
    """Bytes that may wait for their outcome."""


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Checks the options of a write; their names in any case. Raises BadOption."""
    given = canonical(options, NAMES, ALIASES)
    batch = value(given, "batchBytes", size_bytes(BATCH_SIZE_BYTES_MAX), 512 * 1024)
    window = value(given, "windowBytes", size_bytes(WINDOW_SIZE_BYTES_MAX), 8 * 1024 * 1024)
    if window < batch:
        raise BadOption("windowBytes", f"is below the {batch} bytes of a batch")
    return WriteOptions(
        endpoints=required(given, "commitlog.endpoint", endpoints),
        topic=value(given, "topic", one_topic, ""),
        has_sharding_key=value(given, "partitionBy", partition_by, False),
        durability=DURABILITIES[value(given, "durability", durability, "disk")],
        is_idempotent=value(given, "idempotent", boolean, True),
        writer_id=value(given, "writerId", writer_id, ""),
        changed_replay=value(given, "changedReplay", changed_replay, "append"),
        batch_size_bytes=batch,
        window_size_bytes=window,
        **call_values(given, retry_count=8),
    )


def one_topic(name: str, text: str) -> str:
    """Checks a topic's name."""
    if TOPIC_PATTERN.fullmatch(text) is None:
        raise BadOption(name, f"{text!r} is not a topic name")
    return text


def partition_by(name: str, text: str) -> bool:
    """Whether the key chooses the queue."""
    if text.lower() not in ("none", "key"):
        raise BadOption(name, f"{text!r} is neither none nor key")
    return text.lower() == "key"


def writer_id(name: str, text: str) -> str:
    """Checks the name of a write."""
    if re.fullmatch(r"[!-~]{1,100}", text) is None:
        raise BadOption(name, f"{text!r} is not 1 to 100 printable ASCII characters without spaces")
    return text


def durability(name: str, text: str) -> str:
    """Checks the name of a durability."""
    if text.lower() not in DURABILITIES:
        raise BadOption(name, f"{text!r} is none of {', '.join(DURABILITIES)}")
    return text.lower()


def changed_replay(name: str, text: str) -> ChangedReplay:
    """Checks what to do about a batch that changed."""
    if text.lower() == "append":
        return "append"
    if text.lower() == "fail":
        return "fail"
    raise BadOption(name, f"{text!r} is neither append nor fail")
