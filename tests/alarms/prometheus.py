# SPDX-License-Identifier: Apache-2.0
"""Prometheus as a child, with the rules of `deploy/prometheus`, which looks at its targets each second."""

import json
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
RULES = sorted((Path(__file__).resolve().parents[2] / "deploy" / "prometheus").glob("*.yaml"))


class Prometheus:
    """A Prometheus over the targets of a namespace. `targets` has host:port of metrics ports by job."""

    def __init__(self, folder: Path, namespace: str, targets: Mapping[str, Sequence[str]]) -> None:
        assert PROMETHEUS is not None
        self._url = f"http://127.0.0.1:{free_port()}"
        config = folder / "prometheus.json"  # JSON is YAML
        config.write_text(json.dumps(_config(namespace, targets)))
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
        alarms = self._get("/api/v1/alerts").get("alerts", [])
        return {alarm["labels"]["alertname"] for alarm in alarms if alarm["state"] == "firing"}

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


def _config(namespace: str, targets: Mapping[str, Sequence[str]]) -> dict[str, object]:
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file) for file in RULES],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": list(found), "labels": {"namespace": namespace}}]}
            for job, found in targets.items()
        ],
    }
