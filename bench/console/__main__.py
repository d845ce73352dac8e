# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.console`: memory, processor time, first bytes and sizes of the console's pages.

A store is filled, a console is started and left alone: its share of a core is the cost of an idle console. Then readers
keep its pages open as browsers do, some of them with a live tail, while messages arrive. Exit code 1 if a bar is missed
or a page was not complete.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import psutil
from reput_client import connect
from rich.console import Console
from rich.progress import track

from bench import machine, store
from bench.console.filling import KEY, fill, message, topic
from bench.console.readers import Readers, get

MEMORY_MB_MAX, IDLE_PERCENT_MAX, FIRST_BYTE_MS_MAX, PAGE_KB_MAX = 90.0, 0.3, 100.0, 100.0
SETTLE_S = 20.0
"""After the start there is still something to do."""
STATIC = ("/static/console.css", "/static/console.js", "/static/htmx.min.js", "/static/icon.svg")
ARRIVALS_PER_S = 20

progress = Console(stderr=True)


def paths_of(port: int) -> list[str]:
    """Return the pages that readers keep open."""
    found = json.loads(get(port, f"/find.json?q={KEY}")[2])["messages"][0]["id"]
    return [
        "/", f"/?q={KEY}", "/?q=-1h", f"/messages/{found}", "/topics", f"/topics/{topic(1)}", "/groups",
        "/groups/workers-1", "/groups/readers-1", "/dead-letters", "/dead-letters/workers-1", "/delayed",
        "/transactions", "/retention", "/store",
    ]  # fmt: skip


def wait(seconds: float, what: str) -> None:
    """Wait, and show how long."""
    for _ in track(range(max(round(seconds), 1)), what, console=progress, transient=True):
        time.sleep(seconds / max(round(seconds), 1))


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def idle_percents(process: psutil.Process, seconds: float, rounds: int) -> list[float]:
    """Return the share of a core of a console without readers, once a round."""
    wait(SETTLE_S, "settling")
    shares = []
    for _ in range(rounds):
        before_s, begin_s = cpu_s(process), time.perf_counter()
        wait(seconds, "idle")
        shares.append(100 * (cpu_s(process) - before_s) / (time.perf_counter() - begin_s))
    return shares


def arrive(served: store.Store, is_over: threading.Event) -> None:
    """Append some messages a second until the event is set."""
    with connect(commitlog=served.commitlog, indexer=served.indexer) as client, client.producer() as producer:
        number = 0
        while not is_over.wait(1 / ARRIVALS_PER_S):
            producer.send_message(message(number))
            number += 1


def load(served: store.Store, port: int, process: psutil.Process, chosen: argparse.Namespace) -> dict[str, object]:
    """Let readers keep pages open. Returns the figures."""
    paths = paths_of(port)
    cursor = json.loads(get(port, f"/topics/{topic(1)}.json")[2])["cursor"]
    readers = Readers(port, paths, chosen.readers, f"/topics/{topic(1)}/tail?cursor={quote(cursor)}", chosen.tails)
    is_over = threading.Event()
    arriving = threading.Thread(target=arrive, args=(served, is_over))
    before_s, begin_s, memory, own = cpu_s(process), time.perf_counter(), [], []
    arriving.start()
    readers.start()
    try:
        for _ in track(range(round(chosen.minutes * 60)), "readers", console=progress, transient=True):
            time.sleep(1)
            used = process.memory_info()
            memory.append(used.rss / 1e6)
            own.append((used.rss - used.shared) / 1e6)
    finally:
        is_over.set()
        readers.stop()
        arriving.join()
    share = 100 * (cpu_s(process) - before_s) / (time.perf_counter() - begin_s)
    times = sorted(ms for result in readers.results.values() for ms in result.first_bytes_ms)
    pages = {
        path: {
            "count": len(result.first_bytes_ms),
            "p50_ms": statistics.median(result.first_bytes_ms),
            "p95_ms": statistics.quantiles(result.first_bytes_ms, n=20)[-1],
            "kB": result.size_bytes / 1000,
            "problems": result.problems,
        }
        for path, result in readers.results.items()
        if len(result.first_bytes_ms) > 1
    }
    return {
        "memory_mb_max": max(memory),
        "memory_mb_end": memory[-1],
        "own_memory_mb_max": max(own),
        "processor_percent": share,
        "page_count": len(times),
        "first_byte_p50_ms": statistics.median(times),
        "first_byte_p95_ms": statistics.quantiles(times, n=20)[-1],
        "page_kb_max": max(result.size_bytes for result in readers.results.values()) / 1000,
        "static_kb": sum(len(get(port, path)[2]) for path in STATIC) / 1000,
        "problem_count": sum(result.problems.total() for result in readers.results.values()),
        "pages": pages,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.console", description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="time of the readers (%(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=60.0, metavar="S", help="seconds a round (%(default)s)")
    parser.add_argument("--idle-rounds", type=int, default=1, metavar="N", help="rounds of idle time (%(default)s)")
    parser.add_argument("--readers", type=int, default=20, metavar="N", help="pages that are open (%(default)s)")
    parser.add_argument("--tails", type=int, default=4, metavar="N", help="live tails beside them (%(default)s)")
    parser.add_argument("--messages", type=int, default=100_000, metavar="N", help="stored messages (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("bench/results/local"), metavar="DIR", help="where results go")
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="reput-bench-") as folder,
        store.running(Path(folder), "async") as served,
        store.delivering(served) as (delivery, _),
        store.console(served, delivery) as (port, pid),
    ):
        process = psutil.Process(pid)
        with connect(commitlog=served.commitlog, indexer=served.indexer, delivery=delivery) as client:
            fill(client, chosen.messages)
        idle = idle_percents(process, chosen.idle_seconds, chosen.idle_rounds)
        found = {
            "machine": machine.machine(Path(folder)),
            "start_memory_mb": process.memory_info().rss / 1e6,
            "idle_percent": statistics.median(idle),
            "idle_percents": idle,
            **load(served, port, process, chosen),
        }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "console.json").write_text(json.dumps(found, indent=1, default=str) + "\n")
    return shown(found)


def shown(found: dict[str, object]) -> int:
    """Print the figures beside their bars. Returns 1 if a bar is missed."""
    pages = found["pages"]
    assert isinstance(pages, dict)
    for path, page in pages.items():
        print(f"{page['p50_ms']:7.1f} ms {page['p95_ms']:7.1f} ms {page['kB']:7.1f} kB {page['count']:5} {path}")
    missed = 0
    for name, bar, unit in (
        ("memory_mb_max", MEMORY_MB_MAX, "MB"), ("idle_percent", IDLE_PERCENT_MAX, "% of a core"),
        ("first_byte_p95_ms", FIRST_BYTE_MS_MAX, "ms"), ("page_kb_max", PAGE_KB_MAX, "kB"), ("problem_count", 0, ""),
    ):  # fmt: skip
        value = float(str(found[name]))
        missed += value > bar
        print(f"{name}: {value:,.2f} of {bar:g} {unit}".rstrip())
    print(f"memory without pages of files: {found['own_memory_mb_max']:.1f} MB")
    print(f"processor with readers: {found['processor_percent']:.1f} % of a core, {found['page_count']:,} pages")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
