# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.tasks`: tasks a second of a worker of Celery, with Reput, with Redis, and with Celery's own memory.

Each round publishes tasks that do nothing, which a worker then does and acknowledges afterwards (`acks_late`), for each
broker and each pool in turn. The clock begins when a tenth of the tasks is done, and ends with the last task. Then the
worker stops in order; a task that was done twice, or is left in the queue, is an error.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil
from rich.console import Console
from rich.progress import Progress

from bench import machine
from bench.peers import python_build
from bench.results import Results, Run
from bench.tasks.brokers import BROKERS, REPUT, Broker

POOLS: Mapping[str, Sequence[str]] = {"solo": ("-P", "solo"), "two processes": ("-P", "prefork", "-c", "2")}
FIGURES: Mapping[str, str] = {
    "tasks_per_s": "tasks/s",
    "worker_ms": "worker, ms a task",
    "server_ms": "server, ms a task",
    "published_per_s": "published/s",
}
"""Figures and their titles."""
LIMIT_S = 300.0
POLL_S = 0.002
WARM_SHARE = 0.1

console = Console(stderr=True)


class Application:
    """The application with a broker, as processes."""

    def __init__(self, folder: Path, broker: Broker, count: int, prefetch: int) -> None:
        self._folder, self._count = folder, count
        self._effects = folder / "effects"
        self._effects.touch()
        self._environment = os.environ | {
            "REPUT_BENCH_BROKER": broker.url,
            "REPUT_BENCH_COUNT": str(count),
            "REPUT_BENCH_EFFECTS": str(self._effects),
            "REPUT_BENCH_PACKAGES": str(python_build.packages()),
            "REPUT_BENCH_PREFETCH": str(prefetch),
        }

    @property
    def done_count(self) -> int:
        """The number of tasks that ran."""
        return self._effects.stat().st_size

    def ask(self, verb: str) -> str:
        """Run the application's own program, `publish` or `left`, and return its line."""
        words = [sys.executable, "-m", "bench.tasks.app", verb]
        done = subprocess.run(
            words, env=self._environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{verb} failed: {done.stderr.rstrip().rpartition(chr(10))[2]}")
        return done.stdout.strip()

    def wait_for(self, count: int) -> None:
        """Wait until so many tasks ran. Raises TimeoutError."""
        end_s = time.monotonic() + LIMIT_S
        while self.done_count < count:
            if time.monotonic() > end_s:
                told = (self._folder / "worker.log").read_text()[-1000:]
                raise TimeoutError(f"{self.done_count} of {self._count} tasks ran within {LIMIT_S:.0f} s: {told}")
            time.sleep(POLL_S)

    @contextlib.contextmanager
    def worker(self, options: Sequence[str]) -> Iterator[int]:
        """Run a worker, and stop it in order. Yields its process id."""
        words = [sys.executable, "-m", "celery", "-A", "bench.tasks.app", "worker", "-l", "WARNING", *options]
        with (self._folder / "worker.log").open("wb") as log:
            process = subprocess.Popen(words, env=self._environment, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process.pid
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(LIMIT_S)


def measured(folder: Path, broker: Broker, options: Sequence[str], count: int, prefetch: int) -> dict[str, float]:
    """Let a worker do so many tasks, and return the figures."""
    application, figures = Application(folder, broker, count, prefetch), {}
    if is_apart := bool(broker.pids):
        figures["published_per_s"] = count / float(application.ask("publish"))
    with application.worker(options) as pid:
        application.wait_for(round(count * WARM_SHARE))
        workers = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        servers = [psutil.Process(one) for one in broker.pids]
        first, begin_s = application.done_count, time.perf_counter()
        worker_s, server_s = cpu_s(workers), cpu_s(servers)
        application.wait_for(count)
        done_count, seconds = count - first, time.perf_counter() - begin_s
        figures["tasks_per_s"] = done_count / seconds
        figures["worker_ms"] = (cpu_s(workers) - worker_s) / done_count * 1000
        if is_apart:
            figures["server_ms"] = (cpu_s(servers) - server_s) / done_count * 1000
    if application.done_count != count:
        raise RuntimeError(f"{application.done_count} of {count} tasks ran: some ran twice")
    if is_apart and (left := application.ask("left")) != "0":
        raise RuntimeError(f"{left} tasks are left in the queue")
    return figures


def cpu_s(processes: Sequence[psutil.Process]) -> float:
    """Return the processor time of processes so far."""
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def report(results: Results, facts: Mapping[str, object], chosen: argparse.Namespace) -> str:
    """Return the table as Markdown."""
    lines = ["# Tasks of Celery that do nothing", "", ", ".join(f"{name} {value}" for name, value in facts.items())]
    lines += ["", f"{chosen.tasks:,} tasks, {chosen.rounds} rounds, worker_prefetch_multiplier {chosen.prefetch}."]
    lines += ["", f"| pool | broker | {' | '.join(FIGURES.values())} | Reput ÷ it |", f"|---|---|{'---:|' * 5}"]
    for pool in POOLS:
        for name in BROKERS:
            cells = [_cell(results, pool, name, figure) for figure in FIGURES]
            ratio = results.ratio((pool, REPUT, "tasks_per_s"), (pool, name, "tasks_per_s"))
            cells.append(f"{ratio.median:.2f}" if ratio and name != REPUT else "")
            lines.append(f"| {pool} | {name} | {' | '.join(cells)} |")
    lines += ["", "Medians, with the lowest and the highest value. The times are of the processor, during the clock."]
    lines += ["", *(f"- {run.scenario}, {run.peer}: {run.error}" for run in results.runs if run.error)]
    return "\n".join(lines).rstrip() + "\n"


def _cell(results: Results, pool: str, name: str, figure: str) -> str:
    spread = results.spread(pool, name, figure)
    if spread is None:
        return "–"
    digits = ".2f" if figure.endswith("_ms") else ",.0f"
    return f"{spread.median:{digits}} ({spread.low:{digits}}–{spread.high:{digits}})"


def main() -> int:
    """Measure, print, write. Exit code 1 if a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.tasks", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each (default %(default)s)")
    parser.add_argument("--tasks", type=int, default=3000, metavar="N", help="tasks of a run (default %(default)s)")
    parser.add_argument("--prefetch", type=int, default=4, metavar="N", help="worker_prefetch_multiplier (%(default)s)")
    parser.add_argument("--only", choices=list(BROKERS), nargs="+", default=list(BROKERS), help="these brokers")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), metavar="DIR", help="where results go")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where data are")
    chosen = parser.parse_args()
    for directory in (chosen.out, chosen.data):
        directory.mkdir(parents=True, exist_ok=True)
    python_build.build()
    facts, results = machine.machine(chosen.data), Results()
    with Progress(console=console) as progress:
        task = progress.add_task("tasks", total=chosen.rounds * len(POOLS) * len(chosen.only))
        for number in range(1, chosen.rounds + 1):
            for pool, options in POOLS.items():
                for name in chosen.only[number % len(chosen.only) :] + chosen.only[: number % len(chosen.only)]:
                    progress.update(task, description=f"{pool}: {name}", advance=1)
                    with tempfile.TemporaryDirectory(prefix="reput-bench-", dir=chosen.data) as folder:
                        results.runs.append(run_of(name, pool, options, number, Path(folder), chosen))
                text = report(results, facts, chosen)
                (chosen.out / "tasks.md").write_text(text)
    runs = [asdict(run) for run in results.runs]
    (chosen.out / "tasks.json").write_text(json.dumps({"machine": facts, "runs": runs}, indent=1, default=str) + "\n")
    print(text)
    return int(results.has_failed)


def run_of(name: str, pool: str, options: Sequence[str], number: int, folder: Path, chosen: argparse.Namespace) -> Run:
    """Measure a broker with a pool, and return the figures or the error."""
    try:
        with BROKERS[name](folder) as broker:
            return Run(pool, name, number, measured(folder, broker, options, chosen.tasks, chosen.prefetch))
    except (RuntimeError, TimeoutError, OSError, subprocess.SubprocessError) as error:
        return Run(pool, name, number, {}, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main())
