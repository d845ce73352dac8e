# SPDX-License-Identifier: Apache-2.0
"""Exports messages of topics to Parquet, by key or by store time: a job for spark-submit, or the command reput-export.

    spark-submit .../reput_spark/jobs/export.py --store store:8081 --topic orders --key O-17 --output /lake/orders

Files land in OUTPUT/topic=<topic>/date=<UTC date of the store time>/.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput_spark.errors import BadOption
from reput_spark.jobs import command, flags
from reput_spark.jobs.command import Chosen, Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Exported:
    """The outcome of an export."""

    row_count: int
    body_size_bytes: int
    output: str


class Mode(StrEnum):
    """The action when the output exists."""

    ERRORIFEXISTS = "errorifexists"
    APPEND = "append"
    OVERWRITE = "overwrite"


def source_options(chosen: Chosen) -> dict[str, str]:
    """Return the data source's options. Raises OSError for a file of keys that can't be read, and BadOption."""
    if not chosen.output and not chosen.dry_run:
        raise BadOption("--output", "is required unless --dry-run is given")
    keys = list(chosen.key or ())
    if chosen.keys_file:
        lines = Path(chosen.keys_file).read_text(encoding="utf-8").splitlines()
        keys += [line.strip() for line in lines if line.strip()]
    own = {
        "keys": json.dumps(keys) if keys or chosen.keys_file else None,
        "startingTimestamp": chosen.start,
        "endingTimestamp": chosen.end,
    }
    return command.source_options(chosen, own)


def run(spark: SparkSession, chosen: Chosen, options: dict[str, str]) -> str:
    """Export, and return the outcome."""
    exported = export(spark, options, chosen.output, mode=chosen.mode, date_of=chosen.date_of)
    return command.outcome(chosen, "exported", asdict(exported))


def export(
    spark: SparkSession,
    options: dict[str, str],
    output: str,
    *,
    mode: str = "errorifexists",
    date_of: str = "timestamp",
) -> Exported:
    """Write the messages that the options select to Parquet files by topic and date. Raises Spark's errors."""
    from pyspark.sql import functions

    from reput_spark import register

    register(spark)
    # Dates are in UTC, for any zone of the session or the cluster.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame: DataFrame = spark.read.format("reput").options(**options).load()
    counted, observation = command.counted(frame, "exported")
    dated = counted.withColumn("date", functions.to_date(date_of))
    dated.write.mode(mode).partitionBy("topic", "date").parquet(output)
    seen: dict[str, Any] = observation.get
    return Exported(row_count=seen["rows"], body_size_bytes=seen["bytes"], output=output)


JOB = Job("reput-export", source_options, run)


def reput_export(
    endpoint: flags.Endpoint,
    topic: flags.Topic = None,
    topic_pattern: flags.TopicPattern = None,
    key: Annotated[list[str] | None, typer.Option(help="Only messages with this key; may be repeated.")] = None,
    keys_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Only messages with one of these keys, one per line.")
    ] = None,
    tag: flags.Tag = None,
    start: flags.Start = None,
    end: flags.End = None,
    output: Annotated[
        str | None, typer.Option(metavar="URI", help="Directory to write; required unless --dry-run.")
    ] = None,
    mode: Annotated[Mode, typer.Option(help="What to do when the output exists.")] = Mode.ERRORIFEXISTS,
    date_of: flags.Date = flags.DateOf.TIMESTAMP,
    option: flags.Other = None,
    master: flags.Master = None,
    dry_run: flags.DryRun = False,
    as_json: flags.Json = False,
) -> None:
    """Export messages of topics to Parquet, by key or by store time.

    Example: reput-export --store 127.0.0.1:8081 --topic orders --key O-17 --output lake/orders --master 'local[2]'
    """
    JOB.perform(locals())


main = command.command_line(JOB.name, reput_export)

if __name__ == "__main__":
    sys.exit(main())
