# SPDX-License-Identifier: Apache-2.0
"""Exports messages of topics to Parquet, by key or by store time: a job for spark-submit, or the command reput-export.

    spark-submit .../reput_spark/jobs/export.py --endpoint indexer:7102 --topic orders --key O-17 --output /lake/orders

Files land in OUTPUT/topic=<topic>/date=<UTC date of the store time>/. The last line on standard output tells what was
written; progress and errors go to standard error, which spark-submit joins with standard output.
Exit codes: 0 exported, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reput_spark.errors import BadOption, ReputSparkError
from reput_spark.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

TIMES = {"timestamp": "store time", "born_timestamp": "born time"}


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    output: str
    row_count: int
    body_size_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job and returns its exit code."""
    parser = argument_parser()
    chosen = parser.parse_args(arguments)
    try:
        options = source_options(chosen)
        parse(options)
    except (ReputSparkError, OSError) as error:
        parser.error(str(error))
    try:
        say(dry_run(chosen, options) if chosen.dry_run else run(chosen, options))
    except failures() as error:
        sys.stderr.write(f"export failed: {first_cause(error)}\n")
        return EXIT_FAILED
    return EXIT_DONE


def run(chosen: argparse.Namespace, options: dict[str, str]) -> str:
    """Exports in a session of its own and tells what was written."""
    spark = session(chosen)
    try:
        exported = export(spark, options, chosen.output, mode=chosen.mode, date_of=chosen.date_of)
    finally:
        spark.stop()
    if chosen.json:
        return json.dumps(asdict(exported))
    return f"exported rows={exported.row_count} body_bytes={exported.body_size_bytes} output={exported.output}"


def failures() -> tuple[type[Exception], ...]:
    """What the world may do to an export; anything else is a bug and keeps its stack trace."""
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
    except ImportError:
        return (ReputSparkError, OSError, ImportError)
    return (ReputSparkError, OSError, ImportError, PySparkException, Py4JError)


def argument_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="reput-export",
        description="Export messages of Reput topics to Parquet, by key or by store time.",
        epilog="Credentials are files named by REPUT_CLIENT_TOKEN_FILE, REPUT_CLIENT_CA_FILE, "
        "REPUT_CLIENT_CERTIFICATE_FILE and REPUT_CLIENT_KEY_FILE. Exit codes: 0 exported, 1 failed, 2 wrong usage.",
    )
    add = parser.add_argument
    add("--endpoint", required=True, metavar="HOST:PORT", help="the Indexer; several separated by commas")
    add("--topic", required=True, help="topics, separated by commas")
    add("--key", action="append", default=[], help="only messages with this key; may be repeated")
    add("--keys-file", metavar="FILE", help="only messages with one of these keys, one per line")
    add("--start", metavar="TIME", help="earliest store time, inclusive: ISO-8601 with zone, or epoch milliseconds")
    add("--end", metavar="TIME", help="latest store time, exclusive")
    add("--tag", help="only messages with one of these tags: A||B")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="any other option of the data source")
    add("--output", metavar="URI", help="directory to write; required unless --dry-run")
    add(
        "--mode",
        choices=("errorifexists", "append", "overwrite"),
        default="errorifexists",
        help="what to do when the output exists (default: %(default)s)",
    )
    add("--date-of", choices=tuple(TIMES), default="timestamp", help="which time makes the date (default: %(default)s)")
    add("--master", help="Spark master, when not given by spark-submit, such as local[4]")
    add("--dry-run", action="store_true", help="print what would be read, and write nothing; starts no Spark")
    add("--json", action="store_true", help="print the result as one line of JSON")
    return parser


def source_options(chosen: argparse.Namespace) -> dict[str, str]:
    """The data source's options. Raises OSError for a file of keys that can't be read, BadOption for a bad --option."""
    if not chosen.output and not chosen.dry_run:
        raise BadOption("--output", "is required unless --dry-run is given")
    options = {"endpoint": chosen.endpoint, "subscribe": chosen.topic}
    keys = list(chosen.key)
    if chosen.keys_file:
        lines = Path(chosen.keys_file).read_text(encoding="utf-8").splitlines()
        keys += [line.strip() for line in lines if line.strip()]
    if keys or chosen.keys_file:
        options["keys"] = json.dumps(keys)
    named = {"startingTimestamp": chosen.start, "endingTimestamp": chosen.end, "tag": chosen.tag}
    options |= {name: text for name, text in named.items() if text is not None}
    for text in chosen.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption("--option", f"{text!r} is not NAME=VALUE")
        options[name] = value
    return options


def dry_run(chosen: argparse.Namespace, options: dict[str, str]) -> str:
    """What would be read: partitions, and rows and bytes before the filter. Raises CallFailed."""
    from reput_spark.plan import plan

    partitions = plan(parse(options))
    totals = {
        "partitions": len(partitions),
        "rows": sum(partition.row_count for partition in partitions),
        "bytes": sum(partition.size_bytes for partition in partitions),
        "keys": sum(len(partition.keys) for partition in partitions),
    }
    if chosen.json:
        return json.dumps(totals)
    lines = [f"{'partition':>9}  {'rows':>12}  {'bytes':>15}  what"]
    for number, partition in enumerate(partitions):
        ranges = [f"{r.topic}/{r.queue_id} [{r.start_queue_offset}, {r.end_queue_offset})" for r in partition.ranges]
        keys = [f"{len(partition.keys)} keys of {partition.key_topic}"] if partition.keys else []
        what = ", ".join(keys + ranges)
        lines.append(f"{number:>9}  {partition.row_count:>12,}  {partition.size_bytes:>15,}  {what}")
    lines.append(
        f"plan: partitions={totals['partitions']} rows={totals['rows']} bytes={totals['bytes']} keys={totals['keys']} "
        "(rows and bytes before the filter on tags; not known for keys)"
    )
    return "\n".join(lines)


def session(chosen: argparse.Namespace) -> SparkSession:
    """A session with UTC dates and Spark's own progress bar."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("reput-export").config("spark.ui.showConsoleProgress", "true")
    if chosen.master:
        builder = builder.master(chosen.master)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def export(
    spark: SparkSession,
    options: dict[str, str],
    output: str,
    *,
    mode: str = "errorifexists",
    date_of: str = "timestamp",
) -> Exported:
    """Writes what the options name to Parquet files by topic and date. Raises what Spark raises."""
    from pyspark.sql import Observation, functions

    from reput_spark import register

    register(spark)
    # Dates are those of UTC, whatever the zone of the session or the cluster.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    frame: DataFrame = spark.read.format("reput").options(**options).load()
    observation = Observation("exported")
    counted = frame.observe(
        observation,
        functions.count(functions.lit(1)).alias("rows"),
        functions.coalesce(functions.sum(functions.octet_length("value")), functions.lit(0)).alias("bytes"),
    )
    dated = counted.withColumn("date", functions.to_date(date_of))
    dated.write.mode(mode).partitionBy("topic", "date").parquet(output)
    seen: dict[str, Any] = observation.get
    return Exported(output=output, row_count=seen["rows"], body_size_bytes=seen["bytes"])


def say(text: str) -> None:
    """Prints a result."""
    sys.stdout.write(text + "\n")


def first_cause(error: BaseException) -> str:
    """The part of an error that tells what happened: Spark wraps a worker's error in pages of stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("reput_spark.errors.")]
    return own[-1].removeprefix("reput_spark.errors.") if own else (lines[0] if lines else type(error).__name__)


if __name__ == "__main__":
    sys.exit(main())
