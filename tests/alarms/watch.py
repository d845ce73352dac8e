# SPDX-License-Identifier: Apache-2.0
"""Watch: runs a drill under a Prometheus. The expected alarm fires, no other does, and the cure ends it."""

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.alarms.drill import Drill
from tests.alarms.prometheus import RULES, Prometheus, shortened

ALARM_TIMEOUT_S = 60.0
"""Maximum time from the harm to the alarm."""
END_TIMEOUT_S = 150.0
"""Maximum time from the cure to the end of the alarm."""
CALM_S = 16.0
"""For so long no alarm may fire before the harm. Rules that look back in steps of 15 s have seen all services then."""
LOOK_INTERVAL_S = 0.5
OF_SHORTENED = frozenset({"ReputSlowLoop", "ReputDiskFills"})
"""Shortened rules fire for a single pause of a busy machine, and for a minute in which other programs fill its disk."""


class DrillFailed(Exception):
    """An alarm that should fire does not, or another one does."""


def run(drill: Drill) -> tuple[float, float]:
    """Run a drill. Returns the seconds until the alarm fired, and until it was over. Raises DrillFailed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rules = RULES if drill.times == 1 else shortened(folder, drill.times)
        with drill.opened(folder) as site:
            prometheus = Prometheus(folder, {"drill": site.targets}, rules)
            try:
                prometheus.wait_until_up(len(site.services))
                return _Watch(drill, prometheus).run(lambda: drill.harm(site))
            finally:
                prometheus.stop()


class _Watch:
    """Looks at the alarms again and again, and keeps the names of those that fired."""

    def __init__(self, drill: Drill, prometheus: Prometheus) -> None:
        self._drill, self._prometheus = drill, prometheus
        self._allowed = drill.allowed if drill.times == 1 else drill.allowed | OF_SHORTENED
        self._seen: set[str] = set()

    def run(self, harm: Callable[[], Callable[[], object]]) -> tuple[float, float]:
        """Wait, do harm, wait for the alarm, cure, wait for its end."""
        alarm = self._drill.alarm
        if not self._drill.is_harmed_from_start:
            self._wait(lambda _: False, CALM_S)
            if early := self._seen - self._allowed:
                raise DrillFailed(f"{_list(early)} fires before the harm")
        cure = harm()
        fired_s = self._wait(lambda firing: alarm in firing, ALARM_TIMEOUT_S)
        cure()
        if fired_s is None:
            raise DrillFailed(f"{alarm} did not fire within {ALARM_TIMEOUT_S:.0f} s")
        over_s = self._wait(lambda firing: alarm not in firing, END_TIMEOUT_S)
        if over_s is None:
            raise DrillFailed(f"{alarm} still fires {END_TIMEOUT_S:.0f} s after the cure")
        if others := self._seen - {alarm} - self._allowed:
            raise DrillFailed(f"{_list(others)} fires, too")
        return fired_s, over_s

    def _wait(self, is_so: Callable[[set[str]], bool], timeout_s: float) -> float | None:
        """Wait for a state of the alarms. Returns the seconds, None if they are too many."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < timeout_s:
            firing = self._prometheus.firing()
            self._seen |= firing
            if is_so(firing):
                return waited_s
            time.sleep(LOOK_INTERVAL_S)
        return None


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
