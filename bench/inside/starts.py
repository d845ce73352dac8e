# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.inside.starts`: the cost of the start of a store, by processes of their own and by `reput up`.

Both ways start CommitLog, Indexer, Janitor and Delivery of an empty store, in turn; `reput up` forks them from a
process that has loaded their modules. Processor time is that of all processes, `reput up` itself included, until the
last service has reported that it is ready; memory is the proportional share (PSS) of the four services then. Medians
of the rounds. Prints a table, and JSON behind it.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench import machine
from cli.copies import Copy, chosen_ports
from cli.free_ports import HOST, let_go

SERVICES = ("commitlog", "indexer", "janitor", "delivery")
READY = b"READY=1"
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 60.0
Cost = dict[str, float]


def cost_of(pids: list[int], services: list[int], begin_s: float) -> Cost:
    """Return the cost until now of processes, of which some are services."""
    used_ns = sum(
        int(file.read_text().split()[0]) for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )
    pss = sum(psutil.Process(pid).memory_full_info().pss for pid in services)
    return {"processor_ms": used_ns / 1e6, "elapsed_ms": 1e3 * (time.perf_counter() - begin_s), "pss_mb": pss / 1e6}


def by_processes(folder: Path) -> Cost:
    """Start each service as a process of its own, one after the other."""
    ports = chosen_ports(dict.fromkeys(SERVICES, 0))
    for port in ports.values():
        let_go(port)
    copy = Copy(folder, ports, dict.fromkeys(SERVICES, HOST))
    started: list[subprocess.Popen[bytes]] = []
    begin_s = time.perf_counter()
    with (folder.parent / "log").open("ab") as log:
        try:
            for child in copy.children(None, metrics=False):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
                    notice.bind(address := f"\0bench-starts-{os.getpid()}-{child.name}")
                    notice.settimeout(START_TIMEOUT_S)
                    own = {**os.environ, "NOTIFY_SOCKET": address.replace("\0", "@")}
                    words = [sys.executable, "-m", f"services.{child.name}", *child.flags]
                    started.append(subprocess.Popen(words, stderr=log, env=own))
                    while notice.recv(4096) != READY:
                        pass
            pids = [process.pid for process in started]
            return cost_of(pids, pids, begin_s)
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(STOP_TIMEOUT_S)


def by_forks(folder: Path) -> Cost:
    """Start `reput up`."""
    flags = [word for name in SERVICES for word in (f"--{name}-port", "0")]
    words = [sys.executable, "-m", "cli.main", "up", "--data-dir", str(folder), *flags]
    begin_s = time.perf_counter()
    with (
        (folder.parent / "log").open("ab") as log,
        subprocess.Popen(
            [*words, "--no-gateway", "--no-console", "--no-metrics", "--json"], stdout=subprocess.PIPE, stderr=log
        ) as up,
    ):
        try:
            assert up.stdout is not None
            if b"ready" not in up.stdout.readline():
                raise SystemExit(f"reput up ended: {(folder.parent / 'log').read_text()}")
            children = psutil.Process(up.pid).children(recursive=True)
            services = [child.pid for child in children if not set(SERVICES).isdisjoint(child.cmdline())]
            return cost_of([up.pid, *(child.pid for child in children)], services, begin_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                up.send_signal(signal.SIGTERM)
            up.wait(STOP_TIMEOUT_S)


WAYS: dict[str, Callable[[Path], Cost]] = {"a process for each service": by_processes, "reput up": by_forks}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.inside.starts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds, both ways in turn (%(default)s)")
    rounds = parser.parse_args().rounds
    costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="reput-bench-") as folder:
        facts = machine.machine(Path(folder))
        for number in range(rounds):
            for way, start in WAYS.items():
                place = Path(folder, f"{number} {start.__name__}".replace(" ", "-"))
                place.mkdir()
                costs[way].append(start(place))
    found = {way: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for way, rows in costs.items()}
    print(
        f"| {rounds} rounds, medians | processor ms | elapsed ms | memory of the services, MB |\n|---|---:|---:|---:|"
    )
    for way, row in found.items():
        print(f"| {way} | {row['processor_ms']:,.0f} | {row['elapsed_ms']:,.0f} | {row['pss_mb']:.0f} |")
    print(json.dumps({"machine": facts, "rounds": costs}))


if __name__ == "__main__":
    main()
