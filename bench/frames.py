# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.frames`: a topic into Arrow and pandas, beside confluent-kafka into pandas and Spark's source.

For each size of message: a store and a Kafka broker with the same rows. Each is read whole, in turn, several times, in
changing order; each read is a process of its own, which reads once to warm up. The same five columns come from each.
Spark reads into its noop sink. Last, a process reads many rows batch by batch, and tells its largest memory.
Needs Maven Central for Kafka. Rates, ratios and memory go into a table, and JSON to a file.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import reput_client
from reput_client import frames
from rich.console import Console
from rich.progress import Progress

from bench import machine, store
from bench.peers import python_build
from bench.peers.registry import peer_of
from bench.results import Results, Run

TOPIC, QUEUE_COUNT = "bench", 4
COLUMNS = ("key", "value", "partition", "offset", "timestamp")
CASES: Mapping[str, tuple[int, int]] = {"read-100B": (1_000_000, 100), "read-1KiB": (200_000, 1_024)}
"""Rows and bytes of a body."""
MEMORY, MEMORY_ROW_COUNT, MEMORY_BODY_BYTES = "memory-10M", 10_000_000, 100
MEMORY_BYTES_MAX = 256 << 20
SYSTEMS = ("reput-arrow", "reput-pandas", "kafka-pandas", "reput-spark")
GOALS = (
    ("reput-arrow", "kafka-pandas", 3.0),
    ("reput-pandas", "kafka-pandas", 3.0),
    ("reput-arrow", "reput-spark", 1.0),
)
"""The first system's rate through the second's: at least this."""
FILL_ROW_COUNT = 50_000
INDEX_TIMEOUT_S = 600

console = Console(stderr=True)


def filled(commitlog: str, indexer: str, row_count: int, body_size_bytes: int) -> None:
    """Fill the topic, and wait until it is indexed."""
    body = b"x" * body_size_bytes

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, row_count, FILL_ROW_COUNT):
            numbers = range(first, min(first + FILL_ROW_COUNT, row_count))
            yield pa.record_batch(
                {
                    "key": [f"order-{number}" for number in numbers],
                    "value": [body] * len(numbers),
                    "queue": [number % QUEUE_COUNT for number in numbers],
                }
            )

    with reput_client.connect(commitlog=commitlog, indexer=indexer, timeout_s=INDEX_TIMEOUT_S) as client:
        frames.write(client, TOPIC, batches(), key="key", queue_id="queue", durability=reput_client.Durability.MEMORY)
        end_s = time.monotonic() + INDEX_TIMEOUT_S
        while frames.read(client, TOPIC).planned_row_count != row_count:
            if time.monotonic() > end_s:
                raise RuntimeError(f"the Indexer has not caught up within {INDEX_TIMEOUT_S} s")
            time.sleep(0.2)


def to_arrow(indexer: str) -> int:
    """Read the topic into a table."""
    return int(frames.read(indexer, TOPIC, columns=COLUMNS).to_arrow().num_rows)


def to_pandas(indexer: str) -> int:
    """Read the topic into a DataFrame of pandas, without a search for equal keys and bodies: there are none."""
    return len(frames.read(indexer, TOPIC, columns=COLUMNS).to_pandas(deduplicate_objects=False))


def to_nothing(indexer: str) -> int:
    """Read the topic batch by batch, and keep nothing of it."""
    return sum(batch.num_rows for batch in frames.read(indexer, TOPIC))


@contextmanager
def spark_reader(indexer: str) -> Iterator[Callable[[], int]]:
    """Yield a read of the topic by a Spark of two slots in one process."""
    from bench.spark import session

    with session(has_kafka=False) as spark:
        options = {"endpoint": indexer, "subscribe": TOPIC, "columns": ",".join(COLUMNS)}
        source = spark.read.format("reput").options(**options)
        row_count = source.load().count()

        def read() -> int:
            source.load().write.format("noop").mode("overwrite").save()
            return row_count

        yield read


READERS: Mapping[str, Callable[[str], int]] = {
    "reput-arrow": to_arrow,
    "reput-pandas": to_pandas,
    MEMORY: to_nothing,
}


def measured_here(system: str, indexer: str) -> Mapping[str, float]:
    """Read twice in this process, and measure the second read."""
    with ExitStack() as stack:
        if system == "reput-spark":
            read = stack.enter_context(spark_reader(indexer))
        else:
            read = lambda: READERS[system](indexer)  # noqa: E731
        if system != MEMORY:
            read()
        start_s = time.perf_counter()
        row_count = read()
        seconds = time.perf_counter() - start_s
    return {"row_count": row_count, "seconds": seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> int:
    """Return the largest memory of this process since its start. Its rusage begins with that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10


def measured(command: Sequence[str], row_count: int, body_size_bytes: int) -> Mapping[str, float]:
    """Run a process that reads, and return its figures."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["row_count"] != row_count:
        raise RuntimeError(f"{' '.join(command)} read {found['row_count']} rows of {row_count}")
    rate = row_count / found["seconds"]
    return {
        "rows_per_s": rate,
        "megabytes_per_s": rate * body_size_bytes / 1e6,
        "seconds": found["seconds"],
        "peak_bytes": found["peak_bytes"],
    }


def reads(indexer: str, kafka: str, row_count: int) -> Mapping[str, Sequence[str]]:
    """Return the commands that read, by system."""
    own = [sys.executable, "-m", "bench.frames", "--indexer", indexer, "--read"]
    confluent = [*python_build.command("confluentframes.py"), kafka, "read", str(row_count)]
    return {**{system: [*own, system] for system in SYSTEMS}, "kafka-pandas": confluent}


def run_case(case: str, folder: Path, rounds: int, results: Results, step: Callable[[str], None]) -> None:
    """Fill both systems and read them in turn."""
    row_count, body_size_bytes = CASES[case]
    peer = peer_of("kafka-confluent")
    peer.prepare()
    with ExitStack() as stack:
        for name in ("reput", "kafka"):
            (folder / name).mkdir(parents=True)
        served = stack.enter_context(store.running(folder / "reput", "async"))
        broker = stack.enter_context(peer.running(folder / "kafka", "async"))
        filled(served.commitlog, served.indexer, row_count, body_size_bytes)
        fill = [*python_build.command("confluentframes.py"), broker.target, "fill", str(row_count)]
        measured([*fill, str(body_size_bytes)], row_count, body_size_bytes)
        commands = reads(served.indexer, broker.target, row_count)
        for number in range(1, rounds + 1):
            turn = number % len(SYSTEMS)
            for system in (*SYSTEMS[turn:], *SYSTEMS[:turn]):
                step(f"{case}: {system}")
                try:
                    run = Run(case, system, number, measured(commands[system], row_count, body_size_bytes))
                except RuntimeError as error:
                    run = Run(case, system, number, {}, str(error))
                results.runs.append(run)


def run_memory(folder: Path, rounds: int, row_count: int, results: Results, step: Callable[[str], None]) -> None:
    """Read many rows batch by batch."""
    with store.running(folder, "async") as served:
        step(f"{MEMORY}: filling")
        filled(served.commitlog, served.indexer, row_count, MEMORY_BODY_BYTES)
        command = reads(served.indexer, "", row_count)["reput-arrow"]
        for number in range(1, rounds + 1):
            step(MEMORY)
            figures = measured([*command[:-1], MEMORY], row_count, MEMORY_BODY_BYTES)
            results.runs.append(Run(MEMORY, "reput", number, figures))


def report(results: Results, facts: Mapping[str, object]) -> str:
    """Return the table as Markdown."""
    lines = ["# Topics as Arrow and pandas", "", ", ".join(f"{name} {value}" for name, value in facts.items()), ""]
    lines += ["| scenario | system | rows/s | MB/s of bodies | memory |", "|---|---|---:|---:|---:|"]
    for case in (*CASES, MEMORY):
        for system in (*SYSTEMS, "reput"):
            rate = results.spread(case, system, "rows_per_s")
            size = results.spread(case, system, "megabytes_per_s")
            peak = results.spread(case, system, "peak_bytes")
            if rate is None or size is None or peak is None:
                continue
            memory = "–" if system == "reput-spark" else f"{peak.high / (1 << 20):,.0f} MiB"
            lines.append(
                f"| {case} | {system} | {rate.median:,.0f} ({rate.low:,.0f}–{rate.high:,.0f}) | {size.median:,.0f} "
                f"| {memory} |"
            )
    lines += ["", "Medians, with the lowest and the highest of all rounds; memory is the largest of the process.", ""]
    for case in CASES:
        for system, other, bound in GOALS:
            ratio = results.ratio((case, system, "rows_per_s"), (case, other, "rows_per_s"))
            if ratio is not None:
                verdict = "met" if ratio.median >= bound else "missed"
                lines.append(f"- {case}: {system} ÷ {other} ≥ {bound:g}: {ratio.median:.2f}, {verdict}")
    lines += [
        f"- {run.scenario}, {run.peer}, round {run.round_number}: {run.error[-300:]}"
        for run in results.runs
        if run.error
    ]
    peak = results.spread(MEMORY, "reput", "peak_bytes")
    if peak is not None:
        verdict = "met" if peak.high <= MEMORY_BYTES_MAX else "missed"
        lines.append(f"- {MEMORY}: at most 256 MiB: {peak.high / (1 << 20):,.0f} MiB, {verdict}")
    return "\n".join(lines) + "\n"


def parsed(arguments: Sequence[str] | None = None) -> Any:
    """Return the arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench.frames", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="reads of each system (default %(default)s)")
    parser.add_argument("--only", choices=[*CASES, MEMORY], nargs="+", default=[*CASES, MEMORY], help="these parts")
    parser.add_argument("--memory-rows", type=int, default=MEMORY_ROW_COUNT, metavar="N", help="rows of the last part")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), metavar="DIR", help="where results go")
    parser.add_argument(
        "--data", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where data are kept"
    )
    parser.add_argument("--read", choices=[*SYSTEMS, MEMORY], help="read here, as one of the processes")
    parser.add_argument("--indexer", metavar="TARGET", help="with --read: the Indexer")
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, write."""
    chosen = parsed()
    if chosen.read:
        print(json.dumps(measured_here(chosen.read, chosen.indexer)))
        return 0
    for directory in (chosen.out, chosen.data):
        directory.mkdir(parents=True, exist_ok=True)
    facts, results = machine.machine(chosen.data), Results()
    with Progress(console=console) as progress:
        task = progress.add_task("reading", total=None)

        def step(text: str) -> None:
            progress.update(task, description=text)

        for part in chosen.only:
            step(f"{part}: filling")
            with tempfile.TemporaryDirectory(prefix="reput-bench-", dir=chosen.data) as folder:
                if part == MEMORY:
                    run_memory(Path(folder), min(chosen.rounds, 3), chosen.memory_rows, results, step)
                else:
                    run_case(part, Path(folder), chosen.rounds, results, step)
    text = report(results, facts)
    (chosen.out / "frames.md").write_text(text)
    runs = [asdict(run) for run in results.runs]
    (chosen.out / "frames.json").write_text(json.dumps({"machine": facts, "runs": runs}, indent=1, default=str) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
