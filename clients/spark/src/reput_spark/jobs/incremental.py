# SPDX-License-Identifier: Apache-2.0
"""Exports new messages since the last run to Parquet: a job for a scheduler, or reput-export-incremental.

    spark-submit .../reput_spark/jobs/incremental.py --store store:8081 --topic orders --output /lake/orders

Each run reads the messages that exist now and were not exported before, and ends. Its position is in the checkpoint,
by default beside the files. Each message is exported once, also when a run is killed and started again.
Files land in OUTPUT/topic=<topic>/date=<UTC date of the store time>/. Needs Spark 4.2.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reput_spark.errors import BadOption
from reput_spark.jobs import command, flags
from reput_spark.jobs.command import Chosen, Job
from reput_spark.read.describe import described
from reput_spark.read.options import parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT = "_reput_checkpoint"
"""A directory in the output. Readers of Parquet skip names that begin with an underscore."""


def source_options(chosen: Chosen) -> dict[str, str]:
    """Return the data source's options. Raises BadOption."""
    begin = {"startingOffsets": "earliest"} if chosen.start is None else {"startingTimestamp": chosen.start}
    own = {"maxOffsetsPerTrigger": str(chosen.rows_per_batch), **begin}
    return command.source_options(chosen, own, is_stream=True)


def dry_run(chosen: Chosen, given: dict[str, str]) -> str:
    """Return the plan of a read from the checkpoint to the current ends, as text. Raises CallFailed, OSError."""
    from reput_spark.read import positions, shards

    options = parse(given, is_stream=True)
    kept = shards.bounds(options)
    begin = positions.from_json(last_offset(checkpoint_of(chosen)) or {}) or shards.starts(options, kept)
    cut = {queue: (max(begin.get(queue, first), first), end) for queue, (first, end) in kept.items()}
    return command.planned(chosen, [one.partition for one in shards.plan_ranges(options, cut)])


def run(spark: SparkSession, chosen: Chosen, options: dict[str, str]) -> str:
    """Export new messages, and return the outcome."""
    from pyspark.sql import functions

    frame = spark.readStream.format("reput").options(**options).load()
    query = (
        frame.withColumn("date", functions.to_date(chosen.date_of))
        .writeStream.format("parquet")
        .partitionBy("topic", "date")
        .queryName(f"{JOB.name}: {describe(chosen, options)}")
        .option("path", chosen.output)
        .option("checkpointLocation", checkpoint_of(chosen))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = [progress for progress in query.recentProgress if progress["numInputRows"]]
    exported = {
        "row_count": sum(progress["numInputRows"] for progress in done),
        "batch_count": len(done),
        "output": chosen.output,
        "checkpoint": checkpoint_of(chosen),
    }
    return command.outcome(chosen, "exported", exported)


def describe(_: Chosen, options: dict[str, str]) -> str:
    """Return a line that describes the read."""
    return described(parse(options, is_stream=True))


def checkpoint_of(chosen: Chosen) -> str:
    """Return the location of the query's checkpoint."""
    return chosen.checkpoint or f"{chosen.output.rstrip('/')}/{CHECKPOINT}"


def last_offset(checkpoint: str) -> dict[str, Any] | None:
    """Return the end of the last planned micro-batch of a query, None if there is none. Raises OSError, BadOption."""
    import pyarrow as pa
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else (fs.LocalFileSystem(), checkpoint)
    except pa.ArrowInvalid as error:
        raise BadOption("--checkpoint", str(error)) from error
    selector = fs.FileSelector(f"{path}/offsets", allow_not_found=True)
    numbers = [int(info.base_name) for info in system.get_file_info(selector) if info.base_name.isdigit()]
    if not numbers:
        return None
    with system.open_input_stream(f"{path}/offsets/{max(numbers)}") as file:
        # A version, the state of the query, and a line for each source: this query has a single source.
        text = file.read().decode().splitlines()[2]
    found: dict[str, Any] = json.loads(text)
    return found


JOB = Job("reput-export-incremental", source_options, run, dry_run, describe)


def reput_export_incremental(
    endpoint: flags.Endpoint,
    output: Annotated[str, typer.Option(metavar="URI", help="Directory to write.")],
    topic: flags.Topic = None,
    topic_pattern: flags.TopicPattern = None,
    tag: flags.Tag = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="URI", help=f"Where the last run stopped. [default: OUTPUT/{CHECKPOINT}]")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Where the first run begins: ISO-8601 with zone, or epoch milliseconds."),
    ] = None,
    rows_per_batch: Annotated[int, typer.Option(min=1, help="Most rows of a micro-batch.")] = 5_000_000,
    date_of: flags.Date = flags.DateOf.TIMESTAMP,
    option: flags.Other = None,
    master: flags.Master = None,
    dry_run: flags.DryRun = False,
    as_json: flags.Json = False,
) -> None:
    """Export what came since the last run to Parquet.

    Example: reput-export-incremental --store 127.0.0.1:8081 --topic orders --output lake/orders --master 'local[2]'
    """
    JOB.perform(locals())


main = command.command_line(JOB.name, reput_export_incremental)

if __name__ == "__main__":
    sys.exit(main())
