# SPDX-License-Identifier: Apache-2.0
"""The alarms for Prometheus: every metric is ours, each alarm fires as it should, and the runbook has an entry."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.machine.clock import ClockStatistics
from libs.runtime.trust.roles import ROLES
from libs.runtime.watch.loop_watch import LoopStatistics
from libs.runtime.watch.metrics import columns
from services.commitlog.engine.elect.member import ElectionStatistics
from services.commitlog.engine.roles import RoleStatistics
from services.commitlog.engine.statistics import LogStatistics
from services.console.web.counts import Counts
from services.delivery.engine.own.counters import GroupCounters
from services.delivery.engine.own.lag_metrics import GroupLag, GroupStandstill
from services.delivery.engine.receive.filters import FilterCount
from services.gateway.engine.shards.traffic import ShardStatistics
from services.gateway.rpc.door.door import DoorStatistics
from services.gateway.rpc.messaging_servicer import MessagingServicer
from services.indexer.engine.measure.topic_measures import OffsetLag, TopicMessages
from services.indexer.engine.statistics import IndexerStatistics
from services.janitor.engine.retention_loop import RetentionCounters
from tests.alarms.drill import Drill
from tests.alarms.drills import DRILLS, UNDRILLED
from tests.e2e.deploy.commands import ROOT, run, tool

FILES = sorted((ROOT / "deploy/prometheus").glob("*.yaml"))
GROUPS = [group for file in FILES for group in yaml.safe_load(file.read_text())["groups"]]
RULES: dict[str, dict[str, Any]] = {
    rule.get("alert") or rule["record"]: rule for group in GROUPS for rule in group["rules"]
}
ALARMS = {name: rule for name, rule in RULES.items() if "alert" in rule}
SOURCES = {
    "commitlog_log": LogStatistics, "commitlog_election": ElectionStatistics,
    "commitlog_roles": RoleStatistics, "delivery_group": GroupCounters, "delivery_group_lag": GroupLag,
    "commitlog_clock": ClockStatistics, "indexer_clock": ClockStatistics, "janitor_clock": ClockStatistics,
    "delivery_clock": ClockStatistics, "gateway_clock": ClockStatistics,
    "commitlog_loop": LoopStatistics, "delivery_group_standstill": GroupStandstill,
    "indexer_index": IndexerStatistics, "indexer_topic": TopicMessages, "indexer_group": OffsetLag,
    "janitor_retention": RetentionCounters, "console_web": Counts, "gateway_door": DoorStatistics,
    "gateway_shard": ShardStatistics,
}  # fmt: skip
DURATIONS = re.compile(r"reput_(delivery|gateway)_rpc_duration_seconds_bucket\{method=~\"\.\*/(\w+)\"\}")
"""The metrics of the calls of each service, by their names (`libs/runtime/watch/telemetry.py`)."""
PATTERNS = re.compile(r"__name__=~\"([^\"]+)\"")
OF_EACH_PROCESS = {
    "reput_build_info",
    "reput_check_level",
    "reput_check_time_seconds",
    "reput_certificate_not_after_seconds",
    "reput_commitlog_append_acknowledgement_seconds_bucket",
    "reput_commitlog_audit_lost_lines_total",
    "reput_commitlog_reload_is_last_taken",
    "reput_commitlog_rights_is_outdated",
    "reput_commitlog_rpc_duration_seconds_count",
    "reput_commitlog_sync_seconds_bucket",
    "reput_delivery_settle_seconds_bucket",
    "reput_outbox_oldest_pending_seconds",
    "reput_outbox_status_time_seconds",
}
"""Metrics that no statistics have. `reput check` and `reput-outbox status` write their own for node_exporter."""
METHODS = {path.rpartition("/")[2] for path in ROLES} | set(vars(MessagingServicer))


@pytest.mark.parametrize("name", RULES)
def test_metrics_are_ours(name: str) -> None:
    """Each metric of a rule is a metric of ours: on any other metric an alarm would never fire."""
    kinds = [*SOURCES.items(), ("delivery_group", FilterCount)]
    ours = {column.name for source, kind in kinds for column in columns(f"reput_{source}", kind)}
    expression = RULES[name]["expr"]
    calls = DURATIONS.findall(expression)
    assert {method for _, method in calls} <= METHODS
    patterns = PATTERNS.findall(expression)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in ours | OF_EACH_PROCESS)
    named = set(re.findall(r"reput_\w+", PATTERNS.sub("", DURATIONS.sub("", expression))))
    assert named or calls or patterns
    assert named <= ours | OF_EACH_PROCESS


@pytest.mark.parametrize("name", ALARMS)
def test_the_runbook_has_an_entry(name: str) -> None:
    """The runbook has a section under the alarm's name, with its meaning, the points to look at, and the action."""
    entry = entry_of(name)
    for part in ("**Means**", "**Look at**", "**Do**"):
        assert part in entry


def entry_of(name: str) -> str:
    """Return the section of the runbook about an alarm."""
    page, _, anchor = ALARMS[name]["annotations"]["runbook_url"].partition("#")
    assert anchor == name.lower()
    entry = re.search(rf"^### {name}\n(.*?)(?=^#|\Z)", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert entry is not None
    return entry[1]


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_a_drill_cures_as_the_runbook_does(drill: Drill) -> None:
    """The cure of a drill is named by the runbook."""
    assert drill.cure.lower() in entry_of(drill.alarm).partition("**Do**")[2].lower()


def test_each_alarm_has_a_drill_or_a_reason() -> None:
    """A new alarm needs a drill, or the reason why it has none."""
    drilled = {drill.alarm for drill in DRILLS}
    assert drilled | set(UNDRILLED) == set(ALARMS)
    assert not drilled & set(UNDRILLED)


def test_rules_are_what_prometheus_knows() -> None:
    """promtool accepts the rules: names, expressions and templates."""
    run(tool("promtool"), "check", "rules", *FILES)


def test_alarms_say_what_they_should() -> None:
    """Each history of metrics fires its alarms and no others."""
    run(tool("promtool"), "test", "rules", *sorted(Path(__file__).parent.glob("*alarms_test.yaml")))
