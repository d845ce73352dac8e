# SPDX-License-Identifier: Apache-2.0
"""The parts that jobs share: a command line that is checked before Spark starts, a session, a line with the outcome.

Standard output has the result; its last line is the outcome. Progress and errors are written to standard error, which
spark-submit joins with standard output. Exit codes and the form of errors are the same as for `reput`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import typer

from reput_spark.errors import BadOption, ReputSparkError
from reput_spark.jobs.flags import EPILOG, flag_of
from reput_spark.jobs.outcome import EXIT_DONE, failed, failures
from reput_spark.read.describe import described
from reput_spark.read.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from reput.indexer.v1.scan_service_pb2 import ScanPartition

HELP_WIDTH_MAX = 110

Chosen = SimpleNamespace
"""The arguments: the parameters of a job's command line by their names."""


def plan_batch(chosen: Chosen, options: dict[str, str]) -> str:
    """Return the plan of a batch read with these options, as text. Raises CallFailed."""
    from reput_spark.read.shards import plan

    return planned(chosen, [one.partition for one in plan(parse(options))])


def describe_batch(_: Chosen, options: dict[str, str]) -> str:
    """Return a line that describes a batch read with these options."""
    return described(parse(options))


@dataclass(frozen=True, slots=True)
class Job:
    """A command. `run` and `dry_run` return the text to print. Both may raise the errors of `failures`."""

    name: str
    options: Callable[[Chosen], dict[str, str]]
    """Returns the options of the data source. Raises ReputSparkError or OSError for invalid arguments."""
    run: Callable[[SparkSession, Chosen, dict[str, str]], str]
    dry_run: Callable[[Chosen, dict[str, str]], str] = plan_batch
    describe: Callable[[Chosen, dict[str, str]], str] = describe_batch
    """Returns the description of the job for Spark's web pages."""

    def perform(self, typed: Mapping[str, Any]) -> None:
        """Run the command with the parameters of a command line by their names. Raises typer.Exit and BadParameter."""
        chosen = Chosen(**typed)
        try:
            options = self.options(chosen)
        except BadOption as error:
            raise typer.BadParameter(error.problem, param_hint=flag_of(error.option)) from None
        except (ReputSparkError, OSError) as error:
            raise typer.BadParameter(str(error)) from None
        try:
            text = (self.dry_run if chosen.dry_run else self._in_session)(chosen, options)
        except failures() as error:
            raise typer.Exit(failed(error)) from None
        sys.stdout.write(text + "\n")

    def _in_session(self, chosen: Chosen, options: dict[str, str]) -> str:
        """Run in a new session, with UTC dates in any zone of the cluster, and with Spark's progress bar."""
        from pyspark.sql import SparkSession

        from reput_spark import register

        builder = SparkSession.builder.appName(self.name).config("spark.ui.showConsoleProgress", "true")
        if chosen.master:
            builder = builder.master(chosen.master)
            if chosen.master.startswith("local"):  # its workers run here, and this Python has all packages
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        spark = builder.getOrCreate()
        try:
            spark.sparkContext.setLogLevel("ERROR")
            spark.sparkContext.setJobDescription(f"{self.name}: {self.describe(chosen, options)}")
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            register(spark)
            return self.run(spark, chosen, options)
        finally:
            spark.stop()


class Program(Protocol):
    """A command as a function."""

    def __call__(self, arguments: Sequence[str] | None = None) -> int:
        """Run with these arguments, by default the arguments of the process. Returns the exit code."""


def command_line(name: str, function: Callable[..., None]) -> Program:
    """Return the program whose flags are the parameters of a function."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH_MAX}
    app.command(name, epilog=EPILOG, context_settings=settings, no_args_is_help=True)(function)

    def main(arguments: Sequence[str] | None = None) -> int:
        try:
            app(arguments, prog_name=name)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else EXIT_DONE
        return EXIT_DONE

    return main


def source_options(chosen: Chosen, own: Mapping[str, str | None], *, is_stream: bool = False) -> dict[str, str]:
    """Return the options of a read: from the flags of topics, from the job's own flags, and from --option.

    An option that is None is not given. Raises BadOption.
    """
    if (chosen.topic is None) == (chosen.topic_pattern is None):
        raise BadOption("--topic", "give one of --topic and --topic-pattern")
    topics = {"subscribe": chosen.topic, "subscribePattern": chosen.topic_pattern, "tag": chosen.tag}
    options = given({"endpoint": chosen.endpoint, **topics, **own}) | other_options(chosen)
    parse(options, is_stream=is_stream)
    return options


def given(options: Mapping[str, str | None]) -> dict[str, str]:
    """Return the options that are not None."""
    return {name: text for name, text in options.items() if text is not None}


def other_options(chosen: Chosen) -> dict[str, str]:
    """Return the options of --option. Raises BadOption."""
    options = {}
    for text in chosen.option or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise BadOption("--option", f"{text!r} is not NAME=VALUE")
        options[name] = value
    return options


def outcome(chosen: Chosen, what: str, document: Mapping[str, object]) -> str:
    """Return the last line: `what name=value ...`, or JSON."""
    if chosen.as_json:
        return json.dumps(document)
    return " ".join([what, *(f"{name}={value}" for name, value in document.items())])


def counted(frame: DataFrame, name: str) -> tuple[DataFrame, Observation]:
    """Return a frame that is counted while it is written, and the observation of its `rows` and `bytes` (of values)."""
    from pyspark.sql import Observation, functions

    observation = Observation(name)
    row_count = functions.count(functions.lit(1)).alias("rows")
    size_bytes = functions.coalesce(functions.sum(functions.octet_length("value")), functions.lit(0)).alias("bytes")
    return frame.observe(observation, row_count, size_bytes), observation


def planned(chosen: Chosen, partitions: Sequence[ScanPartition]) -> str:
    """Return a plan as text: partitions, and rows and bytes before the filter."""
    totals = {
        "partitions": len(partitions),
        "rows": sum(partition.row_count for partition in partitions),
        "bytes": sum(partition.size_bytes for partition in partitions),
        "keys": sum(len(partition.keys) for partition in partitions),
    }
    if chosen.as_json:
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
