# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.inside.idle`: the share of a core that an unused store takes.

Without arguments it starts a store over an empty directory, and Delivery, and looks at their processes. With
`--compose` it looks at the containers that `docker compose` has running in this folder, whose health checks count.
Prints a table and JSON: processor time in percent of a core, and for processes how often their loops woke up.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from bench import store

SECONDS = 60.0
SETTLE_S = 20.0
"""After the start there is still something to do."""
CGROUPS = Path("/sys/fs/cgroup")


class Used(NamedTuple):
    """The time and wake-ups that a process or container has used so far."""

    processor_s: float
    wake_ups: int | None
    """Wake-ups of the event loop's thread, None if they are not known."""


Meter = Callable[[], Used]


def process_meter(pid: int) -> Meter:
    """Return the meter of a process."""
    process = psutil.Process(pid)

    def read() -> Used:
        times = process.cpu_times()
        return Used(times.user + times.system, process.num_ctx_switches().voluntary)

    return read


def container_meter(pid: int) -> Meter:
    """Return the meter of all processes of a container, of which a process is given."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            file = CGROUPS / path.lstrip("/") / "cpu.stat"
            if file.exists():
                return lambda: Used(int(file.read_text().split()[1]) / 1e6, None)
        elif "cpuacct" in controllers.split(","):
            usage = CGROUPS / "cpuacct" / path.lstrip("/") / "cpuacct.usage"
            return lambda: Used(int(usage.read_text()) / 1e9, None)
    raise SystemExit(f"process {pid} has no cgroup that counts processor time")


def containers() -> dict[str, int]:
    """Return a process of each container of this folder's compose file, by service."""
    found: dict[str, int] = {}
    listed = subprocess.run(["docker", "compose", "ps", "--quiet"], capture_output=True, text=True, check=True)
    for container in listed.stdout.split():
        shape = '{{.State.Pid}} {{index .Config.Labels "com.docker.compose.service"}}'
        command = ["docker", "inspect", "--format", shape, container]
        pid, name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        found[name] = int(pid)
    if not found:
        raise SystemExit("no container runs: docker compose up --detach --wait")
    return found


def measure(meters: Mapping[str, Meter], seconds: float) -> dict[str, dict[str, float | None]]:
    """Return each meter's usage while so many seconds pass."""
    before = {name: read() for name, read in meters.items()}
    time.sleep(seconds)
    found: dict[str, dict[str, float | None]] = {}
    for name, read in meters.items():
        used, was = read(), before[name]
        woke = None if used.wake_ups is None or was.wake_ups is None else used.wake_ups - was.wake_ups
        found[name] = {
            "percent": round(100 * (used.processor_s - was.processor_s) / seconds, 2),
            "wake_ups_per_s": None if woke is None else round(woke / seconds, 1),
        }
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compose", action="store_true", help="look at the containers that run")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for how long (default {SECONDS:.0f})")
    arguments = parser.parse_args()
    if arguments.compose:
        found = measure({name: container_meter(pid) for name, pid in containers().items()}, arguments.seconds)
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            store.running(Path(folder), "async") as running,
            store.delivering(running) as (_, delivery),
        ):
            time.sleep(SETTLE_S)
            pids = {**{_name_of(pid): pid for pid in running.pids}, "delivery": delivery}
            found = measure({name: process_meter(pid) for name, pid in pids.items()}, arguments.seconds)
    total = round(sum(row["percent"] or 0 for row in found.values()), 2)
    print(f"{'':<16}{'% of a core':>12}{'wake-ups/s':>12}")
    for name, row in found.items():
        print(f"{name:<16}{row['percent']:>12}{row['wake_ups_per_s'] or '':>12}")
    print(f"{'together':<16}{total:>12}")
    print(json.dumps({"seconds": arguments.seconds, "percent": total, "services": found}))


def _name_of(pid: int) -> str:
    """Return which service a process is, by its command line."""
    words = psutil.Process(pid).cmdline()
    return next((word for word in words if word in store.SERVICES), f"process {pid}")


if __name__ == "__main__":
    main()
