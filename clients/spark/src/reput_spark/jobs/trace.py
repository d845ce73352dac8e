# SPDX-License-Identifier: Apache-2.0
"""Follows keys through topics: a job for spark-submit, or the command reput-trace.

    reput-trace --endpoint indexer:7102 --topic-pattern '.*' --key O-17

Prints every message with one of the keys in the order of store times, or writes them to Parquet.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from reput_spark.jobs import command
from reput_spark.jobs.command import Chosen, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_COLUMNS = ("timestamp", "topic", "partition", "offset", "key", "tag", "value")
VALUE_SHOWN_MAX = 120


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command.new_parser("reput-trace", "Follow keys through topics, in the order of store times.")
    command.add_topics(parser)
    command.add_times(parser)
    add = parser.add_argument
    add("--key", action="append", required=True, help="a key to follow; may be repeated")
    add("--rows", type=int, default=1000, help="most rows that are printed (default: %(default)s)")
    add("--output", metavar="URI", help="write Parquet there instead of printing")
    return parser


def source_options(chosen: Chosen) -> dict[str, str]:
    """Return the data source's options. Raises BadOption."""
    own = {"keys": json.dumps(chosen.key), "startingTimestamp": chosen.start, "endingTimestamp": chosen.end}
    return command.source_options(chosen, own)


def run(spark: SparkSession, chosen: Chosen, options: dict[str, str]) -> str:
    """Print or write what was found."""
    frame: DataFrame = spark.read.format("reput").options(**options).load()
    ordered = frame.orderBy("timestamp", "topic", "partition", "offset").cache()
    row_count, topic_count = ordered.count(), ordered.select("topic").distinct().count()
    if chosen.output:
        ordered.coalesce(1).write.mode("errorifexists").parquet(chosen.output)
    lines = [] if chosen.output else [_line(row, chosen) for row in ordered.select(*SHOWN_COLUMNS).take(chosen.rows)]
    traced = {"row_count": row_count, "topic_count": topic_count, "output": chosen.output or ""}
    return "\n".join([*lines, command.outcome(chosen, "traced", traced)])


def _line(row: Any, chosen: Chosen) -> str:
    timestamp, topic, partition, offset, key, tag, value = row
    text = bytes(value).decode("utf-8", "replace")
    if chosen.json:
        document = [timestamp.isoformat(), topic, partition, offset, key, tag, text]
        return json.dumps(dict(zip(SHOWN_COLUMNS, document, strict=True)), ensure_ascii=False)
    return f"{timestamp.isoformat()}  {topic}/{partition}@{offset}  {key}  {tag or '-'}  {text[:VALUE_SHOWN_MAX]}"


main = Job(argument_parser, source_options, run)

if __name__ == "__main__":
    sys.exit(main())
