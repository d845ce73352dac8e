# SPDX-License-Identifier: Apache-2.0
"""Follows keys through topics: a job for spark-submit, or the command reput-trace.

    reput-trace --store store:8081 --topic-pattern '.*' --key O-17

Prints all messages that have a given key in the order of store times, or writes them to Parquet.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput_spark.jobs import command, flags
from reput_spark.jobs.command import Chosen, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_COLUMNS = ("timestamp", "topic", "partition", "offset", "key", "tag", "value")
VALUE_SHOWN_MAX = 120


def source_options(chosen: Chosen) -> dict[str, str]:
    """Return the data source's options. Raises BadOption."""
    own = {"keys": json.dumps(chosen.key), "startingTimestamp": chosen.start, "endingTimestamp": chosen.end}
    return command.source_options(chosen, own)


def run(spark: SparkSession, chosen: Chosen, options: dict[str, str]) -> str:
    """Print or write the messages that were found."""
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
    if chosen.as_json:
        document = [timestamp.isoformat(), topic, partition, offset, key, tag, text]
        return json.dumps(dict(zip(SHOWN_COLUMNS, document, strict=True)), ensure_ascii=False)
    return f"{timestamp.isoformat()}  {topic}/{partition}@{offset}  {key}  {tag or '-'}  {text[:VALUE_SHOWN_MAX]}"


JOB = Job("reput-trace", source_options, run)


def reput_trace(
    endpoint: flags.Endpoint,
    key: Annotated[list[str], typer.Option(help="A key to follow; may be repeated.")],
    topic: flags.Topic = None,
    topic_pattern: flags.TopicPattern = None,
    tag: flags.Tag = None,
    start: flags.Start = None,
    end: flags.End = None,
    rows: Annotated[int, typer.Option(min=0, help="Most rows that are printed.")] = 1000,
    output: Annotated[str | None, typer.Option(metavar="URI", help="Write Parquet there instead of printing.")] = None,
    option: flags.Other = None,
    master: flags.Master = None,
    dry_run: flags.DryRun = False,
    as_json: flags.Json = False,
) -> None:
    """Follow keys through topics, in the order of store times.

    Example: reput-trace --store 127.0.0.1:8081 --topic-pattern '.*' --key O-17 --master 'local[2]'
    """
    JOB.perform(locals())


main = command.command_line(JOB.name, reput_trace)

if __name__ == "__main__":
    sys.exit(main())
