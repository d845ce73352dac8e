# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.door`: calls through the gateway's door beside direct calls, and the processor time of the door.

The service behind the door is a server without a log that answers at once. So the figures are the costs of the door, of
HTTP/2 and of the caller. Rounds of direct calls and rounds of calls through the door alternate. The kernel measures the
processor time of the door's process. The table has the cheapest round of each load, because other work on the machine
makes a round slower, and never faster. The figures go into a table and a JSON file.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import uvloop
from rich.console import Console

from bench import machine, store
from bench.inside.empty_server import BATCH, READING_SERVICE, SERVICE
from libs.runtime.http2.calling.channel import LoopChannel

BODY = b"x" * 1_024
CALL_COUNT, STREAM_COUNT = 20_000, 4_000
CONNECTION_COUNT = 4
GOALS: Mapping[str, float] = {"us": 25.0, "gb_per_core_s": 1.0, "p99_ms": 0.15}
"""Limits: µs of processor time of a call, GB of a stream per second of a core, ms of p99 above a direct call."""

console = Console(stderr=True)


@dataclass(frozen=True, slots=True)
class Measured:
    """A load through the door or directly: calls or batches per second, processor time, and durations of calls."""

    load: str
    way: str
    per_s: float
    us: float
    """Processor time of the called process for each call or batch."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, in nanoseconds of the scheduler where the kernel has them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


def channels(target: str, count: int) -> list[LoopChannel]:
    """Return channels, each with a connection of its own."""
    return [
        LoopChannel(target, context=None, reconnect_ms_max=1_000, answer_size_bytes_max=64 << 20) for _ in range(count)
    ]


async def calls(channel: LoopChannel, count: int, waits_ms: list[float]) -> None:
    """Make calls one after the other."""
    method = channel.unary_unary(f"/{SERVICE}/Append")
    for _ in range(count):
        start_s = time.perf_counter()
        await method(BODY, timeout=60.0)
        waits_ms.append((time.perf_counter() - start_s) * 1_000)


async def take(channel: LoopChannel, count: int) -> None:
    """Read a stream of batches."""
    stream = channel.unary_stream(f"/{READING_SERVICE}/StreamRecords")(b"%d" % count)
    async for _ in stream:
        pass


async def give(channel: LoopChannel, count: int) -> None:
    """Write a stream of batches, and read the answers."""

    async def batches() -> AsyncIterator[bytes]:
        for _ in range(count):
            yield BATCH

    async for _ in channel.stream_stream(f"/{SERVICE}/AppendStream")(batches()):
        pass


async def measured(load: str, way: str, target: str, pid: int) -> Measured:
    """Run a load."""
    name, _, caller_count = load.partition("-")
    count = int(caller_count or 1)
    used = channels(target, min(count, CONNECTION_COUNT))
    waits_ms: list[float] = []
    try:
        await asyncio.gather(*(calls(channel, 50, waits_ms) for channel in used))
        waits_ms.clear()
        start_s, start_cpu_s = time.perf_counter(), cpu_s(pid)
        if name == "calls":
            total = CALL_COUNT if count > 1 else CALL_COUNT // 10
            await asyncio.gather(*(calls(used[at % len(used)], total // count, waits_ms) for at in range(count)))
        else:
            total = STREAM_COUNT
            await (take if name == "answers" else give)(used[0], total)
        took_s, took_cpu_s = time.perf_counter() - start_s, cpu_s(pid) - start_cpu_s
    finally:
        for channel in used:
            await channel.close()
    waits_ms.sort()
    p50_ms, p99_ms = (waits_ms[int(len(waits_ms) * share)] if waits_ms else 0.0 for share in (0.5, 0.99))
    return Measured(load, way, total / took_s, took_cpu_s / total * 1e6, p50_ms, p99_ms)


def best(found: list[Measured], load: str, way: str) -> Measured:
    """Return the round of a load with the least processor time."""
    return min((run for run in found if (run.load, run.way) == (load, way)), key=lambda run: run.us)


def report(found: list[Measured], facts: Mapping[str, object]) -> str:
    """Return the page."""
    lines = [
        "# The door", "", f"{facts}", "",
        "| load | way | per s | processor time, µs | GB/s a core | p50 ms | p99 ms |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for load in dict.fromkeys(run.load for run in found):
        for way in ("direct", "door"):
            one = best(found, load, way)
            rate = "" if load.startswith("calls") else f"{len(BATCH) / one.us / 1_000:.2f}"
            p99_ms = min(each.p99_ms for each in found if (each.load, each.way) == (load, way))
            waits = f"{one.p50_ms:.3f} | {p99_ms:.3f}" if load.startswith("calls") else " | "
            lines.append(f"| {load} | {way} | {one.per_s:,.0f} | {one.us:.1f} | {rate} | {waits} |")
    lines += [
        "",
        "The processor time of `direct` is the server's, that of `door` the gateway's.",
        f"Goals: {GOALS['us']:.0f} µs a call, {GOALS['gb_per_core_s']:.0f} GB/s a core, {GOALS['p99_ms']} ms of p99.",
    ]
    return "\n".join(lines) + "\n"


async def measure(rounds: int, loads: list[str], folder: Path) -> list[Measured]:
    """Run all loads in turn, directly and through the door."""
    found: list[Measured] = []
    with store.front_alone("http2") as (target, pid), store.door(folder, target) as (door, door_pid):
        for number in range(rounds):
            for load in loads:
                console.print(f"round {number + 1}: {load}")
                found.append(await measured(load, "direct", target, pid))
                found.append(await measured(load, "door", door, door_pid))
    return found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=["calls-1", "calls-64", "answers", "requests"])
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="reput-bench-") as folder:
        found = uvloop.run(measure(chosen.rounds, chosen.only, Path(folder)))
    facts = machine.machine(chosen.out)
    text = report(found, facts)
    (chosen.out / "door.md").write_text(text)
    runs = [asdict(one) for one in found]
    (chosen.out / "door.json").write_text(json.dumps({"machine": facts, "runs": runs}, indent=1, default=str) + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
