# SPDX-License-Identifier: Apache-2.0
"""Run the drills of alarms: `python -m tests.alarms`. Needs Prometheus (Debian: prometheus) and etcd."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.alarms.drills import DRILLS, Drill, loaded, opened_store
from tests.alarms.prometheus import PROMETHEUS, Prometheus

ALARM_TIMEOUT_S = 60.0
"""Maximum time from the harm to the alarm."""
END_TIMEOUT_S = 90.0
"""Maximum time from the remedy to the end of the alarm."""
CALM_S = 10.0
"""For so long no alarm may fire before the harm."""
LASTING = "ReputClockStepped"
"""It looks at a quarter of an hour, and is not waited for."""


class DrillFailed(Exception):
    """An alarm that should fire does not, or another one does."""


def run(drill: Drill) -> tuple[float, float]:
    """Run a drill. Returns the seconds until the alarm fired, and until it was over. Raises DrillFailed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with drill.opened(folder) as site:
            prometheus = Prometheus(folder, "drill", site.targets)
            try:
                prometheus.wait_until_up(len(site.services))
                return _watched(drill, prometheus, lambda: drill.harm(site))
            finally:
                prometheus.stop()


def run_calm(seconds: float) -> None:
    """Watch a store under normal load. Raises DrillFailed if any alarm fires."""
    with tempfile.TemporaryDirectory() as name, opened_store(Path(name)) as site, loaded(site):
        prometheus = Prometheus(Path(name), "drill", site.targets)
        try:
            prometheus.wait_until_up(len(site.services))
            if _wait(lambda: bool(prometheus.firing()), time.monotonic(), seconds) is not None:
                raise DrillFailed(f"{', '.join(sorted(prometheus.firing()))} fires under normal load")
        finally:
            prometheus.stop()


def _watched(drill: Drill, prometheus: Prometheus, harm: Callable[[], Callable[[], None]]) -> tuple[float, float]:
    time.sleep(CALM_S)
    if early := prometheus.firing() - {drill.alarm, *drill.allowed}:
        raise DrillFailed(f"{', '.join(sorted(early))} fires before the harm")
    remedy, began_s = harm(), time.monotonic()
    fired_s = _wait(lambda: drill.alarm in prometheus.firing(), began_s, ALARM_TIMEOUT_S)
    others = prometheus.firing() - {drill.alarm, *drill.allowed}
    remedy()
    if fired_s is None:
        raise DrillFailed(f"{drill.alarm} did not fire within {ALARM_TIMEOUT_S:.0f} s")
    if others:
        raise DrillFailed(f"{', '.join(sorted(others))} fires, too")
    if drill.alarm == LASTING:
        return fired_s, 0.0
    over_s = _wait(lambda: drill.alarm not in prometheus.firing(), time.monotonic(), END_TIMEOUT_S)
    if over_s is None:
        raise DrillFailed(f"{drill.alarm} still fires {END_TIMEOUT_S:.0f} s after the remedy")
    return fired_s, over_s


def _wait(is_so: Callable[[], bool], began_s: float, timeout_s: float) -> float | None:
    """Wait for a state. Returns the seconds from `began_s`, None if they are too many."""
    while (waited_s := time.monotonic() - began_s) < timeout_s:
        if is_so():
            return waited_s
        time.sleep(0.5)
    return None


def _calm(seconds: float) -> int:
    """Watch a store under normal load. Returns the exit code."""
    try:
        run_calm(seconds)
    except DrillFailed as failure:
        print(f"FAILED  {failure}")
        return 1
    print(f"ok      no alarm in {seconds:.0f} s of normal load")
    return 0


def main() -> int:
    """Run the drills of the command line, and print a line for each. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.alarms", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="drills whose name contains this text")
    parser.add_argument(
        "--calm", type=float, default=0.0, metavar="SECONDS", help="watch a store under normal load instead"
    )
    arguments = parser.parse_args()
    only, calm_s = arguments.only, arguments.calm
    if PROMETHEUS is None:
        print("needs Prometheus: apt-get install prometheus", file=sys.stderr)
        return 2
    if calm_s:
        return _calm(calm_s)
    failed = 0
    for drill in (drill for drill in DRILLS if only in drill.name):
        try:
            fired_s, over_s = run(drill)
        except DrillFailed as failure:
            failed += 1
            print(f"FAILED  {drill.name}: {failure}", flush=True)
        else:
            print(f"ok      {drill.name}: {drill.alarm} after {fired_s:.0f} s, over after {over_s:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
