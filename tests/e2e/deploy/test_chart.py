# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered for several sets of values and checked against Kubernetes' schemas, without a cluster."""

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.deploy.commands import CHART, ROOT, run, schema_location, tool
from tests.e2e.deploy.fake_cluster import cluster
from tests.e2e.deploy.settings import load_settings

KUBERNETES_VERSION = "1.34.0"
SECURE = ["tls.enabled=true", "tls.secretName=reput-tls", "tls.clientCertificates=true", "token.secretName=reput-token"]
EXTENDED = [
    f"{service}.{value}"
    for service in ("commitlog", "indexer", "janitor", "delivery", "gateway")
    for value in (
        "extraEnv[0].name=HTTPS_PROXY", "extraEnv[0].value=http://proxy:3128", "extraEnv[1].name=ZONE",
        "extraEnv[1].valueFrom.fieldRef.fieldPath=spec.nodeName", "extraVolumes[0].name=collector",
        "extraVolumes[0].secret.secretName=collector", "extraVolumeMounts[0].name=collector",
        "extraVolumeMounts[0].mountPath=/etc/collector", "extraContainers[0].name=shipper",
        "extraContainers[0].image=shipper:1.2.3",
    )
]  # fmt: skip
"""A variable, a volume, a mount and a container for each service."""
DISKS = ["commitlog.logDisks[0].name=b", "commitlog.logDisks[0].size=5Gi"]
CLAIMS = [f"{service}.persistence.existingClaim=kept-{service}" for service in ("commitlog", "indexer", "janitor")]
VALUE_SETS = {
    "default": [],
    "tls": ["tls.enabled=true", "tls.secretName=reput-tls"],
    "tls-and-token": SECURE,
    "no-janitor": ["janitor.enabled=false"],
    "monitored": [
        "networkPolicy.enabled=true", "serviceMonitor.enabled=true", "serviceMonitor.labels.release=x",
        "prometheusRule.enabled=true", "prometheusRule.labels.release=x", "dashboards.enabled=true",
    ],
    "backup": ["backup.enabled=true", "backup.destination=s3://b/shop", "backup.secretName=s3"],
    "no-policy": ["networkPolicy.enabled=false", "serviceAccount.create=false"],
    "no-delivery": ["delivery.enabled=false", "gateway.enabled=false"],
    "gateways": ["gateway.replicas=3", "gateway.accessKeys.secretName=keys", "gateway.service.type=LoadBalancer"],
    "indexers": ["indexer.replicas=3"],
    "replicated": ["commitlog.replicas=3"],
    "replicated-secure": [
        "commitlog.replicas=5", *SECURE, "serviceMonitor.enabled=true", "gateway.accessKeys.secretName=keys",
    ],
    "replicated-pair": ["commitlog.replicas=2", "commitlog.config.role=async_master"],
    "volatile": [f"{service}.persistence.enabled=false" for service in ("commitlog", "indexer", "janitor")],
    "maintenance": [f"{service}.maintenance=true" for service in ("commitlog", "indexer", "janitor")],
    "extended": EXTENDED,
    "claims": [*CLAIMS, *DISKS, "commitlog.logDisks[1].name=c", "commitlog.logDisks[1].existingClaim=kept-c"],
    "everything": [
        "commitlog.replicas=3", *SECURE, *EXTENDED, *DISKS, "serviceMonitor.enabled=true", "dashboards.enabled=true",
        "prometheusRule.enabled=true", "gateway.replicas=2", "gateway.accessKeys.secretName=keys",
        "gateway.service.type=LoadBalancer", "imagePullSecrets[0].name=pull", "backup.enabled=true",
        "backup.destination=/backups/shop", "backup.existingClaim=kept", "backup.extraEnv[0].name=HTTPS_PROXY",
        "backup.extraEnv[0].value=http://proxy:3128", "backup.podLabels.team=store",
    ],
    "digest": [f"image.digest=sha256:{'0' * 64}", "image.repository=registry.example.com/reput"],
    "settings": [
        "commitlog.config.segment_size_bytes=1073741824", "commitlog.config.flush_mode=sync",
        "commitlog.config.trace_ratio=0.25", "commitlog.config.store_host=192.0.2.1:7101",
        "indexer.config.query_size_bytes_max=4194304", "janitor.config.retention_hours=168",
        "commitlog.drainTimeoutMs=25500", "delivery.config.message_delay_level=1s",
    ],
}  # fmt: skip
WITH_FILES = ("commitlog", "indexer", "janitor")
NUMBERED = (*WITH_FILES, "delivery")
"""The services whose pod i belongs to log i."""
SERVICES = (*NUMBERED, "gateway")
PORTS = {"commitlog": 7101, "indexer": 7102, "janitor": 7103, "delivery": 7104, "gateway": 8081}


def render(*values: str) -> str:
    """The manifests for these values."""
    options = [part for value in values for part in ("--set", value)]
    version = ["--kube-version", KUBERNETES_VERSION]
    return run(tool("helm"), "template", "shop", CHART, "--namespace", "store", *version, *options).stdout


def objects(*values: str) -> dict[tuple[str, str], Any]:
    """The rendered objects by kind and name."""
    found = [item for item in yaml.safe_load_all(render(*values)) if item]
    by_name = {(item["kind"], item["metadata"]["name"]): item for item in found}
    assert len(by_name) == len(found), "two objects of one kind have the same name"
    return by_name


def pods(manifests: dict[tuple[str, str], Any]) -> Iterator[tuple[str, Any]]:
    """Name and spec of every pod that the objects make."""
    for (kind, name), item in manifests.items():
        if kind in {"StatefulSet", "Deployment"}:
            yield name, item["spec"]["template"]["spec"]
        elif kind == "CronJob":
            yield name, item["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        elif kind == "Pod":
            yield name, item["spec"]


def of_pod(manifests: dict[tuple[str, str], Any], workload: str, pod: str) -> dict[str, str]:
    """The settings that a pod gets beside its ConfigMap, as the kubelet works them out."""
    container, *_ = dict(pods(manifests))[workload]["containers"]
    found: dict[str, str] = {}
    for variable in container.get("env", []):
        fields = {"metadata.name": pod, "status.podIP": "192.0.2.7", "spec.nodeName": "machine-1"}
        text = variable["value"] if "value" in variable else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, value in found.items():
            text = text.replace(f"$({name})", value)
        found[variable["name"]] = text
    return {name: text for name, text in found.items() if name.startswith("REPUT_")}


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_lint_is_strict_and_clean(values: list[str]) -> None:
    """helm lint --strict finds nothing."""
    options = [part for value in values for part in ("--set", value)]
    run(tool("helm"), "lint", "--strict", "--kube-version", KUBERNETES_VERSION, CHART, *options)


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_manifests_are_what_kubernetes_knows(values: list[str]) -> None:
    """Every object passes the strict schema of its kind, and none is skipped."""
    options = ["-strict", "-summary", "-kubernetes-version", KUBERNETES_VERSION, "-schema-location", schema_location()]
    summary = run(tool("kubeconform"), *options, "-", stdin=render(*values)).stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in summary, summary


@pytest.mark.parametrize("version", ["1.33.0", "1.35.0", "1.36.0", "1.37.0"])
def test_manifests_are_what_other_versions_know(version: str) -> None:
    """Every object passes the strict schemas of other supported versions of Kubernetes, too."""
    options = ["-strict", "-summary", "-kubernetes-version", version, "-schema-location", schema_location()]
    summary = run(tool("kubeconform"), *options, "-", stdin=render(*SECURE, "serviceMonitor.enabled=true")).stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in summary, summary


def test_schema_check_can_fail() -> None:
    """The schema check finds a field that no Service has."""
    options = ["-strict", "-kubernetes-version", KUBERNETES_VERSION, "-schema-location", schema_location()]
    damaged = render().replace("clusterIP: None", "clusterIp: None")
    assert run(tool("kubeconform"), *options, "-", stdin=damaged, must_succeed=False).returncode != 0


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("image.tag=latest", "/image/tag"),
        ("image.digest=sha256:12", "/image/digest"),
        ("commitlog.replicas=0", "/commitlog/replicas"),
        ("commitlog.replicas=10", "/commitlog/replicas"),
        ("commitlog.config.coordinator=etcd", "coordinator"),
        ("commitlog.config.replica_id=a", "replica_id"),
        ("commitlog.antiAffinity=never", "/commitlog/antiAffinity"),
        ("indexer.replicas=0", "/indexer/replicas"),
        ("commitlog.config.port=1", "port"),
        ("indexer.config.commitlog_target=elsewhere:1", "commitlog_target"),
        ("indexer.config.service_token_file=/x", "service_token_file"),
        ("commitlog.config.Bad-Name=1", "Bad-Name"),
        ("tls.enabled=true", "/tls/secretName"),
        ("commitlog.persistence.size=much", "/commitlog/persistence/size"),
        ("commitlog.persistance.size=1Gi", "persistance"),
        ("typo=1", "typo"),
        ("delivery.enabled=false", "/delivery/enabled"),
        ("delivery.config.data_dir=/x", "data_dir"),
        ("gateway.replicas=0", "/gateway/replicas"),
        ("gateway.config.access_keys_file=/x", "access_keys_file"),
        ("gateway.maintenance=true", "maintenance"),
        ("backup.enabled=true", "/backup/destination"),
        ("backup.destination=/backups/shop", "/backup/existingClaim"),
        ("backup.destination=/tmp", "/backup/destination"),
        ("backup.schedule=often", "/backup/schedule"),
        ("backup.keep=0", "/backup/keep"),
        ("backup.extraEnv[0].name=REPUT_CLIENT_TOKEN_FILE", "/backup/extraEnv"),
    ],
)
def test_wrong_value_is_refused(value: str, reason: str) -> None:
    """A value that is invalid, or that no template reads, is named before anything is installed."""
    options = ["--kube-version", KUBERNETES_VERSION, "--set", value]
    finished = run(tool("helm"), "template", "shop", CHART, *options, must_succeed=False)
    assert finished.returncode != 0
    assert reason in finished.stderr


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_services_start_with_their_settings(values: list[str]) -> None:
    """Each ConfigMap is an environment that the service accepts, without unknown variables."""
    manifests = objects(*values)
    for (kind, name), item in manifests.items():
        if kind == "ConfigMap" and "-board-" not in name:
            service = name.rpartition("-")[2]
            settings = load_settings(service, {**item["data"], **of_pod(manifests, name, f"{name}-1")})
            assert settings.server.listen_host == "0.0.0.0"
            assert (settings.server.tls_certificate_file is None) is settings.server.allow_insecure
            assert service not in WITH_FILES or str(settings.engine.data_dir) == "/data"


def test_settings_keep_their_values() -> None:
    """Large numbers arrive as integers and fractions as fractions, although Helm reads numbers as floats."""
    data = objects(*VALUE_SETS["settings"])["ConfigMap", "shop-reput-commitlog"]["data"]
    settings = load_settings("commitlog", data)
    assert data["REPUT_COMMITLOG_SEGMENT_SIZE_BYTES"] == "1073741824"
    assert settings.engine.segment_size_bytes == 1 << 30
    assert settings.telemetry.trace_ratio == 0.25
    assert settings.engine.flush_mode == "sync"


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_pods_are_confined(values: list[str]) -> None:
    """Pods have no root, no capability, no writable image and no moving tag.

    They have no API token, except copies of a log, and no variables of Services.
    """
    found = dict(pods(objects(*values)))
    assert found
    is_replicated = any(value.startswith("commitlog.replicas=") for value in values)
    for name, pod in found.items():
        assert pod["automountServiceAccountToken"] is (is_replicated and name == "shop-reput-commitlog"), name
        assert pod["enableServiceLinks"] is False, name
        context = pod["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["fsGroup"]) == (True, 10001, 10001)
        assert context["fsGroupChangePolicy"] == "OnRootMismatch"
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        container = pod["containers"][0]  # the user's own containers are behind it
        inner = container["securityContext"]
        assert inner["readOnlyRootFilesystem"] is True
        assert inner["allowPrivilegeEscalation"] is False
        assert inner["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert re.search(r":[0-9.]+$|@sha256:[0-9a-f]{64}$", container["image"]), container["image"]


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)
def test_services_and_operators_have_tokens(values: list[str]) -> None:
    """The chart makes random tokens, which differ, with any values.

    They are where the settings look for them. The test pod has no token.
    """
    manifests = objects(*values)
    tokens = manifests["Secret", "shop-reput-trust"]["data"]
    assert sorted(tokens) == ["operator", "service"]
    assert all(len(base64.b64decode(token)) >= 32 for token in tokens.values())
    assert len({*tokens.values(), *objects(*values)["Secret", "shop-reput-trust"]["data"].values()}) == 4
    for (kind, name), item in manifests.items():
        if kind == "ConfigMap" and "-board-" not in name:
            own = of_pod(manifests, name, f"{name}-0")
            server = load_settings(name.rpartition("-")[2], {**item["data"], **own}).server
            assert str(server.service_token_file) == "/etc/reput/trust/service"
            assert str(server.operator_token_file) == "/etc/reput/trust/operator"
    for name, pod in pods(manifests):
        container, *_ = pod["containers"]
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        if name.endswith("-test"):
            assert "/etc/reput/trust" not in mounts
        else:
            assert volumes[mounts["/etc/reput/trust"]]["secret"]["secretName"] == "shop-reput-trust"


@pytest.mark.parametrize("kept", [("service", "operator"), ("service",), ()], ids=["both", "one", "none"])
def test_an_upgrade_keeps_the_tokens(kept: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade keeps the tokens that the cluster has, and makes the missing tokens."""
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    found = {role: base64.b64encode(f"kept-{role}".encode()).decode() for role in kept}
    with cluster("store", {"shop-reput-trust": found} if kept else {}) as address:
        options = ["--namespace", "store", "--kube-version", KUBERNETES_VERSION, "--show-only", "templates/trust.yaml"]
        server = ["--dry-run=server", "--kube-apiserver", address]
        text = run(tool("helm"), "template", "shop", CHART, *options, *server).stdout
    data = yaml.safe_load(text)["data"]
    assert {role: data[role] for role in kept} == found
    assert all(len(base64.b64decode(data[role])) >= 32 for role in ("service", "operator") if role not in kept)


def test_own_tokens_are_taken() -> None:
    """With the operator's own Secret the chart makes no Secret, so that rendering twice gives the same."""
    manifests = objects("trust.secretName=mine")
    assert not [name for kind, name in manifests if kind == "Secret"]
    found = [
        volume["secret"]["secretName"]
        for _, pod in pods(manifests)
        for volume in pod["volumes"]
        if volume["name"] == "trust"
    ]
    assert found == ["mine"] * len(SERVICES)
    assert render("trust.secretName=mine") == render("trust.secretName=mine")


def test_values_of_before_are_enough() -> None:
    """The chart renders with the values of an older chart, as `--reuse-values` brings them.

    These values have no `trust`, no Delivery, no gateway and no console.
    """
    assert objects("trust=null").keys() == objects().keys()
    before = objects("delivery=null", "gateway=null", "console=null")
    assert before.keys() == objects("delivery.enabled=false", "gateway.enabled=false").keys()


def test_data_is_on_claims() -> None:
    """By default every service with files keeps its data on its own claim."""
    manifests = objects()
    for service in ("commitlog", "indexer"):
        claims = manifests["StatefulSet", f"shop-reput-{service}"]["spec"]["volumeClaimTemplates"]
        assert [claim["metadata"]["name"] for claim in claims] == ["data"]
    assert ("PersistentVolumeClaim", "shop-reput-janitor") in manifests
    for name, pod in pods(manifests):
        assert not any(volume["name"] == "data" and "emptyDir" in volume for volume in pod["volumes"]), name


def test_upgrade_keeps_what_is_immutable() -> None:
    """Selectors and claim templates carry no version, because Kubernetes refuses to change them."""
    for service in ("commitlog", "indexer"):
        spec = objects()["StatefulSet", f"shop-reput-{service}"]["spec"]
        kept = json.dumps([spec["selector"], spec["volumeClaimTemplates"]])
        assert "version" not in kept.replace("apiVersion", "")
        assert "helm.sh/chart" not in kept


@pytest.mark.parametrize(("values", "kind"), [((), "grpc"), (tuple(SECURE), "exec")], ids=["plain", "tls"])
def test_probes_reach_the_service(values: tuple[str, ...], kind: str) -> None:
    """With TLS the probes use the pod's own socket, because Kubernetes' gRPC probe cannot use TLS."""
    manifests = objects(*values)
    for name, pod in pods(manifests):
        for container in pod["containers"]:
            if name.endswith("-test"):
                continue
            probes = [container[f"{probe}Probe"] for probe in ("startup", "readiness", "liveness")]
            assert all(kind in probe for probe in probes), name
            if kind == "exec":
                data = manifests["ConfigMap", name]["data"]
                (own,) = [value for variable, value in data.items() if variable.endswith("_UNIX_SOCKET")]
                assert [probe["exec"]["command"] for probe in probes] == [["reput-probe", f"unix:{own}"]] * 3


def test_recovery_is_not_killed() -> None:
    """A store may recover for an hour before the pod is restarted."""
    for service in ("commitlog", "indexer"):
        [container] = objects()["StatefulSet", f"shop-reput-{service}"]["spec"]["template"]["spec"]["containers"]
        probe = container["startupProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600


@pytest.mark.parametrize(("drain_timeout_ms", "seconds"), [(10_000, 90), (25_500, 122), (0, 70)])
def test_stop_is_given_its_time(drain_timeout_ms: int, seconds: int) -> None:
    """Kubernetes waits for both drain time-outs, a minute of closing and a margin."""
    manifests = objects(*(f"{service}.drainTimeoutMs={drain_timeout_ms}" for service in SERVICES))
    for name, pod in pods(manifests):
        if not name.endswith("-test"):
            assert pod["terminationGracePeriodSeconds"] == seconds


def test_disruption_budget_only_where_a_pod_can_be_spared() -> None:
    """A disruption budget exists only for services with several pods: over a single pod it would block every drain."""
    assert not [name for kind, name in objects() if kind == "PodDisruptionBudget"]
    manifests = objects("indexer.replicas=3")
    budgets = {name: item for (kind, name), item in manifests.items() if kind == "PodDisruptionBudget"}
    assert set(budgets) == {"shop-reput-indexer"}
    assert budgets["shop-reput-indexer"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_indexers_of_a_log_are_alike(replicas: int) -> None:
    """An Indexer starts without a shell and without settings of its pod's number, also beside a second Indexer."""
    (container,) = dict(pods(objects(f"indexer.replicas={replicas}")))["shop-reput-indexer"]["containers"]
    assert (container.get("command"), container["args"]) == (None, ["serve", "indexer"])


def test_policies_open_the_ports_and_nothing_else() -> None:
    """A service accepts calls on its port and scrapes on the metrics port, and nothing else.

    It reaches only DNS and the services that it calls.
    """
    manifests = objects()
    called = {
        "commitlog": set(), "indexer": {7101}, "janitor": {7101, 7102, 7104, 8081},  # `reput status` runs there
        "delivery": {7101, 7102}, "gateway": {7101, 7102, 7103, 7104},
    }  # fmt: skip
    callers = {
        "commitlog": {"indexer", "janitor", "delivery", "gateway", "console", "test", "backup"},
        "indexer": {"janitor", "delivery", "gateway", "console", "test", "backup"},
        "janitor": {"gateway", "console", "test"},
        "delivery": {"janitor", "gateway", "console", "test"}, "gateway": {"janitor", "console", "test"},
    }  # fmt: skip
    for index, service in enumerate(SERVICES, start=1):
        spec = manifests["NetworkPolicy", f"shop-reput-{service}"]["spec"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert [port["port"] for rule in spec["ingress"] for port in rule["ports"]] == [PORTS[service], 7200 + index]
        (own,) = spec["ingress"][0]["from"][0]["podSelector"]["matchExpressions"]
        assert set(own["values"]) == callers[service]
        assert all(rule["from"] for rule in spec["ingress"]), "an empty list would let everybody in"
        assert {port["port"] for rule in spec["egress"] for port in rule["ports"]} == called[service] | {53}


def test_metrics_are_not_where_a_load_balancer_may_be() -> None:
    """A Service of type LoadBalancer does not have the metrics port.

    The metrics have no access control.
    """
    manifests = objects(*(f"{service}.service.type=LoadBalancer" for service in ("commitlog", "indexer", "gateway")))
    balanced = [
        item["spec"]["ports"]
        for (kind, _), item in manifests.items()
        if kind == "Service" and item["spec"].get("type") == "LoadBalancer"
    ]
    assert [[port["name"] for port in ports] for ports in balanced] == [["grpc"]] * 3


@pytest.mark.parametrize("replicas", [1, 3])
def test_every_pod_is_scraped_once(replicas: int) -> None:
    """For each component, exactly a single Service has the port that the ServiceMonitor names."""
    manifests = objects("serviceMonitor.enabled=true", f"commitlog.replicas={replicas}")
    scraped = [
        item["spec"]["selector"]["app.kubernetes.io/component"]
        for (kind, _), item in manifests.items()
        if kind == "Service" and any(port["name"] == "metrics" for port in item["spec"]["ports"])
    ]
    assert sorted(scraped) == sorted(SERVICES)


def test_the_operators_prometheus_passes_the_policies() -> None:
    """With a ServiceMonitor, each policy permits the operator's Prometheus, of any namespace, its metrics port."""
    wanted = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
    }
    for is_enabled in (True, False):
        manifests = objects(f"serviceMonitor.enabled={str(is_enabled).lower()}")
        policies = [item for (kind, _), item in manifests.items() if kind == "NetworkPolicy"]
        assert len(policies) == len(SERVICES)
        for policy in policies:
            permitted = [
                peer
                for rule in policy["spec"]["ingress"]
                for peer in rule["from"]
                if rule["ports"][0]["port"] in range(7201, 7206)
            ]
            assert (wanted in permitted) is is_enabled


def test_rules_and_boards_are_the_repositorys() -> None:
    """The PrometheusRule has all groups of deploy/prometheus, and each ConfigMap is a board."""
    manifests = objects("prometheusRule.enabled=true", "dashboards.enabled=true")
    (rule,) = [item for (kind, _), item in manifests.items() if kind == "PrometheusRule"]
    files = sorted((ROOT / "deploy/prometheus").glob("*.yaml"))
    assert rule["spec"]["groups"] == [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    boards = {
        name: text
        for (kind, _), item in manifests.items()
        if kind == "ConfigMap" and "grafana_dashboard" in item["metadata"]["labels"]
        for name, text in item["data"].items()
    }
    files = sorted((ROOT / "deploy/observability/boards").glob("*.json"))
    assert boards == {file.name: file.read_text().rstrip("\n") for file in files}


def test_runbooks_are_where_they_were_put() -> None:
    """Each alarm links to its entry below the URL of the values."""
    manifests = objects("prometheusRule.enabled=true", "prometheusRule.runbookBase=https://example.com/reput/")
    (rule,) = [item for (kind, _), item in manifests.items() if kind == "PrometheusRule"]
    alarms = [alarm for group in rule["spec"]["groups"] for alarm in group["rules"] if "alert" in alarm]
    assert alarms
    for alarm in alarms:
        page, _, anchor = alarm["annotations"]["runbook_url"].removeprefix("https://example.com/reput/").partition("#")
        assert (ROOT / page).is_file()
        assert anchor == alarm["alert"].lower()


def test_names_fit_into_dns_labels() -> None:
    """A long release name is cut, so that the names of pods and Services fit into DNS labels."""
    version = ["--kube-version", KUBERNETES_VERSION]
    text = run(tool("helm"), "template", "a" * 53, CHART, *version).stdout
    for item in yaml.safe_load_all(text):
        if item:
            assert len(item["metadata"]["name"]) <= 61, "a pod of a StatefulSet adds -0 to 63"


def test_readme_lists_every_value() -> None:
    """The README's table has a row for each value of the chart."""

    def leaves(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from leaves(inner, f"{path}.{key}" if path else key)
        else:
            yield path

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    listed = re.findall(r"^\| `([^`]+)`", (CHART / "README.md").read_text(), re.MULTILINE)
    rows = set()
    for name in listed:
        for word, services in {"<service>": (*SERVICES, "console"), "<store>": WITH_FILES, "": ("",)}.items():
            if word in name:
                rows |= {name.replace(word, service) if word else name for service in services}
                break
    covered = {leaf for leaf in leaves(values, "") if any(leaf == row or leaf.startswith(f"{row}.") for row in rows)}
    assert set(leaves(values, "")) == covered
    assert not {row for row in rows if not any(leaf == row or leaf.startswith(f"{row}.") for leaf in covered)}
