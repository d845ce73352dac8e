# SPDX-License-Identifier: Apache-2.0
"""The alarms for Prometheus: every metric is one of ours, each says what it should, and the runbook has an entry."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.commitlog.engine.elect.member import ElectionStatistics
from services.commitlog.engine.roles import RoleStatistics
from services.commitlog.engine.statistics import statistics_of
from tests.e2e.deploy.commands import ROOT, run, tool

FILE = ROOT / "deploy/prometheus/replication.yaml"
(GROUP,) = yaml.safe_load(FILE.read_text())["groups"]
ALARMS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in GROUP["rules"]}
SOURCES = {"log": type(statistics_of(None)), "election": ElectionStatistics, "roles": RoleStatistics}


@pytest.mark.parametrize("name", ALARMS)
def test_metrics_are_ours(name: str) -> None:
    """An alarm on a metric that nobody tells would never be heard."""
    ours = {
        f"reput_commitlog_{source}_{field.name}"
        for source, statistics in SOURCES.items()
        for field in dataclasses.fields(statistics)
    }
    named = set(re.findall(r"reput_\w+", ALARMS[name]["expr"]))
    assert named
    assert named <= ours


@pytest.mark.parametrize("name", ALARMS)
def test_the_runbook_has_an_entry(name: str) -> None:
    """Under the alarm's name, with what it means, what to look at, and what to do."""
    page, _, anchor = ALARMS[name]["annotations"]["runbook"].partition("#")
    assert anchor == name.lower()
    entry = re.search(rf"^### {name}\n(.*?)(?=^#|\Z)", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert entry is not None
    for part in ("**Means**", "**Look at**", "**Do**"):
        assert part in entry[1]


def test_rules_are_what_prometheus_knows() -> None:
    """Names, expressions and templates."""
    run(tool("promtool"), "check", "rules", FILE)


def test_alarms_say_what_they_should() -> None:
    """Histories of three logs, each with the alarms that it must bring, and without the others."""
    run(tool("promtool"), "test", "rules", Path(__file__).with_name("alarms_test.yaml"))
