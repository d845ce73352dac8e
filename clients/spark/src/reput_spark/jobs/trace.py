# SPDX-License-Identifier: Apache-2.0
"""Follows keys through topics: a job for spark-submit, or the command reput-trace.

    reput-trace --endpoint indexer:7102 --topic-pattern '.*' --key O-17

Prints every message with one of the keys in the order of store times, or writes them to Parquet.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reput_spark.jobs import command
from reput_spark.jobs.command import Chosen, Job
from reput_spark.read.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_COLUMNS = ("timestamp", "topic", "partition", "offset", "key", "tag", "value")
VALUE_SHOWN_MAX = 120


@dataclass(frozen=True, slots=True)
class Traced:
    """What was found."""

    row_count: int
    topic_count: int
    output: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job and returns its exit code."""
    return command.execute(JOB, arguments)


def argument_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command.new_parser("reput-trace", "Follow keys through topics, in the order of store times.")
    command.add_topics(parser)
    command.add_times(parser)
    add = parser.add_argument
    add("--key", action="append", required=True, help="a key to follow; may be repeated")
    add("--rows", type=int, default=1000, help="most rows that are printed (default: %(default)s)")
    add("--output", metavar="URI", help="write Parquet there instead of printing")
    return parser


def source_options(chosen: Chosen) -> dict[str, str]:
    """The data source's options. Raises BadOption."""
    options = {"keys": json.dumps(chosen.key)} | command.time_options(chosen) | command.topic_options(chosen)
    parse(options)
    return options


def dry_run(chosen: Chosen) -> str:
    """What would be looked up. Raises CallFailed."""
    from reput_spark.read.plan import plan

    return command.planned(chosen, plan(parse(source_options(chosen))))


def run(spark: SparkSession, chosen: Chosen) -> str:
    """Prints or writes what was found."""
    frame: DataFrame = spark.read.format("reput").options(**source_options(chosen)).load()
    ordered = frame.orderBy("timestamp", "topic", "partition", "offset").cache()
    row_count, topic_count = ordered.count(), ordered.select("topic").distinct().count()
    if chosen.output:
        ordered.coalesce(1).write.mode("errorifexists").parquet(chosen.output)
    lines = [] if chosen.output else [_line(row, chosen) for row in ordered.select(*SHOWN_COLUMNS).take(chosen.rows)]
    traced = Traced(row_count=row_count, topic_count=topic_count, output=chosen.output or "")
    return "\n".join([*lines, command.outcome(chosen, "traced", traced)])


def _line(row: Any, chosen: Chosen) -> str:
    timestamp, topic, partition, offset, key, tag, value = row
    text = bytes(value).decode("utf-8", "replace")
    if chosen.json:
        document = [timestamp.isoformat(), topic, partition, offset, key, tag, text]
        return json.dumps(dict(zip(SHOWN_COLUMNS, document, strict=True)), ensure_ascii=False)
    return f"{timestamp.isoformat()}  {topic}/{partition}@{offset}  {key}  {tag or '-'}  {text[:VALUE_SHOWN_MAX]}"


JOB = Job(argument_parser, source_options, dry_run, run)

if __name__ == "__main__":
    sys.exit(main())
