# SPDX-License-Identifier: Apache-2.0
"""The alarm of the chart for late backups, as Prometheus reads it."""

from pathlib import Path

import pytest
import yaml

from tests.e2e.deploy.commands import ROOT, run, tool
from tests.e2e.deploy.test_chart import VALUE_SETS, objects

RULES = ["prometheusRule.enabled=true"]
SUCCESS = 'kube_cronjob_status_last_successful_time{namespace="store",cronjob="shop-reput-backup"}'
CREATED = 'kube_cronjob_created{namespace="store",cronjob="shop-reput-backup"}'
LATE = {
    "exp_labels": {"severity": "warning", "namespace": "store", "cronjob": "shop-reput-backup"},
    "exp_annotations": {
        "summary": "store/shop-reput-backup has made no backup for 2h 6m 0s",
        "runbook_url": "docs/operations.md#reputbackuplate",
    },
}


@pytest.mark.parametrize(
    ("series", "alarms"),
    [
        ({SUCCESS: "0+60x126", CREATED: "0x126"}, []),
        ({SUCCESS: "0x126", CREATED: "0x126"}, [LATE]),
        ({CREATED: "0x126"}, [LATE]),
        ({SUCCESS.replace("shop", "other"): "0x126"}, []),
    ],
    ids=["in time", "late", "never", "of another release"],
)
def test_a_late_job(tmp_path: Path, series: dict[str, str], alarms: list[object]) -> None:
    """The alarm comes when the job of this release had no success in the time of the values, or never."""
    manifests = objects(*RULES, *VALUE_SETS["backup"], "backup.alarmAfterHours=2")
    (rule,) = [item for (kind, _), item in manifests.items() if kind == "PrometheusRule"]
    groups = [group for group in rule["spec"]["groups"] if group["name"] == "reput-backup-job"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    tests = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "126m", "alertname": "ReputBackupLate", "exp_alerts": alarms}],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [tests]}))
    run(tool("promtool"), "test", "rules", file)


def test_it_comes_with_the_job() -> None:
    """Without backups the rule has no alarm of the job; with them it has one, beside all groups of the repository."""
    own = len(list((ROOT / "deploy/prometheus").glob("*.yaml")))
    for values, count in ((RULES, 0), ([*RULES, *VALUE_SETS["backup"]], 1)):
        (rule,) = [item for (kind, _), item in objects(*values).items() if kind == "PrometheusRule"]
        assert len(rule["spec"]["groups"]) == own + count
