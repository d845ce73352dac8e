# SPDX-License-Identifier: Apache-2.0
"""Prometheus as a child, with the rules of `deploy/prometheus`, which looks at its targets each second."""

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

PROMETHEUS = shutil.which("prometheus")
MS_OF = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION = re.compile(r"(for: |offset |\[)(\d+)([smhd])\b")
"""A duration of a rule: behind `for`, behind `offset`, or in brackets."""
RULES = sorted((Path(__file__).resolve().parents[2] / "deploy" / "prometheus").glob("*.yaml"))


Targets = Mapping[str, Sequence[str]]
"""host:port of metrics ports by job."""


class Prometheus:
    """A Prometheus over the targets of namespaces, with rules."""

    def __init__(self, folder: Path, targets: Mapping[str, Targets], rules: Sequence[Path] = RULES) -> None:
        assert PROMETHEUS is not None
        self._url = f"http://127.0.0.1:{free_port()}"
        config = folder / "prometheus.json"  # JSON is YAML
        config.write_text(json.dumps(_config(targets, rules)))
        address = self._url.removeprefix("http://")
        flags = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={address}")
        with (folder / "prometheus.log").open("wb") as log:
            self._child = subprocess.Popen([PROMETHEUS, *flags], stdout=log, stderr=log)

    def wait_until_up(self, count: int) -> None:
        """Wait until it has seen so many targets up. Raises TimeoutError."""
        end_s = time.monotonic() + LIMIT_S
        while len(self.query("up == 1")) < count:
            if time.monotonic() > end_s:
                raise TimeoutError(f"fewer than {count} targets are up")
            time.sleep(0.5)

    def firing(self) -> set[str]:
        """Return the names of the alarms that fire."""
        return {alarm["labels"]["alertname"] for alarm in self.alarms() if alarm["state"] == "firing"}

    def alarms(self) -> Sequence[dict[str, Any]]:
        """Return the alarms that fire or will, with their labels."""
        found: Sequence[dict[str, Any]] = self._get("/api/v1/alerts").get("alerts", ())
        return found

    def stop(self) -> None:
        """End it."""
        self._child.send_signal(signal.SIGTERM)
        self._child.wait(LIMIT_S)

    def query(self, expression: str) -> Sequence[dict[str, Any]]:
        """Return the series of an expression at this moment, empty for an expression that is wrong."""
        found: Sequence[dict[str, Any]] = self._get(f"/api/v1/query?query={urllib.parse.quote(expression)}").get(
            "result", ()
        )
        return found

    def _get(self, path: str) -> dict[str, Any]:
        """Return the data of an answer, empty before it serves."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=LIMIT_S) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
                return data
        except urllib.error.URLError:
            return {}


def shortened(folder: Path, times: int) -> list[Path]:
    """Write the rules into a folder with all their durations divided. Returns the files."""

    def divided(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) * MS_OF[found[3]] // times}ms"

    files = []
    for rules in RULES:
        file = folder / rules.name
        file.write_text(DURATION.sub(divided, rules.read_text()))
        files.append(file)
    return files


def _config(targets: Mapping[str, Targets], rules: Sequence[Path]) -> dict[str, object]:
    by_job: dict[str, list[dict[str, object]]] = {}
    for namespace, jobs in targets.items():
        for job, found in jobs.items():
            by_job.setdefault(job, []).append({"targets": list(found), "labels": {"namespace": namespace}})
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in rules],
        "scrape_configs": [{"job_name": job, "static_configs": found} for job, found in by_job.items()],
    }
