# SPDX-License-Identifier: Apache-2.0
"""The cost of Spark's read of a few keys in a topic of millions: records read, rows and bytes sent, beside the result.

The counts are the Indexer's own (its metrics), so they hold under any load of the machine.
"""

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_COUNT, BODY_SIZE_BYTES, KEY_COUNT = 5_000_000, 100, 1_000_000
CASES = {"no such key": ["order-none"], "1 key": ["order-777"], "1,000 keys": [f"order-{7 * n}" for n in range(1_000)]}
TOPIC, QUEUE_COUNT = "bench", 4
METRICS = {
    "records_read": "reput_indexer_index_locally_read_records_total",
    "rows_sent": "reput_indexer_index_scanned_rows_total",
    "bytes_sent": "reput_indexer_index_scanned_frames_bytes_total",
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read: its rows, the records that the Indexer read, the bytes that it sent, and the time that Spark needed."""

    name: str
    row_count: int
    result_bytes: int
    """Bodies, keys, tags, properties and numbers of the rows, as Arrow holds them."""
    records_read: int
    rows_sent: int
    bytes_sent: int
    seconds: float


def lookups(spark: "SparkSession", folder: Path) -> list[Lookup]:
    """Fill a topic through Spark and look keys up. The last lookup reads all of the topic."""
    with store.running(folder, "async", True) as served:
        from pyspark.sql import functions

        frame = spark.range(0, ROW_COUNT, numPartitions=QUEUE_COUNT).select(
            functions.expr(f"concat('order-', id % {KEY_COUNT})").alias("key"),
            functions.expr(
                f"substring(concat(sha2(cast(id as string), 256), sha2('', 256)), 1, {BODY_SIZE_BYTES})"
            ).alias("value"),
            functions.expr(f"cast(id % {QUEUE_COUNT} as int)").alias("partition"),
        )
        to_reput = {"commitlog.endpoint": served.commitlog, "topic": TOPIC, "durability": "memory"}
        frame.write.format("reput").options(**to_reput).mode("append").save()
        source = {"endpoint": served.indexer, "subscribe": TOPIC}
        while spark.read.schema("offset bigint").format("reput").options(**source).load().count() < ROW_COUNT:
            time.sleep(0.5)
        found = [_looked_up(spark, served, name, source | {"keys": json.dumps(keys)}) for name, keys in CASES.items()]
        return [*found, _looked_up(spark, served, "the whole topic", source)]


def report(found: Sequence[Lookup]) -> str:
    """Return the table as Markdown."""
    lines = [
        f"## Keys in a topic of {ROW_COUNT:,} messages of {BODY_SIZE_BYTES} bytes, {KEY_COUNT:,} keys",
        "",
        "| read | rows | bytes of the result | records read | rows sent | bytes sent | seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.name} | {one.row_count:,} | {one.result_bytes:,} | {one.records_read:,} | {one.rows_sent:,} "
        f"| {one.bytes_sent:,} | {one.seconds:.2f} |"
        for one in found
    ]
    told = "Records read and what was sent are the Indexer's counts; a frame has 1 to 2 KB beside its rows."
    return "\n".join([*lines, "", told]) + "\n"


def _looked_up(spark: "SparkSession", served: store.Store, name: str, options: dict[str, str]) -> Lookup:
    import pyarrow as pa

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"row_count": [batch.num_rows], "size_bytes": [batch.nbytes]})

    before, start_s = _counts(served), time.perf_counter()
    rows = spark.read.format("reput").options(**options).load()
    counted = rows.mapInArrow(sizes, "row_count bigint, size_bytes bigint").collect()
    seconds = time.perf_counter() - start_s
    sent = {figure: count - before[figure] for figure, count in _counts(served).items()}
    return Lookup(
        name, sum(one.row_count for one in counted), sum(one.size_bytes for one in counted), **sent, seconds=seconds
    )


def _counts(served: store.Store) -> dict[str, int]:
    """Return the Indexer's counts so far."""
    with urllib.request.urlopen(f"http://{served.indexer_metrics}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = {line.partition("{")[0].partition(" ")[0]: line.rpartition(" ")[2] for line in lines}
    return {figure: int(float(values[name])) for figure, name in METRICS.items()}
