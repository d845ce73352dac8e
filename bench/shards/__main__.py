# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.shards`: the processor time of each service for a message, with one store and with several shards.

All shards are on this machine, so the highest rate says nothing about several machines. Processor time for each message
does: where it stays the same, N machines carry N times the load. Each shard gets the same rate of calls, whatever the
number of shards: the machine is never full, as the size of a group of appends depends on the load of its log. Time of
idle processes is measured before the load, and taken off.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.results import Spread
from bench.shards.load import TOPIC, Load

SERVICES = ("gateway", "commitlog", "indexer", "delivery")
QUEUE_COUNT = 16
IDLE_S, SETTLE_S = 10.0, 3.0
LATE_PART_MAX = 0.1
"""Calls that end later than by this part of the time of their load are told: figures are higher then."""
BATCH_COUNT = 32
RATES = {"send": 60.0, f"send {BATCH_COUNT}": 15.0, "receive": 8.0}
"""Calls a second for each shard, by kind of load. There are more messages than the last kind receives."""
WARM_CALLS_PER_S, WARM_S = 20.0, 4.0
"""A receive takes fewer messages than there are: it would wait for further messages."""
FREE_PORTS = (
    "--commitlog-port", "0", "--indexer-port", "0", "--janitor-port", "0", "--delivery-port", "0",
    "--gateway-port", "0", "--no-metrics", "--no-console",
)  # fmt: skip

progress = Console(stderr=True)


@contextmanager
def opened(directory: Path, shard_count: int) -> Iterator[tuple[psutil.Process, str]]:
    """Start a store, or shards, with the topic. Yields the process of `reput up`, and the gateway's address."""
    reput = [sys.executable, "-m", "cli.main"]
    command = [*reput, "up", "--data-dir", str(directory), *FREE_PORTS, "--json"]
    command += ["--shards", str(shard_count)] if shard_count > 1 else []
    with (
        (directory.parent / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as up,
    ):
        try:
            assert up.stdout is not None
            if not (line := up.stdout.readline()):
                raise SystemExit(f"reput up ended:\n{Path(log.name).read_text()}")
            ready = json.loads(line)
            make = ["topics", "create", TOPIC, "--read-queues", str(QUEUE_COUNT), "--write-queues", str(QUEUE_COUNT)]
            where = ["--store", ready["gateway"]]
            if shard_count > 1:
                make = ["shards", "create", TOPIC, "--queues", str(QUEUE_COUNT)]
                make += ["--shards-file", str(directory / "shards.toml")]
                where = []
            subprocess.run([*reput, *where, *make], check=True, stdout=subprocess.DEVNULL)
            yield psutil.Process(up.pid), ready["gateway"]
        finally:
            up.send_signal(signal.SIGINT)
            up.wait()


def cpu_s(up: psutil.Process) -> dict[str, float]:
    """Return the processor time of all processes of each service so far."""
    found = dict.fromkeys(SERVICES, 0.0)
    for child in up.children():
        words = child.cmdline()
        for service in SERVICES:
            if service in words:
                times = child.cpu_times()
                found[service] += times.user + times.system
    return found


async def measured(target: str, up: psutil.Process, shard_count: int, seconds: float) -> dict[str, float]:
    """Return microseconds of processor time for a message, by kind of load and service."""
    load, found = Load(target), dict[str, float]()
    try:
        await load.send(WARM_CALLS_PER_S, WARM_S)
        await load.receive(1 / WARM_S, WARM_S)
        await asyncio.sleep(SETTLE_S)
        before = cpu_s(up)
        await asyncio.sleep(IDLE_S)
        idle = {service: (at - before[service]) / IDLE_S for service, at in cpu_s(up).items()}
        for kind, rate in RATES.items():
            before, begin_s = cpu_s(up), time.perf_counter()
            if kind == "receive":
                messages = await load.receive(rate * shard_count, seconds)
            else:
                messages = await load.send(rate * shard_count, seconds, at_once=1 if kind == "send" else BATCH_COUNT)
            await asyncio.sleep(SETTLE_S)  # the Indexer is behind
            took_s, after = time.perf_counter() - begin_s, cpu_s(up)
            for service in SERVICES:
                used_s = after[service] - before[service] - idle.get(service, 0.0) * took_s
                found[f"{kind}, {service}"] = 1e6 * used_s / messages
            found[f"{kind}, all"] = sum(found[f"{kind}, {service}"] for service in SERVICES)
        if load.late_part > LATE_PART_MAX:
            progress.print(f"{shard_count} shards: calls ended late; the machine is too slow or not quiet")
    finally:
        await load.close()
    return found


def run(counts: list[int], rounds: int, seconds: float) -> dict[int, list[dict[str, float]]]:
    """Measure each number of shards in turn, in each round."""
    found: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    for number in range(rounds):
        for count in counts:
            progress.print(f"round {number + 1} of {rounds}: {count} shards")
            with (
                tempfile.TemporaryDirectory(prefix="reput-bench-") as scratch,
                opened(Path(scratch) / "store", count) as (up, target),
            ):
                found[count].append(asyncio.run(measured(target, up, count, seconds)))
    return found


def table_of(found: Mapping[int, list[dict[str, float]]]) -> tuple[Table, list[str]]:
    """Return the medians as a table, and as lines of Markdown. Ratios are of the same round, to the first number."""
    first, *others = found
    heads = [f"{count} shards, us" if count > 1 else "one store, us" for count in found]
    heads += [f"{count} : {first}" for count in others]
    table, lines = Table("load, service", *heads), [f"| load, service | {' | '.join(heads)} |"]
    lines.append(f"|---|{'---|' * len(heads)}")
    for name in found[first][0]:
        cells = [f"{_median(row[name] for row in rows):.1f}" for rows in found.values()]
        for count in others:
            pairs = zip(found[count], found[first], strict=True)
            cells.append(f"{_median(row[name] / base[name] for row, base in pairs if base[name]):.2f}")
        table.add_row(name, *cells)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return table, lines


def _median(values: Iterable[float]) -> float:
    spread = Spread.of(values)
    return 0.0 if spread is None else spread.median


def main() -> None:
    """Measure, print the table, and write it and all figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.shards", description=__doc__)
    parser.add_argument("--shards", default="1,2,4,8", help="numbers of shards, with commas between (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument("--seconds", type=float, default=15.0, help="seconds of each load (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), help="where results go")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    facts = machine.machine(chosen.out)
    found = run([int(text) for text in chosen.shards.split(",")], chosen.rounds, chosen.seconds)
    table, lines = table_of(found)
    Console().print(table)
    head = f"Processor time of each service for a message of 1 KiB, {chosen.rounds} rounds, medians; revision "
    (chosen.out / "shards.md").write_text("\n".join(["# Shards", "", head + str(facts["revision"]), "", *lines]) + "\n")
    document = {"machine": facts, "rounds": {str(count): rows for count, rows in found.items()}}
    (chosen.out / "shards.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
