# SPDX-License-Identifier: Apache-2.0
"""Spark over the same store: exports by key, by time range and of all messages, and sums over the exported files.

The export by key uses spark-submit, like a user. The other exports share a local session, because each start of a JVM
costs seconds.
"""

import os
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reput_spark.jobs import export as job
from reput_spark.jobs.outcome import failures, first_cause

from demo.checks import Asked, window_of
from demo.load import QUEUE_COUNT
from demo.report import Report
from demo.source import DELAYED_MINUTES, TOPIC, CarrierDelay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GRPC_FORKS = "GRPC_ENABLE_FORK_SUPPORT"
"""Spark starts its JVM by a fork. In the child, gRPC's threads would start again, find closed files, and end the child,
unless this variable was 0 when this process imported gRPC. Spark's own workers need gRPC's support of forks, so the
variable is removed before they start."""
SUBMIT_TIMEOUT_S = 600
LOG_SIZE_SHOWN = 2000
"""Number of characters at the end of a log that a failure shows."""

LOG4J = """rootLogger.level = error
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


class SparkFailed(RuntimeError):
    """A Spark job ended with an error."""


@dataclass(frozen=True, slots=True)
class Exports:
    """The results of Spark's exports."""

    row_count: int
    delays: list[CarrierDelay]


def run(asked: Asked, indexer: str, directory: Path, report: Report) -> Exports:
    """Makes all exports below `directory` and compares them with the source. Raises SparkFailed."""
    prepare(directory)
    options = {"endpoint": indexer, "subscribe": TOPIC}
    export_key(asked, indexer, directory, report)
    log = directory / "spark.log"
    try:
        with session(log, report) as spark:
            compare_bodies(asked, spark, asked.source.busiest_aircraft(), directory / "by_key")
            export_window(asked, spark, options, directory / "by_time")
            return export_everything(asked, spark, options, directory / "everything", report)
    except failures() as error:
        raise SparkFailed(f"{first_cause(error)}\n{log.read_text(errors='replace')[-LOG_SIZE_SHOWN:]}") from error


def prepare(directory: Path) -> None:
    """Writes settings that keep Spark quiet, on loopback, and its files below `directory`."""
    configuration = directory / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    (configuration / "log4j2.properties").write_text(LOG4J)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
    }
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (configuration / "spark-defaults.conf").write_text(text)
    os.environ.pop(GRPC_FORKS, None)
    os.environ |= {"SPARK_CONF_DIR": str(configuration), "PYSPARK_PYTHON": sys.executable}


def export_key(asked: Asked, indexer: str, directory: Path, report: Report) -> None:
    """Exports an aircraft through spark-submit."""
    import pyspark

    aircraft = asked.source.busiest_aircraft()
    arguments = ["--endpoint", indexer, "--topic", TOPIC, "--key", aircraft, "--output", str(directory / "by_key")]
    report.line(f"  $ spark-submit --master local[2] export.py {' '.join(arguments)}")
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[2]", job.__file__, *arguments]
    with report.waiting("spark-submit"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=SUBMIT_TIMEOUT_S, check=False)
    last = (done.stdout.splitlines() or [""])[-1]
    if done.returncode != 0:
        raise SparkFailed(
            f"spark-submit ended with exit code {done.returncode}: {last}\n{done.stderr[-LOG_SIZE_SHOWN:]}"
        )
    report.line(f"    {last}")
    found = re.match(r"exported row_count=(\d+) ", last)
    row_count = int(found[1]) if found else None
    asked.comparisons.equal(f"rows exported by key {aircraft}", row_count, len(asked.source.rows_by_key[aircraft]))


@contextmanager
def session(log: Path, report: Report) -> "Iterator[SparkSession]":
    """Yields a local session with two slots, which ends with its JVM. The output of the JVM is written to `log`."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with report.waiting("starting Spark"), standard_error_to(log):
        spark = SparkSession.builder.master("local[2]").appName("reput-demo").getOrCreate()
    try:
        yield spark
    finally:
        gateway = SparkContext._gateway  # noqa: SLF001 - the only way to the JVM's process
        spark.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=SUBMIT_TIMEOUT_S)


@contextmanager
def standard_error_to(log: Path) -> Iterator[None]:
    """Sends the standard error of processes that are started within the block to the file."""
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def compare_bodies(asked: Asked, spark: "SparkSession", key: str, path: Path) -> None:
    """Compares the exported bodies of a key with the source's."""
    bodies = sorted(bytes(row.value) for row in spark.read.parquet(str(path)).select("value").collect())
    expected = sorted(asked.source.bodies[row] for row in asked.source.rows_by_key[key])
    asked.comparisons.equal(
        f"their bodies, from the Parquet files of {key}", bodies, expected, f"{len(bodies):,} bodies"
    )


def export_window(asked: Asked, spark: "SparkSession", options: dict[str, str], path: Path) -> None:
    """Exports a range of store times."""
    start_ms, end_ms = window_of(asked)
    started = time.monotonic()
    window = {"startingTimestamp": str(start_ms), "endingTimestamp": str(end_ms)}
    exported = job.export(spark, options | window, str(path))
    seconds = time.monotonic() - started
    rows = asked.stored_between(start_ms, end_ms)
    asked.comparisons.equal(
        f"rows exported by a time range of {end_ms - start_ms} ms", exported.row_count, len(rows),
        f"{exported.row_count:,} in {seconds:.1f} s",
    )  # fmt: skip
    bodies = sorted(bytes(row.value) for row in spark.read.parquet(str(path)).select("value").collect())
    expected = sorted(asked.source.bodies[row] for row in rows)
    asked.comparisons.equal("their bodies, from the Parquet files", bodies, expected, f"{len(bodies):,} bodies")


def export_everything(
    asked: Asked, spark: "SparkSession", options: dict[str, str], path: Path, report: Report
) -> Exports:
    """Exports the whole topic. Returns the sums over its files."""
    source, equal = asked.source, asked.comparisons.equal
    started = time.monotonic()
    with report.waiting("exporting everything"):
        exported = job.export(spark, options, str(path))
    seconds = time.monotonic() - started
    rate = exported.row_count / seconds
    shown = f"{exported.row_count:,} in {seconds:.1f} s, {rate:,.0f} rows/s"
    equal("rows exported without a filter", exported.row_count, len(source), shown)
    equal("bytes of their bodies", exported.body_size_bytes, sum(len(body) for body in source.bodies))
    frame = spark.read.parquet(str(path))
    place = f"(CAST(offset AS DECIMAL(20)) * {QUEUE_COUNT} + partition)"
    sums = frame.selectExpr("sum(crc32(value))", f"sum(crc32(value) * {place})").collect()[0]
    checksums = [zlib.crc32(body) for body in source.bodies]
    places = zip(asked.record.queue_offsets, asked.record.queue_ids, strict=True)
    placed = (crc * (offset * QUEUE_COUNT + queue) for crc, (offset, queue) in zip(checksums, places, strict=True))
    equal("sum of the CRC-32 of all bodies", sums[0], sum(checksums))
    equal("the same, each times its place", int(sums[1]), sum(placed))
    delays = delays_by_carrier(spark, path)
    expected = list(source.delays_by_carrier().values())
    equal("delays by carrier, from the exported JSON", delays, expected, f"{len(delays)} carriers")
    return Exports(exported.row_count, delays)


def delays_by_carrier(spark: "SparkSession", path: Path) -> list[CarrierDelay]:
    """Returns the sums over the exported bodies, by carrier."""
    query = f"""
        SELECT tag, count(*) AS flights, count(delay) AS departed, coalesce(sum(delay), 0) AS minutes,
               count_if(delay >= {DELAYED_MINUTES}) AS delayed
        FROM (SELECT tag, from_json(CAST(value AS STRING), 'dep_delay INT').dep_delay AS delay FROM {{exported}})
        GROUP BY tag ORDER BY tag
    """
    rows = spark.sql(query, exported=spark.read.parquet(str(path))).collect()
    return [CarrierDelay(row.tag, row.flights, row.departed, row.minutes, row.delayed) for row in rows]
