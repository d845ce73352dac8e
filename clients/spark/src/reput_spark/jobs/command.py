# SPDX-License-Identifier: Apache-2.0
"""What the jobs share: a command line that is checked before anything starts, a session, one line of outcome.

Standard output has the result, its last line tells what was done; progress and errors go to standard error, which
spark-submit joins with standard output. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reput_spark.errors import BadOption, ReputSparkError
from reput_spark.read.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from reput.indexer.v1.scan_service_pb2 import ScanPartition

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2

EPILOG = (
    "Credentials are files named by REPUT_CLIENT_TOKEN_FILE, REPUT_CLIENT_CA_FILE, REPUT_CLIENT_CERTIFICATE_FILE and "
    "REPUT_CLIENT_KEY_FILE. Exit codes: 0 done, 1 failed, 2 wrong usage."
)

Chosen = argparse.Namespace


def plan_batch(chosen: Chosen, options: dict[str, str]) -> str:
    """Return what a batch read of these options would read. Raises CallFailed."""
    from reput_spark.read.plan import plan

    return planned(chosen, plan(parse(options)))


@dataclass(frozen=True, slots=True)
class Job:
    """One command. `run` and `dry_run` give what is printed; both may raise what the world does to them."""

    parser: Callable[[], argparse.ArgumentParser]
    options: Callable[[Chosen], dict[str, str]]
    """Those of the data source. Raises ReputSparkError or OSError for arguments that can't be meant."""
    run: Callable[[SparkSession, Chosen, dict[str, str]], str]
    dry_run: Callable[[Chosen, dict[str, str]], str] = plan_batch

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command and return its exit code."""
        parser = self.parser()
        chosen = parser.parse_args(arguments)
        try:
            options = self.options(chosen)
        except (ReputSparkError, OSError) as error:
            parser.error(str(error))
        try:
            if chosen.dry_run:
                text = self.dry_run(chosen, options)
            else:
                text = _in_session(chosen, parser.prog, lambda spark: self.run(spark, chosen, options))
        except failures() as error:
            sys.stderr.write(f"{parser.prog} failed: {first_cause(error)}\n")
            return EXIT_FAILED
        sys.stdout.write(text + "\n")
        return EXIT_DONE


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that every job has."""
    parser = argparse.ArgumentParser(prog=name, description=description, epilog=EPILOG, allow_abbrev=False)
    add = parser.add_argument
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="any other option of the data source")
    add("--master", help="Spark master, when not given by spark-submit, such as local[4]")
    add("--dry-run", action="store_true", help="print what would be done, and write nothing; starts no Spark")
    add("--json", action="store_true", help="print the result as one line of JSON")
    return parser


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Add the flags for the Indexer's address, and for topics by name or by pattern."""
    add = parser.add_argument
    add("--endpoint", required=True, metavar="HOST:PORT", help="the Indexer; several separated by commas")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--topic", help="topics, separated by commas")
    chosen.add_argument("--topic-pattern", metavar="REGEX", help="topics whose whole name matches")
    add("--tag", help="only messages with one of these tags: A||B")


def add_times(parser: argparse.ArgumentParser) -> None:
    """Add the flags for a range of store times."""
    add = parser.add_argument
    add("--start", metavar="TIME", help="earliest store time, inclusive: ISO-8601 with zone, or epoch milliseconds")
    add("--end", metavar="TIME", help="latest store time, exclusive")


def add_date(parser: argparse.ArgumentParser) -> None:
    """Add the flag for which time makes the date in the paths of what is written."""
    times = ("timestamp", "born_timestamp")
    parser.add_argument(
        "--date-of", choices=times, default=times[0], help="which time makes the date (default: %(default)s)"
    )


def source_options(chosen: Chosen, own: Mapping[str, str | None], *, is_stream: bool = False) -> dict[str, str]:
    """Return the options of a read: for the flags of `add_topics`, a job's own, and those of --option.

    An option that is None is not given. Raises BadOption.
    """
    topics = {"subscribe": chosen.topic, "subscribePattern": chosen.topic_pattern, "tag": chosen.tag}
    options = given({"endpoint": chosen.endpoint, **topics, **own}) | other_options(chosen)
    parse(options, is_stream=is_stream)
    return options


def given(options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the options that are not None."""
    return {name: text for name, text in options.items() if text is not None}


def other_options(chosen: Chosen) -> dict[str, str]:
    """Return what --option says. Raises BadOption."""
    options = {}
    for text in chosen.option:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption("--option", f"{text!r} is not NAME=VALUE")
        options[name] = value
    return options


def outcome(chosen: Chosen, what: str, document: Mapping[str, object]) -> str:
    """Return the last line: `what name=value ...`, or JSON."""
    if chosen.json:
        return json.dumps(document)
    return " ".join([what, *(f"{name}={value}" for name, value in document.items())])


def counted(frame: DataFrame, name: str) -> tuple[DataFrame, Observation]:
    """Return a frame that is counted while it is written, and what has its `rows` and `bytes` (of values) then."""
    from pyspark.sql import Observation, functions

    observation = Observation(name)
    row_count = functions.count(functions.lit(1)).alias("rows")
    size_bytes = functions.coalesce(functions.sum(functions.octet_length("value")), functions.lit(0)).alias("bytes")
    return frame.observe(observation, row_count, size_bytes), observation


def planned(chosen: Chosen, partitions: Sequence[ScanPartition]) -> str:
    """Return what would be read: partitions, and rows and bytes before the filter."""
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


def failures() -> tuple[type[Exception], ...]:
    """Return what the world may do to a job. Anything else is a bug and keeps its stack trace."""
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
    except ImportError:
        return (ReputSparkError, OSError, ImportError)
    return (ReputSparkError, OSError, ImportError, PySparkException, Py4JError)


def first_cause(error: BaseException) -> str:
    """Return the part of an error that tells what happened: Spark wraps a worker's error in pages of stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("reput_spark.errors.")]
    return own[-1].removeprefix("reput_spark.errors.") if own else (lines[0] if lines else type(error).__name__)


def _in_session(chosen: Chosen, name: str, run: Callable[[SparkSession], str]) -> str:
    """Run in a session of its own, with UTC dates whatever the zone of the cluster, and Spark's own progress bar."""
    from pyspark.sql import SparkSession

    from reput_spark import register

    builder = SparkSession.builder.appName(name).config("spark.ui.showConsoleProgress", "true")
    if chosen.master:
        builder = builder.master(chosen.master)
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        register(spark)
        return run(spark)
    finally:
        spark.stop()
