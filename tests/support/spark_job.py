# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.support.spark_job into|from ...`: a streaming query in its own process, to be killed.

`into` writes the files of a directory to a topic, a file per micro-batch. `from` writes a topic to Parquet. With --once
they end when all present data has been written, otherwise they continue. A line is printed after each micro-batch.
"""

import argparse
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


def main() -> None:
    """Run the query."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("into", "from"))
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--commitlog", default="")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--rate", default="")
    parser.add_argument("--durability", default="disk")
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(arguments.master)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    query = into(spark, arguments) if arguments.what == "into" else out_of(spark, arguments)
    shown = -1
    while query.isActive:
        query.awaitTermination(0.2)
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > shown:
            shown = progress["batchId"]
            print(f"micro-batch {shown}", flush=True)
    query.awaitTermination()


def into(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Write files to a topic."""
    frame = (
        spark.readStream.schema("key string, value string")
        .option("maxFilesPerTrigger", 1)
        .option("latestFirst", "false")
        .parquet(arguments.path)
    )
    options = {"commitlog.endpoint": arguments.commitlog, "topic": arguments.topic, "batchBytes": "4k"}
    options["durability"] = arguments.durability
    return started(frame, arguments, "reput", options)


def out_of(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Write a topic to files."""
    limit = {"maxOffsetsPerTrigger": arguments.rate} if arguments.rate else {}
    frame = (
        spark.readStream.format("reput")
        .options(endpoint=arguments.endpoint, subscribe=arguments.topic, startingOffsets="earliest", **limit)
        .options(numRetries="20", retryIntervalMs="100")
        .load()
        .selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    )
    return started(frame, arguments, "parquet", {"path": arguments.path})


def started(frame: DataFrame, arguments: argparse.Namespace, kind: str, options: dict[str, str]) -> StreamingQuery:
    """Start the query with its checkpoint and trigger."""
    writer = frame.writeStream.format(kind).options(**options).option("checkpointLocation", arguments.checkpoint)
    writer = writer.trigger(availableNow=True) if arguments.once else writer.trigger(processingTime="200 milliseconds")
    return writer.start()


if __name__ == "__main__":
    main()
