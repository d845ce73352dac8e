# SPDX-License-Identifier: Apache-2.0
"""Run the drills of alarms: `python -m tests.alarms`. Needs Prometheus (Debian: prometheus), etcd and gcc.

Drills of disks also need root, for a small disk, and are skipped without.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.alarms.calm import watch_calm
from tests.alarms.drill import Drill
from tests.alarms.drills import DRILLS
from tests.alarms.prometheus import PROMETHEUS
from tests.alarms.watch import DrillFailed, run
from tests.crash.fault.small_disk import enter_own_mounts, reason_not_to_mount


def _calm(seconds: float) -> int:
    """Watch stores under normal load. Returns the exit code."""
    fired = watch_calm(seconds)
    for alarm in fired:
        print(f"FAILED  {alarm}", flush=True)
    if not fired:
        print(f"ok      no alarm in {seconds:.0f} s of normal load")
    return 1 if fired else 0


def _run(drill: Drill) -> tuple[bool, str]:
    """Run a drill. Returns whether it passed, and a line."""
    began_s = time.monotonic()
    try:
        fired_s, over_s = run(drill)
    except Exception as error:  # noqa: BLE001 - services that do not start, and loads that fail, are failures, too
        return False, f"FAILED  {drill.name}: {error if isinstance(error, DrillFailed) else repr(error)}"
    took_s = time.monotonic() - began_s
    return True, (
        f"ok      {drill.name}: {drill.alarm} after {fired_s:.0f} s, over after {over_s:.0f} s; {took_s:.0f} s in all"
    )


def _run_all(drills: Sequence[Drill], jobs: int) -> int:
    """Run so many drills at a time, and print a line at the end of each. Returns the exit code."""
    began_s = time.monotonic()
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(_run, drill) for drill in drills]
        for number, ended in enumerate(as_completed(runs), 1):
            has_passed, line = ended.result()
            failed += not has_passed
            print(f"{number:2} of {len(drills)}, {time.monotonic() - began_s:4.0f} s  {line}", flush=True)
    return 1 if failed else 0


def _possible(drills: Sequence[Drill]) -> Sequence[Drill]:
    """Return the drills that this user may run, and print a line for each of the others."""
    if not any(drill.is_on_own_disk for drill in drills):
        return drills
    if not (reason := reason_not_to_mount()):
        enter_own_mounts()
        return drills
    for drill in drills:
        if drill.is_on_own_disk:
            print(f"skipped {drill.name}: no small disk can be mounted: {reason}", flush=True)
    return [drill for drill in drills if not drill.is_on_own_disk]


def main() -> int:
    """Run the drills of the command line, and print a line for each. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.alarms", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="drills whose name or alarm contains this text")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="drills at the same time")
    parser.add_argument(
        "--calm", type=float, default=0.0, metavar="SECONDS", help="watch stores under normal load instead"
    )
    arguments = parser.parse_args()
    if PROMETHEUS is None:
        print("needs Prometheus: apt-get install prometheus", file=sys.stderr)
        return 2
    if arguments.calm:
        return _calm(arguments.calm)
    chosen = [drill for drill in DRILLS if arguments.only in f"{drill.name} {drill.alarm}"]
    return _run_all(_possible(chosen), arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
