# SPDX-License-Identifier: Apache-2.0
"""`make demo`: start, load, ask, export, kill, ask again; then replicas whose leader dies, and shards.

Exit code 0 only if every answer was the source's.
KEEP=DIR keeps the store in DIR, which must be empty or new; the other files of the demo are in DIR/demo.
KEEP=1 keeps it open at the end: the services run on, with a console whose address is the last line, until Ctrl-C.
The last line of a good run without KEEP=1: `DEMO OK appended=… indexed=… exported=…`.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from reput_client import ReputError, connect

from demo import chart, failover, growing, spark_export
from demo.checks import Asked, ask_all, ask_other_queues
from demo.cluster import SERVICES, Cluster, ServiceFailed, forget_settings
from demo.comparisons import Comparisons
from demo.load import LoadFailed, load, wait_indexed
from demo.open_store import keep_open
from demo.report import Report
from demo.source import TOPIC, read_source
from libs.runtime.trust.tokens import find_local_token

OUT = Path(__file__).resolve().parent / "out"
KEEP_OPEN = "1"
EXIT_DIFFERENT, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main() -> int:
    """Runs the demo. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--keep", default=os.environ.get("KEEP", ""), metavar="DIR", help="as KEEP=DIR")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights, for a quick look")
    parser.add_argument("--no-spark", action="store_true", help="leave Spark out, for a quick look")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, stop_on_signal)
    forget_settings()
    report = Report()
    keep = "" if chosen.keep == KEEP_OPEN else chosen.keep
    try:
        with store_directory(keep) as directory:
            picture = (directory / "demo" if keep else OUT) / "delays.png"
            code = run(directory, picture, report, flight_count_max=chosen.flights, with_spark=not chosen.no_spark)
            if chosen.keep == KEEP_OPEN:
                keep_open(directory, directory / "demo" / "logs", report)
            return code
    except UsageError as error:
        report.failure(str(error))
        return EXIT_USAGE
    except (ServiceFailed, LoadFailed, ReputError, spark_export.SparkFailed) as error:
        report.failure(str(error))
        report.line("" if chosen.keep else "KEEP=DIR keeps the store and the services' logs")
        return EXIT_DIFFERENT
    except KeyboardInterrupt:
        report.failure("interrupted")
        return EXIT_INTERRUPTED


class UsageError(ValueError):
    """The arguments of the demo can't be used."""


def stop_on_signal(number: int, _: FrameType | None) -> None:
    """Ends the demo at SIGTERM like Ctrl-C, so that no process is left running."""
    raise KeyboardInterrupt(number)


@contextmanager
def store_directory(keep: str) -> Iterator[Path]:
    """Yields the store's directory: the directory to keep, or a temporary directory. Raises UsageError."""
    if not keep:
        directory = Path(tempfile.mkdtemp(prefix="reput-demo-"))
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return
    directory = Path(keep).absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"KEEP={keep}: is not an empty directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"KEEP={keep}: {error.strerror}") from error
    yield directory


def run(directory: Path, picture: Path, report: Report, *, flight_count_max: int | None, with_spark: bool) -> int:
    """Runs the steps of the demo over an empty store directory. Returns the exit code."""
    started = time.monotonic()
    comparisons = Comparisons(report.comparison)
    work = directory / "demo"
    report.step("1  The source")
    source = read_source(flight_count_max)
    report.line(
        f"  {len(source):,} departures of 2013 from New York: {len(source.airlines)} carriers, "
        f"{sum(len(body) for body in source.bodies) / 1e6:.0f} MB of JSON"
    )
    report.step("2  CommitLog, Indexer and Janitor")
    with Cluster(directory, work / "logs") as cluster:
        commitlog, indexer, janitor = (cluster.target(service) for service in SERVICES)
        report.line(f"  serving: CommitLog {commitlog}, Indexer {indexer}, Janitor {janitor}")
        token = find_local_token((commitlog, indexer, janitor))
        with connect(commitlog=commitlog, indexer=indexer, janitor=janitor, token=token) as client:
            report.step("3  The load")
            with report.progress_bar("append", len(source)) as on_stored:
                record, rates = load(client, source, on_stored)
            report.rates(rates)
            asked = Asked(client, source, record, comparisons)
            report.step("4  Questions")
            ask_all(asked)
            ask_other_queues(asked)
            exported_count = 0
            if with_spark:
                report.step("5  Spark")
                exports = spark_export.run(asked, indexer, work / "spark", report)
                exported_count = exports.row_count
                report.delays(exports.delays, source.airlines)
                chart.draw(exports.delays, source.airlines, picture)
                report.line(f"  chart: {picture}")
            report.step("6  kill -9 of each service, and the same questions")
            kill_and_ask(cluster, asked, report)
            indexed_count = sum(queue.max_queue_offset - queue.min_queue_offset for queue in client.queues.list(TOPIC))
    report.step("7  Three replicas, and the death of the one that leads")
    failover.run(source, comparisons, work / "replicas", report)
    report.step("8  A second store joins under load, and shares the topic")
    growing.run(source, comparisons, work / "shards", report)
    exit_code = report.verdict(comparisons)
    report.line("KEEP=1 keeps the store open at the end, with a console at http://127.0.0.1:7300")
    report.line(f"{time.monotonic() - started:.0f} s")
    if exit_code == 0 and with_spark:
        sys.stdout.write(f"DEMO OK appended={len(record)} indexed={indexed_count} exported={exported_count}\n")
    return exit_code


def kill_and_ask(cluster: Cluster, asked: Asked, report: Report) -> None:
    """Kills each service in turn, starts it again, and asks all questions again. Prints only differences."""
    for service in SERVICES:
        cluster.kill(service)
        with report.waiting(f"starting {service} again"):
            seconds = cluster.restart(service)
            wait_indexed(asked.client, asked.client.admin.commitlog_status().max_physical_offset)
        with report.waiting("asking again"), asked.comparisons.counted(report.difference) as tally:
            ask_all(asked)
        report.line(f"  {service}: killed, serving again after {seconds:.1f} s; {tally} answers are the same")
