# SPDX-License-Identifier: Apache-2.0
"""Calm: a store and three elected logs under normal load, with the rules as they are delivered."""

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.alarms import site
from tests.alarms.load import leader_loaded, loaded_as_usual
from tests.alarms.prometheus import Prometheus

LOOK_INTERVAL_S = 1.0
PRINT_INTERVAL_S = 300.0


def watch_calm(seconds: float) -> list[str]:
    """Watch for so many seconds. Returns a line for each alarm that fired, with the time and the labels."""
    fired: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        store = stack.enter_context(site.stopping(site.store(folder / "store")))
        copies = stack.enter_context(site.stopping(site.elected(folder / "copies")))
        stack.enter_context(loaded_as_usual(store))
        stack.enter_context(leader_loaded(",".join(log.target for log in copies.services.values())))
        prometheus = Prometheus(folder, {"store": store.targets, "copies": copies.targets})
        stack.callback(prometheus.stop)
        prometheus.wait_until_up(len(store.services) + len(copies.services))
        began_s = time.monotonic()
        printed_s = 0.0
        while (passed_s := time.monotonic() - began_s) < seconds:
            for alarm in prometheus.alarms():
                if alarm["state"] == "firing":
                    labels = alarm["labels"]
                    key = labels["alertname"], labels.get("instance", "") + labels.get("job", "")
                    fired.setdefault(key, f"{labels['alertname']} fires after {passed_s:.0f} s: {alarm}")
            if passed_s - printed_s >= PRINT_INTERVAL_S:
                printed_s = passed_s
                print(f"        {passed_s:.0f} s, {len(fired)} alarms", flush=True)
            time.sleep(LOOK_INTERVAL_S)
    return list(fired.values())
