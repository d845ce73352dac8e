# SPDX-License-Identifier: Apache-2.0
"""Writes docs/metrics.md from the metrics that each service registers.

Run it as `python -m tools.gen_metrics_docs`; with `--check` it writes nothing and fails when the page is out of date.
"""

import asyncio
import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric

from libs.runtime.config import load
from libs.runtime.process import Shell
from libs.runtime.reload import Reload
from libs.runtime.watch.identity import Certificates
from libs.runtime.watch.telemetry import Telemetry
from services.commitlog.engine.elect.member import ElectionStatistics
from tools.written import write_or_check

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"
SERVICES = {
    "commitlog": "CommitLog",
    "indexer": "Indexer",
    "janitor": "Janitor",
    "delivery": "Delivery",
    "gateway": "Gateway",
    "console": "Console",
}
DATA_DIRS = ("commitlog", "indexer", "janitor")
COMMON = "reput_<service>_"
HEAD = """# Metrics

Each service serves its metrics for Prometheus at `/metrics` of its `metrics_port`.
This page is made from the services by `python -m tools.gen_metrics_docs`.
Times are in seconds, and shares are ratios from 0 to 1.
Counters (`_total`) begin at 0 when a service starts, but for `indexed_messages_total`, which begins with a topic.
[operations.md](operations.md#metrics-and-logs) says which metrics to watch, and `deploy/prometheus` has the alarms.
With `metrics_old_names` a service also serves the names that metrics had before their units were seconds and ratios.
"""


async def page() -> str:
    """Return the page: metrics of every service, then of each service."""
    by_service = {service: families(service) for service in SERVICES}
    shared = set.intersection(*({_stem(family, service) for family in by_service[service]} for service in SERVICES))
    parts = [
        HEAD,
        _table("Every service", [f for f in by_service["gateway"] if _stem(f, "gateway") in shared], "gateway"),
    ]
    for service, found in by_service.items():
        own = [family for family in found if _stem(family, service) not in shared]
        if own:
            parts.append(_table(SERVICES[service], own, ""))
    return "\n".join(parts)


def families(service: str) -> list[Metric]:
    """Return the metrics that a service registers, sorted by name."""
    return sorted(registry(service).collect(), key=lambda family: family.name)


def registry(service: str) -> CollectorRegistry:
    """Return the registry of a service that was built and not started. Callers: a running event loop."""
    module = importlib.import_module(f"services.{service}.bootstrap")
    with tempfile.TemporaryDirectory() as folder:
        flags = {"data_dir": folder} if service in DATA_DIRS else {}
        loaded = load(module.Settings, section=service, environment={}, flags=flags)
        telemetry = Telemetry.off(service)
        telemetry.registry.register(Certificates([]))
        built = module.Service(loaded.value, Shell(telemetry))
        telemetry.observe("reload", Reload(loaded, lambda: loaded, built.live, built.reload).statistics)
        if service == "commitlog":  # registered with a coordinator
            telemetry.observe_each("election", (), dict, ElectionStatistics)
        return telemetry.registry


def _stem(family: Metric, service: str) -> str:
    """Return the name of a family without its service."""
    return family.name.replace(f"reput_{service}_", COMMON)


def _table(title: str, found: list[Metric], service: str) -> str:
    lines = [f"## {title}", "", "| metric | type | labels | means |", "|---|---|---|---|"]
    lines += list(_rows(found, service))
    return "\n".join(lines) + "\n"


def _rows(found: list[Metric], service: str) -> Iterator[str]:
    for family in found:
        name = _stem(family, service) if service else family.name
        name += "_total" if family.type == "counter" else ""
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: asyncio.run(page())}))
