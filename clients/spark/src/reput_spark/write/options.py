# SPDX-License-Identifier: Apache-2.0
"""Options of writes in `format("reput")`. Uses neither Spark nor the network. docs/spark-reference.md has the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reput_spark.errors import BadOption
from reput_spark.values import (
    KAFKA_ADDRESS_NAMES,
    REQUIRED,
    STORE,
    CallOptions,
    addresses,
    boolean,
    canonical,
    choice,
    matching,
    names_of,
    number,
    option,
    size_bytes,
    topic_name,
    values_of,
    with_store,
)

ALIASES = dict.fromkeys(KAFKA_ADDRESS_NAMES, "commitlog.endpoint")

BATCH_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Largest batch. The CommitLog accepts requests of 16 MiB, and the last message of a batch may be large."""
WINDOW_SIZE_BYTES_MAX = 1 << 30
WRITER_ID = matching("[!-~]{1,100}", "1 to 100 printable ASCII characters without spaces")


@dataclass(frozen=True, slots=True)
class WriteOptions(CallOptions):
    """The options of a write: topic, durability, batches, and the calls of the CommitLog."""

    endpoints: tuple[str, ...] = option("commitlog.endpoint", addresses, REQUIRED)
    retry_count_max: int = option("numRetries", number(0, 1000), 8)
    topic: str = option("topic", topic_name, "")
    """Topic of all rows; empty if a column names it."""
    has_sharding_key: bool = option("partitionBy", choice(none=False, key=True), False)
    """Messages with the same key are appended to the same queue."""
    durability: int = option("durability", choice(store=0, memory=1, disk=2, replicated=3), 2)
    """The durability that every row waits for, as in reput/common/v1/message.proto."""
    is_idempotent: bool = option("idempotent", boolean, True)
    """Batches name their writer, so that the log stores each a single time."""
    writer_id: str = option("writerId", WRITER_ID, "")
    """Name of a batch write; empty for a random name."""
    changed_replay: str = option("changedReplay", choice(append="append", fail="fail"), "append")
    """The action when a batch that is written again has other rows than the stored batch."""
    batch_size_bytes: int = option("batchBytes", size_bytes(BATCH_SIZE_BYTES_MAX), 512 * 1024)
    window_size_bytes: int = option("windowBytes", size_bytes(WINDOW_SIZE_BYTES_MAX), 8 * 1024 * 1024)
    """Bytes that may wait for their outcome."""


NAMES = (*names_of(WriteOptions), "endpoint", "checkpointLocation", STORE)
"""`endpoint` is for reading and `checkpointLocation` is Spark's own; both may be given and are ignored here."""


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Names are case-insensitive. Raises BadOption."""
    given = with_store(canonical(options, NAMES, ALIASES), "commitlog.endpoint")
    parsed = WriteOptions(**values_of(WriteOptions, given))
    if parsed.window_size_bytes < parsed.batch_size_bytes:
        raise BadOption("windowBytes", f"is below the {parsed.batch_size_bytes} bytes of a batch")
    return parsed
