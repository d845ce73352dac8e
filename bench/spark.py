# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.spark`: Spark reads the same messages from Reput, from Kafka and from Parquet, in turn.

For each size of message: a store, a broker and Parquet files with the same rows, written through Spark. Then each is
read whole into Spark's noop sink, several times, in changing order, on local[2]. Rows and bytes per second go into a
table with their ratios, and the CPU time of the JVM, of its Python workers and of the server; JSON goes to a file.
Last, keys are looked up in a topic of five million messages (spark_lookup).
Needs Maven Central for Spark's Kafka source, of the newest release that is there.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.console import Console
from rich.progress import Progress

from bench import machine, spark_lookup, store
from bench.peers import java_build
from bench.peers.registry import peer_of
from bench.results import Results, Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_MODULE = "spark"
"""Module of bench/peers/java with Spark's Kafka source."""
QUEUE_COUNT = 4
LOOKUP = "lookup-5M"
CASES: Mapping[str, tuple[int, int]] = {"read-100B": (1_000_000, 100), "read-1KiB": (200_000, 1_024)}
"""Rows and bytes of a body."""
GOALS = (("kafka", 1.0), ("parquet", 0.3))
"""Reput's rate through another system's rate: at least this."""
SYSTEMS = ("reput", "kafka", "parquet")

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Source:
    """Where rows are read from: options of a reader, and the processes that serve it."""

    kind: str
    options: Mapping[str, str]
    pids: tuple[int, ...] = ()

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """Return all rows, planned anew."""
        return spark.read.format(self.kind).options(**self.options).load()


@contextmanager
def session(*, has_kafka: bool = True) -> "Iterator[SparkSession]":
    """Yield a session of two slots, with Spark's Kafka source unless it is not needed."""
    from pyspark.sql import SparkSession

    jars: list[Path] = []
    if has_kafka:
        java_build.build()
        jars = sorted((java_build.BUILD / KAFKA_MODULE / "lib").glob("*.jar"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("reput-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def rows(spark: "SparkSession", row_count: int, body_size_bytes: int) -> "DataFrame":
    """Return rows with a key, a body of random letters that no format can squeeze, and a queue."""
    from pyspark.sql import functions

    pieces = [f"sha2(cast(id * 31 + {number} as string), 256)" for number in range(body_size_bytes // 64 + 1)]
    letters = f"concat({', '.join(pieces)})"
    return spark.range(0, row_count, numPartitions=QUEUE_COUNT).select(
        functions.expr("concat('order-', id)").alias("key"),
        functions.expr(f"substring({letters}, 1, {body_size_bytes})").alias("value"),
        functions.expr(f"cast(id % {QUEUE_COUNT} as int)").alias("partition"),
    )


def filled(
    spark: "SparkSession", stack: ExitStack, folder: Path, row_count: int, body_size_bytes: int
) -> dict[str, Source]:
    """Fill and return the three sources with the same rows."""
    frame = rows(spark, row_count, body_size_bytes)
    (folder / "reput").mkdir(parents=True)
    served = stack.enter_context(store.running(folder / "reput", "async"))
    to_reput = {"commitlog.endpoint": served.commitlog, "topic": "bench", "durability": "memory"}
    frame.write.format("reput").options(**to_reput).mode("append").save()
    kafka = peer_of("kafka")
    kafka.prepare()
    (folder / "kafka").mkdir()
    broker = stack.enter_context(kafka.running(folder / "kafka", "async"))
    to_kafka = {"kafka.bootstrap.servers": broker.target, "topic": "bench"}
    frame.write.format("kafka").options(**to_kafka).save()
    found = {
        "reput": Source("reput", {"endpoint": served.indexer, "subscribe": "bench"}, served.pids),
        "kafka": Source(
            "kafka",
            {"kafka.bootstrap.servers": broker.target, "subscribe": "bench", "startingOffsets": "earliest"},
            tuple(broker.pids),
        ),
    }
    wait_for(spark, found["reput"], row_count)
    found["reput"].frame(spark).write.parquet(str(folder / "parquet"))
    found["parquet"] = Source("parquet", {"path": str(folder / "parquet")})
    return found


def wait_for(spark: "SparkSession", source: Source, row_count: int) -> None:
    """Wait until the Indexer has everything."""
    end_s = time.monotonic() + 60
    while source.frame(spark).count() < row_count:
        if time.monotonic() > end_s:
            raise RuntimeError("the Indexer has not caught up within a minute")
        time.sleep(0.2)


def measured(spark: "SparkSession", source: Source, row_count: int, body_size_bytes: int) -> dict[str, float]:
    """Read everything once. Returns rows and megabytes per second, and CPU time of each part for a million rows."""
    before, start_s = cpu_s(source.pids), time.perf_counter()
    source.frame(spark).write.format("noop").mode("overwrite").save()
    seconds = time.perf_counter() - start_s
    after = cpu_s(source.pids)
    per_million = {f"{who}_cpu_s_per_million": (after[who] - before[who]) / row_count * 1e6 for who in after}
    return {
        "rows_per_s": row_count / seconds,
        "megabytes_per_s": row_count * body_size_bytes / seconds / 1e6,
        **per_million,
    }


def cpu_s(server_pids: tuple[int, ...]) -> dict[str, float]:
    """Return the CPU time so far of the JVM, its Python workers and the server."""
    totals = {"jvm": 0.0, "python": 0.0, "server": 0.0}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            if child.pid in server_pids or _is_spark(child):
                kind = "server" if child.pid in server_pids else "jvm" if "java" in child.name() else "python"
                times = child.cpu_times()
                totals[kind] += times.user + times.system
                if kind == "python":  # workers that have ended since are their daemon's
                    totals[kind] += times.children_user + times.children_system
    return totals


def _is_spark(process: psutil.Process) -> bool:
    """Return whether it is Spark's JVM or a Python worker of it."""
    words = " ".join(process.cmdline())
    return "org.apache.spark.deploy.SparkSubmit" in words or "pyspark.daemon" in words or "pyspark/daemon" in words


def report(results: Results, facts: Mapping[str, object]) -> str:
    """Return the table as Markdown."""
    lines = ["# Spark reads", "", ", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += ["| scenario | system | rows/s | MB/s of bodies | Reput ÷ it | JVM | Python | server |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---:|"]
    for case in CASES:
        for system in SYSTEMS:
            rate, size = results.spread(case, system, "rows_per_s"), results.spread(case, system, "megabytes_per_s")
            if rate is None or size is None:
                continue
            ratio = results.ratio((case, "reput", "rows_per_s"), (case, system, "rows_per_s"))
            shares = [results.spread(case, system, f"{who}_cpu_s_per_million") for who in ("jvm", "python", "server")]
            cells = [f"{share.median:.2f}" if share else "–" for share in shares]
            through = (
                "" if system == "reput" or ratio is None else f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
            )
            lines.append(
                f"| {case} | {system} | {rate.median:,.0f} ({rate.low:,.0f}–{rate.high:,.0f}) | {size.median:,.0f} "
                f"| {through} | {' | '.join(cells)} |"
            )
    lines += ["", "The last three columns are CPU seconds for a million rows.", ""]
    for system, bound in GOALS:
        ratio = results.ratio(("read-100B", "reput", "rows_per_s"), ("read-100B", system, "rows_per_s"))
        if ratio is not None:
            verdict = "met" if ratio.median >= bound else "missed"
            lines.append(f"- read-100B: Reput ÷ {system} ≥ {bound:g}: {ratio.median:.2f}, {verdict}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="reads of each source (default %(default)s)")
    parser.add_argument("--only", choices=[*CASES, LOOKUP], nargs="+", default=[*CASES, LOOKUP], help="these parts")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), metavar="DIR", help="where results go")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where data are kept"
    )
    chosen = parser.parse_args()
    for directory in (chosen.out, chosen.data):
        directory.mkdir(parents=True, exist_ok=True)
    facts, results = machine.machine(chosen.data), Results()
    with session() as spark, Progress(console=console) as progress:
        cases = [case for case in chosen.only if case in CASES]
        task = progress.add_task("reading", total=len(cases) * chosen.rounds * len(SYSTEMS) + (LOOKUP in chosen.only))
        for case in cases:
            with tempfile.TemporaryDirectory(prefix="reput-bench-", dir=chosen.data) as folder, ExitStack() as stack:
                progress.update(task, description=f"{case}: filling")
                sources = filled(spark, stack, Path(folder), *CASES[case])
                for source in sources.values():
                    measured(spark, source, *CASES[case])  # warms up
                for number in range(1, chosen.rounds + 1):
                    for system in (*SYSTEMS[number % 3 :], *SYSTEMS[: number % 3]):
                        progress.update(task, description=f"{case}: {system}")
                        figures = measured(spark, sources[system], *CASES[case])
                        results.runs.append(Run(case, system, number, figures))
                        progress.advance(task)
        found = []
        if LOOKUP in chosen.only:
            progress.update(task, description=f"{LOOKUP}: filling {spark_lookup.ROW_COUNT:,} messages")
            with tempfile.TemporaryDirectory(prefix="reput-bench-", dir=chosen.data) as folder:
                found = spark_lookup.lookups(spark, Path(folder))
            progress.advance(task)
    text = report(results, facts) + ("\n" + spark_lookup.report(found) if found else "")
    (chosen.out / "spark.md").write_text(text)
    runs = [asdict(run) for run in results.runs]
    (chosen.out / "spark.json").write_text(
        json.dumps({"machine": facts, "runs": runs, "lookups": [asdict(one) for one in found]}, indent=1, default=str)
        + "\n"
    )
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
