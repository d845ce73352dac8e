# SPDX-License-Identifier: Apache-2.0
"""Run the drills of alarms: `python -m tests.alarms`. Needs Prometheus (Debian: prometheus), etcd and gcc."""

import argparse
import sys

from tests.alarms.calm import watch_calm
from tests.alarms.drills import DRILLS
from tests.alarms.prometheus import PROMETHEUS
from tests.alarms.watch import DrillFailed, run


def _calm(seconds: float) -> int:
    """Watch stores under normal load. Returns the exit code."""
    fired = watch_calm(seconds)
    for alarm in fired:
        print(f"FAILED  {alarm}", flush=True)
    if not fired:
        print(f"ok      no alarm in {seconds:.0f} s of normal load")
    return 1 if fired else 0


def main() -> int:
    """Run the drills of the command line, and print a line for each. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.alarms", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="drills whose name or alarm contains this text")
    parser.add_argument(
        "--calm", type=float, default=0.0, metavar="SECONDS", help="watch stores under normal load instead"
    )
    arguments = parser.parse_args()
    only, calm_s = arguments.only, arguments.calm
    if PROMETHEUS is None:
        print("needs Prometheus: apt-get install prometheus", file=sys.stderr)
        return 2
    if calm_s:
        return _calm(calm_s)
    failed = 0
    for drill in (drill for drill in DRILLS if only in f"{drill.name} {drill.alarm}"):
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
