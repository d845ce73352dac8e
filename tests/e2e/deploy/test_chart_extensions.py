# SPDX-License-Identifier: Apache-2.0
"""What a user adds to the chart's pods: variables, volumes, containers, own claims, and more disks for the log."""

from typing import Any

import pytest

from tests.e2e.deploy.commands import CHART, run, tool
from tests.e2e.deploy.settings import load_settings
from tests.e2e.deploy.test_chart import (
    CLAIMS,
    DISKS,
    KUBERNETES_VERSION,
    SERVICES,
    VALUE_SETS,
    WITH_FILES,
    objects,
    pods,
)

TWO_DISKS = [*DISKS, "commitlog.logDisks[1].name=c", "commitlog.logDisks[1].size=7Gi"]


def templates_of(manifests: dict[tuple[str, str], Any], service: str) -> dict[str, Any]:
    """The claim templates of a StatefulSet by name."""
    spec = manifests["StatefulSet", f"shop-reput-{service}"]["spec"]
    return {template["metadata"]["name"]: template for template in spec.get("volumeClaimTemplates", [])}


def volumes_of(manifests: dict[tuple[str, str], Any], service: str) -> dict[str, Any]:
    """The volumes of a service's pod by name."""
    return {volume["name"]: volume for volume in dict(pods(manifests))[f"shop-reput-{service}"]["volumes"]}


@pytest.mark.parametrize("service", SERVICES)
def test_additions_are_where_they_belong(service: str) -> None:
    """A pod has the user's variables, volumes, mounts and containers, behind the chart's own."""
    before, after = (dict(pods(objects(*values))) for values in ((), VALUE_SETS["extended"]))
    own, given = before[f"shop-reput-{service}"], after[f"shop-reput-{service}"]
    container, beside = given["containers"]
    (plain,) = own["containers"]
    added = [
        {"name": "HTTPS_PROXY", "value": "http://proxy:3128"},
        {"name": "ZONE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    assert container["env"] == [*plain.get("env", []), *added]
    assert container["volumeMounts"] == [*plain["volumeMounts"], {"name": "collector", "mountPath": "/etc/collector"}]
    assert given["volumes"] == [*own["volumes"], {"name": "collector", "secret": {"secretName": "collector"}}]
    assert beside == {"name": "shipper", "image": "shipper:1.2.3"}
    assert {**container, "env": 0, "volumeMounts": 0} == {**plain, "env": 0, "volumeMounts": 0}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["indexer.extraEnv[0].name=REPUT_INDEXER_LOG_LEVEL"], "write settings below <service>.config"),
        (["commitlog.extraEnv[0].name=POD_IP"], "REPUT_... or POD_IP"),
        (["commitlog.extraEnv[0].name=A", "commitlog.extraEnv[0].valuee=1"], "valuee"),
        (["commitlog.extraEnv[0].value=a"], "name"),
        (["gateway.extraVolumes[0].name=trust"], "a name that the chart does not use itself"),
        (["gateway.extraVolumes[0].name=log-b"], "a name that the chart does not use itself"),
        (["janitor.extraVolumeMounts[0].name=x"], "mountPath"),
        (["delivery.extraContainers[0].name=delivery"], "image"),
        (["delivery.extraContainers[0].name=delivery", "delivery.extraContainers[0].image=x"], "that no service has"),
        (["commitlog.logDisks[0].name=b"], "size"),
        (["commitlog.logDisks[0].name=B", "commitlog.logDisks[0].size=1Gi"], "/commitlog/logDisks/0/name"),
        (["indexer.logDisks[0].name=b"], "logDisks"),
        (["gateway.persistence.existingClaim=x"], "persistence"),
        (["commitlog.config.log_dirs=/disks"], "/commitlog/config/log_dirs"),
        (["commitlog.replicas=3", "commitlog.persistence.existingClaim=x"], "commitlog.persistence.existingClaim: a"),
        (["commitlog.replicas=3", "janitor.persistence.existingClaim=x"], "janitor.persistence.existingClaim: a claim"),
        (["indexer.replicas=2", "indexer.persistence.existingClaim=x"], "and there are 2"),
        (["commitlog.replicas=2", *DISKS, "commitlog.logDisks[0].existingClaim=x"], "existingClaim of b"),
    ],
)  # fmt: skip
def test_wrong_additions_are_refused(values: list[str], reason: str) -> None:
    """A setting as a variable, a name of the chart's, and a claim for several pods are refused with a hint."""
    options = [part for value in values for part in ("--set", value)]
    command = [tool("helm"), "template", "shop", CHART, "--kube-version", KUBERNETES_VERSION, *options]
    finished = run(*command, must_succeed=False)
    assert finished.returncode != 0
    assert reason in finished.stderr


def test_own_claims_replace_the_chart_s() -> None:
    """A service with an existing claim uses it, and the chart makes no claim for it."""
    manifests = objects(*CLAIMS)
    assert not [name for kind, name in manifests if kind == "PersistentVolumeClaim"]
    for service in WITH_FILES:
        assert volumes_of(manifests, service)["data"]["persistentVolumeClaim"] == {"claimName": f"kept-{service}"}
    assert "volumeClaimTemplates" not in manifests["StatefulSet", "shop-reput-commitlog"]["spec"]


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_log_uses_all_disks(replicas: int) -> None:
    """Each disk has a claim for each pod and a mount, and the CommitLog has its directory below the mount point."""
    manifests = objects(f"commitlog.replicas={replicas}", *TWO_DISKS, "commitlog.persistence.storageClassName=fast")
    templates = templates_of(manifests, "commitlog")
    sizes = {name: item["spec"]["resources"]["requests"]["storage"] for name, item in templates.items()}
    assert sizes == {"data": "100Gi", "log-b": "5Gi", "log-c": "7Gi"}
    assert {item["spec"]["storageClassName"] for item in templates.values()} == {"fast"}
    (container,) = dict(pods(manifests))["shop-reput-commitlog"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    data = manifests["ConfigMap", "shop-reput-commitlog"]["data"]
    env = {"REPUT_COMMITLOG_REPLICA_ID": "a", "REPUT_COMMITLOG_ADVERTISE_TARGET": "a:1"} if replicas > 1 else {}
    paths = [str(path) for path in load_settings("commitlog", {**data, **env}).engine.segment_directories().all]
    assert paths == ["/data/commitlog", f"{mounts['log-b']}/log", f"{mounts['log-c']}/log"]
    assert set(templates_of(manifests, "indexer")) == {"data"}


def test_a_disk_may_have_a_class_of_its_own() -> None:
    """A disk takes the data volume's class and modes unless it names others, and may be an existing claim."""
    one = [*TWO_DISKS, "commitlog.logDisks[1].storageClassName=slow", "commitlog.logDisks[1].annotations.a=b"]
    manifests = objects(*one, "commitlog.logDisks[2].name=d", "commitlog.logDisks[2].existingClaim=kept")
    templates = templates_of(manifests, "commitlog")
    assert set(templates) == {"data", "log-b", "log-c"}
    assert "storageClassName" not in templates["log-b"]["spec"]
    assert templates["log-c"]["spec"]["storageClassName"] == "slow"
    assert templates["log-c"]["metadata"]["annotations"] == {"a": "b"}
    assert templates["log-c"]["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert volumes_of(manifests, "commitlog")["log-d"]["persistentVolumeClaim"] == {"claimName": "kept"}
    volatile = objects(*DISKS, "commitlog.persistence.enabled=false")
    assert volumes_of(volatile, "commitlog")["log-b"] == {"name": "log-b", "emptyDir": {}}
    assert not templates_of(volatile, "commitlog")


def test_own_directories_of_the_log_are_kept() -> None:
    """With log_dirs in the settings the user says which disk is used and which disk is only read."""
    chosen = [
        "commitlog.config.log_dirs=/disks/c/log",
        r"commitlog.config.log_dirs_read_only=/data/commitlog\,/disks/b/log",
    ]
    data = objects(*TWO_DISKS, *chosen)["ConfigMap", "shop-reput-commitlog"]["data"]
    directories = load_settings("commitlog", data).engine.segment_directories()
    assert [str(path) for path in directories.writable] == ["/disks/c/log"]
    assert [str(path) for path in directories.read_only] == ["/data/commitlog", "/disks/b/log"]


def test_backups_are_made_by_a_job() -> None:
    """One job at a time makes a backup with an operator's token, and prunes; it may call services and its place."""
    assert not [name for name in objects() if name[0] == "CronJob"]
    manifests = objects(*VALUE_SETS["backup"], "backup.keep=7", "backup.rateMibS=8", "backup.schedule=@daily")
    job = manifests["CronJob", "shop-reput-backup"]["spec"]
    assert (job["schedule"], job["concurrencyPolicy"]) == ("@daily", "Forbid")
    (container,) = dict(pods(manifests))["shop-reput-backup"]["containers"]
    assert container["args"] == ["s3://b/shop", "8", "7", "30"]
    script = container["command"][2]
    assert [line.split()[:3] for line in script.splitlines()] == [
        ["reput", "backup", "create"], ["reput", "backup", "prune"],
    ]  # fmt: skip
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables["REPUT_CLIENT_TOKEN_FILE"] == "/etc/reput/trust/operator"
    assert container["envFrom"] == [{"secretRef": {"name": "s3"}}]
    policy = manifests["NetworkPolicy", "shop-reput-backup"]["spec"]
    assert (policy.get("ingress"), policy["egress"]) == (None, [{}])
    labels = job["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
