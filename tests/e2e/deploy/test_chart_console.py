# SPDX-License-Identifier: Apache-2.0
"""The console in the chart: a client of the services behind a login, with a pod, a port and secrets of its own."""

import base64
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.deploy.commands import CHART, run, schema_location, tool
from tests.e2e.deploy.fake_cluster import cluster
from tests.e2e.deploy.settings import load_settings
from tests.e2e.deploy.test_chart import KUBERNETES_VERSION, SECURE, objects, pods, render

ON = "console.enabled=true"
NAME = "shop-reput-console"
VALUE_SETS = {
    "plain": [ON],
    "secure": [ON, *SECURE],
    "copies": [ON, "commitlog.replicas=3", "rights.secretName=rights", "console.replicas=2"],
    "alone": [ON, "delivery.enabled=false", "gateway.enabled=false", "janitor.enabled=false"],
    "own": [ON, "console.login.secretName=login", "console.storeToken.secretName=subject", "console.storeToken.key=k"],
    "proxied": [ON, "console.service.targetPort=4180", "console.service.type=LoadBalancer"],
}
SETS = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)


def settings_of(manifests: dict[tuple[str, str], Any]) -> Any:
    """The settings of the console, as it reads them."""
    return load_settings("console", manifests["ConfigMap", NAME]["data"])


@SETS
def test_manifests_are_what_kubernetes_knows(values: list[str]) -> None:
    """helm finds nothing, and every object passes the strict schema of its kind."""
    options = [part for value in values for part in ("--set", value)]
    run(tool("helm"), "lint", "--strict", "--kube-version", KUBERNETES_VERSION, CHART, *options)
    strict = ["-strict", "-summary", "-kubernetes-version", KUBERNETES_VERSION, "-schema-location", schema_location()]
    summary = run(tool("kubeconform"), *strict, "-", stdin=render(*values)).stdout
    assert "Invalid: 0, Errors: 0, Skipped: 0" in summary, summary


@SETS
def test_it_asks_for_a_login_and_knows_the_services(values: list[str]) -> None:
    """The console always has a login, calls the services by their names, and serves TLS if the services do."""
    settings = settings_of(objects(*values))
    engine, server = settings.engine, settings.server
    assert str(engine.login_token_file) == "/etc/reput/login/token"
    assert not engine.allow_anonymous
    assert (server.tls_certificate_file is None) is server.allow_insecure is (engine.store_ca_file is None)
    assert server.tls_client_ca_file is None
    has_gateway = "gateway.enabled=false" not in values
    assert engine.targets["gateway"] == ("shop-reput-gateway.store.svc:8081" if has_gateway else "")
    copies = range(3) if "commitlog.replicas=3" in values else ()
    for name, port in {"commitlog": 7101, "indexer": 7102, "janitor": 7103, "delivery": 7104}.items():
        service = f"shop-reput-{name}"
        several = ",".join(f"{service}-{at}.{service}-headless.store.svc:{port}" for at in copies)
        is_away = name == "delivery" and "delivery.enabled=false" in values
        assert engine.targets[name] == ("" if is_away else several or f"{service}.store.svc:{port}")


@SETS
def test_its_pod_is_confined_and_has_no_token_of_others(values: list[str]) -> None:
    """The pod has no root, no API token, and no secret but its login, the certificate, and the token of a client."""
    pod = dict(pods(objects(*values)))[NAME]
    (container,) = pod["containers"]
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["limits"]["memory"]
    assert not container.get("command")
    assert container["args"] == ["serve", "console"]
    found = {volume["name"] for volume in pod["volumes"]}
    assert found - {"tmp"} <= {"login", "store-token", "tls", "token"}
    assert {mount["name"] for mount in container["volumeMounts"]} == found


@pytest.mark.parametrize(
    ("values", "file"),
    [([ON], None), ([ON, *SECURE], "/etc/reput/token/token"), (VALUE_SETS["own"], "/etc/reput/store/token")],
)
def test_the_token_that_it_shows(values: list[str], file: str | None) -> None:
    """The console shows its own token, else the token of clients, else none."""
    manifests = objects(*values)
    shown = settings_of(manifests).engine.store_token_file
    assert (None if shown is None else str(shown)) == file
    secrets = {volume["name"]: volume.get("secret") for volume in dict(pods(manifests))[NAME]["volumes"]}
    if file == "/etc/reput/store/token":
        items = [{"key": "k", "path": "token"}]
        assert secrets["store-token"] == {"secretName": "subject", "defaultMode": 0o440, "items": items}


@SETS
def test_probes_pass_the_gate(values: list[str]) -> None:
    """The kubelet's probes name a host that the console admits, and ask with TLS if it serves TLS."""
    (container,) = dict(pods(objects(*values)))[NAME]["containers"]
    for probe in ("startup", "readiness", "liveness"):
        get = container[f"{probe}Probe"]["httpGet"]
        assert (get["path"], get["port"]) == ("/healthz", "http")
        assert get["scheme"] == ("HTTPS" if "tls.enabled=true" in values else "HTTP")
        assert get["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_its_names_are_admitted() -> None:
    """Requests may name the Service in all forms, and the hosts of the settings beside them."""
    values = ["console.config.allowed_hosts=reput.example.com", "console.config.hide_bodies=true"]
    engine = settings_of(objects(ON, *values)).engine
    names = [NAME, f"{NAME}.store", f"{NAME}.store.svc"]
    assert engine.allowed_hosts.split(",") == [*names, "reput.example.com"]
    assert engine.hide_bodies


def test_the_login_is_random_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chart makes a random token, which an upgrade keeps; with a Secret of the user it makes none."""
    tokens = [objects(ON)["Secret", NAME]["data"]["token"] for _ in range(2)]
    assert len(set(tokens)) == 2
    assert all(len(base64.b64decode(token)) >= 32 for token in tokens)
    assert ("Secret", NAME) not in objects(*VALUE_SETS["own"])
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    kept = base64.b64encode(b"kept").decode()
    with cluster("store", {NAME: {"token": kept}}) as address:
        options = ["--namespace", "store", "--kube-version", KUBERNETES_VERSION, "--set", ON]
        server = ["--show-only", "templates/console.yaml", "--dry-run=server", "--kube-apiserver", address]
        text = run(tool("helm"), "template", "shop", CHART, *options, *server).stdout
    (secret,) = [item for item in yaml.safe_load_all(text) if item and item["kind"] == "Secret"]
    assert secret["data"] == {"token": kept}


@pytest.mark.parametrize(("values", "port"), [([ON], 7300), (VALUE_SETS["proxied"], 4180)], ids=["own", "proxied"])
def test_only_its_port_is_open(values: list[str], port: int) -> None:
    """Readers reach the console, or only the login proxy before it; the console reaches only the services."""
    manifests = objects(*values, "serviceMonitor.enabled=true")
    spec = manifests["NetworkPolicy", NAME]["spec"]
    assert [one["port"] for rule in spec["ingress"] for one in rule["ports"]] == [port, 7206]
    assert {one["port"] for rule in spec["egress"] for one in rule["ports"]} == {53, 7101, 7102, 7103, 7104, 8081}
    (listed,) = manifests["Service", NAME]["spec"]["ports"]
    assert (listed["port"], listed["targetPort"]) == (7300, "http" if port == 7300 else port)
    assert [one["name"] for one in manifests["Service", f"{NAME}-metrics"]["spec"]["ports"]] == ["metrics"]


def test_the_login_of_the_readme(tmp_path: Path) -> None:
    """The README's values put a login proxy before the console, which believes its pod alone."""
    (text,) = re.findall(r"```yaml\n(console:.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    file = tmp_path / "values.yaml"
    file.write_text(text)
    command = ["template", "shop", CHART, "--namespace", "store", "--kube-version", KUBERNETES_VERSION]
    found = yaml.safe_load_all(run(tool("helm"), *command, "--values", file).stdout)
    manifests = {(item["kind"], item["metadata"]["name"]): item for item in found if item}
    engine = settings_of(manifests).engine
    assert (engine.login_header, engine.trusted_proxies) == ("X-Forwarded-Email", "127.0.0.1")
    assert [one["name"] for one in dict(pods(manifests))[NAME]["containers"]] == ["console", "login"]
    assert manifests["NetworkPolicy", NAME]["spec"]["ingress"][0]["ports"] == [{"port": 4180}]


def test_it_is_off_by_default() -> None:
    """Without `console.enabled` no object of a console exists."""
    assert not [name for _, name in objects() if "console" in name]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("console.replicas=0", "/console/replicas"),
        ("console.config.login_token_file=/x", "login_token_file"),
        ("console.config.allow_anonymous=true", "allow_anonymous"),
        ("console.config.page_count_max=0", "page_count_max"),
        ("console.config.no_such=1", "no_such"),
        ("console.service.targetPort=http proxy", "targetPort"),
        ("console.extraVolumes[0].name=login", "extraVolumes"),
        ("console.maintenance=true", "maintenance"),
    ],
)
def test_wrong_value_is_refused(value: str, reason: str) -> None:
    """A wrong value is named before anything is installed; no value opens the console without a login."""
    options = ["--kube-version", KUBERNETES_VERSION, "--set", ON, "--set", value]
    finished = run(tool("helm"), "template", "shop", CHART, *options, must_succeed=False)
    assert finished.returncode != 0
    assert reason in finished.stderr
