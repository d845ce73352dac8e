# SPDX-License-Identifier: Apache-2.0
"""A program for spark-submit with a connector that was shipped: reads a topic as a batch and as a stream.

Arguments: the Indexer's address, a topic, a directory. Prints a line of JSON: rows of both, and where driver and
executors found the connector and their Python.
"""

import json
import sys

import reput_spark
from pyspark.sql import SparkSession


def told(_: int) -> dict[str, str]:
    """Return the connector and the Python of a task."""
    import reput_spark as found

    return {"connector": found.__file__, "python": sys.executable}


def main() -> None:
    """Run the batch and the stream."""
    endpoint, topic, directory = sys.argv[1:]
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    reput_spark.register(spark)
    options = {"endpoint": endpoint, "subscribe": topic}
    batch_count = spark.read.format("reput").options(**options).load().count()
    query = (
        spark.readStream.format("reput")
        .options(**options, startingOffsets="earliest")
        .load()
        .writeStream.format("parquet")
        .options(path=f"{directory}/files", checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stream_count = spark.read.parquet(f"{directory}/files").count()
    task = spark.sparkContext.parallelize([0], 1).map(told).first()
    line = {"batch": batch_count, "stream": stream_count, "driver": reput_spark.__file__, **task}
    print(json.dumps(line), flush=True)
    spark.stop()


main()
