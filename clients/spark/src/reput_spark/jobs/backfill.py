# SPDX-License-Identifier: Apache-2.0
"""Appends messages from Parquet to topics: a job for spark-submit, or the command reput-backfill.

    spark-submit .../reput_spark/jobs/backfill.py --store store:8081 --input /lake/orders --topic orders-again

Takes the output of reput-export, or any Parquet with a column `value`. With --name the job may be repeated after a
failure: messages that are stored under this name are not stored again, as long as the input is the same.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput_spark.errors import BadOption
from reput_spark.jobs import command, flags
from reput_spark.jobs.command import Chosen, Job
from reput_spark.write.columns import WRITTEN_TYPES
from reput_spark.write.options import parse_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def sink_options(chosen: Chosen) -> dict[str, str]:
    """Return the sink's options. Raises BadOption."""
    named = {"commitlog.endpoint": chosen.commitlog, "topic": chosen.topic, "writerId": chosen.name}
    options = command.given(named) | command.other_options(chosen)
    parse_write(options)
    return options


def dry_run(chosen: Chosen, _: dict[str, str]) -> str:
    """Return the content of the Parquet files before --where, from their footers. Raises OSError, BadOption."""
    import pyarrow as pa
    from pyarrow import dataset

    try:
        found = dataset.dataset(chosen.input, format="parquet", partitioning="hive")
    except pa.ArrowInvalid as error:
        raise BadOption("--input", str(error)) from error
    files: Sequence[str] = found.files
    read, ignored = _columns(found.schema.names, chosen)
    if chosen.as_json:
        return command.outcome(chosen, "", {"rows": found.count_rows(), "files": len(files), "columns": read})
    lines = [f"{path}" for path in files]
    lines.append(f"plan: rows={found.count_rows()} files={len(files)} columns={','.join(read)}")
    if ignored:
        lines.append(f"not written: {', '.join(ignored)}")
    return "\n".join(lines)


def run(spark: SparkSession, chosen: Chosen, options: dict[str, str]) -> str:
    """Append the rows, and return the outcome."""
    frame: DataFrame = spark.read.parquet(chosen.input)
    if chosen.where:
        frame = frame.where(chosen.where)
    frame = frame.select(*_columns(frame.columns, chosen)[0])
    counted, observation = command.counted(frame, "appended")
    counted.write.format("reput").options(**options).mode("append").save()
    seen: dict[str, Any] = observation.get
    appended = {"row_count": seen["rows"], "body_size_bytes": seen["bytes"], "input": chosen.input}
    return command.outcome(chosen, "appended", appended)


def describe(chosen: Chosen, _: dict[str, str]) -> str:
    """Return input, topic and CommitLog, in a line."""
    return f"{chosen.input} to {chosen.topic or 'the topics that the rows name'} at {chosen.commitlog}"


def _columns(names: Sequence[str], chosen: Chosen) -> tuple[list[str], list[str]]:
    """Return the columns that are written, and the other columns. Raises BadOption."""
    if "value" not in names:
        raise BadOption("--input", "has no column 'value'")
    read = [name for name in names if name in WRITTEN_TYPES and (name != "partition" or chosen.keep_queues)]
    return read, [name for name in names if name not in read]


JOB = Job("reput-backfill", sink_options, run, dry_run, describe)


def reput_backfill(
    commitlog: Annotated[
        str,
        typer.Option(
            "--store",
            "--commitlog",
            metavar="HOST:PORT",
            envvar=["REPUT_CLIENT_COMMITLOG_TARGET", "REPUT_CLIENT_STORE_TARGET"],
            help="The store, by its gateway or its CommitLog; several separated by commas.",
        ),
    ],
    input: Annotated[str, typer.Option(metavar="URI", help="Directory or file with Parquet.")],  # noqa: A002 - the flag
    topic: Annotated[
        str | None, typer.Option(help="Topic of all messages. [default: the column topic]", show_default=False)
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only rows for which this holds, such as \"date >= '2026-01-01'\"."),
    ] = None,
    keep_queues: Annotated[
        bool, typer.Option("--keep-queues", help="Append to the queues that the column partition names.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of this backfill, so that repeating it stores nothing twice.")
    ] = None,
    option: flags.Other = None,
    master: flags.Master = None,
    dry_run: flags.DryRun = False,
    as_json: flags.Json = False,
) -> None:
    """Append messages from Parquet to topics.

    Example: reput-backfill --store 127.0.0.1:8081 --input lake/orders --topic again --name 1 --master 'local[2]'
    """
    JOB.perform(locals())


main = command.command_line(JOB.name, reput_backfill)

if __name__ == "__main__":
    sys.exit(main())
