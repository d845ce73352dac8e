# SPDX-License-Identifier: Apache-2.0
"""The chart's pods as containers of a plain engine: the rendered settings, mounts, users, probes and the test pod work.

No cluster is needed: the single container of each pod is started as its manifest says, under the names of its
Services. The tasks of a cluster (scheduling, claims, network policies) are not tried here. The image is the compose
file's.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.deploy.commands import CHART, compose_command, run, tool

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(900)]

NETWORK = "reput-e2e-chart"
PREFIX = "reput-e2e-chart-"
NAMESPACE = "store"
SERVICES = ("commitlog", "indexer", "janitor", "delivery", "gateway")
PROBE_TIMEOUT_S = 90
VALUE_SETS = {
    "plain": [],
    "tls-and-token": [
        "tls.enabled=true", "tls.secretName=reput-tls", "tls.clientCertificates=true", "token.secretName=reput-token",
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Release:
    """The rendered manifests, and the folder whose sub-folders stand for the Secrets."""

    manifests: dict[tuple[str, str], Any]
    secrets: Path

    def pod(self, component: str) -> Any:
        """Spec of a component's pod."""
        for (kind, name), item in self.manifests.items():
            if kind in {"StatefulSet", "Deployment"} and name.endswith(f"-{component}"):
                return item["spec"]["template"]["spec"]
            if kind == "Pod" and name.endswith(f"-{component}"):
                return item["spec"]
        raise KeyError(component)

    def command(self, component: str) -> list[str]:
        """`docker` arguments that run the component's container as its manifest says."""
        pod = self.pod(component)
        [container] = pod["containers"]
        security = pod["securityContext"]
        options = ["--network", NETWORK, "--name", f"{PREFIX}{component}", "--read-only", "--cap-drop", "ALL"]
        options += [
            "--security-opt",
            "no-new-privileges",
            "--user",
            f"{security['runAsUser']}:{security['runAsGroup']}",
        ]
        if ("Service", f"shop-reput-{component}") in self.manifests:
            options += ["--network-alias", f"shop-reput-{component}.{NAMESPACE}.svc"]
        for source in container.get("envFrom", []):
            data = self.manifests["ConfigMap", source["configMapRef"]["name"]]["data"]
            options += [f"--env={name}={value}" for name, value in data.items()]
        for variable in container.get("env", []):
            value = variable.get("value", "192.0.2.7").replace("$(POD_IP)", "192.0.2.7")
            options += [f"--env={variable['name']}={value}"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in container["volumeMounts"]:
            volume = volumes.get(mount["name"], {})
            if "secret" in volume:
                options += ["--volume", f"{self.secrets / volume['secret']['secretName']}:{mount['mountPath']}:ro"]
            elif mount["name"] == "data":
                options += ["--volume", f"{PREFIX}{component}:{mount['mountPath']}"]
            else:
                options += ["--tmpfs", f"{mount['mountPath']}:mode=1777"]
        entrypoint = container.get("command", [])
        if entrypoint:
            options += ["--entrypoint", entrypoint[0]]
        return [*options, container["image"], *entrypoint[1:], *container["args"]]


@pytest.fixture(scope="module")
def image() -> None:
    """The image of this tree, and an engine to run it."""
    if run(tool("docker"), "version", must_succeed=False).returncode != 0:
        pytest.skip("no Docker engine answers: tests/e2e/deploy/engine.sh provides one")
    run(*compose_command(), "build")


def remove_all() -> None:
    """Remove everything that this test starts."""
    docker = tool("docker")
    for component in (*SERVICES, "test"):
        run(docker, "rm", "--force", "--volumes", f"{PREFIX}{component}", must_succeed=False)
        run(docker, "volume", "rm", "--force", f"{PREFIX}{component}", must_succeed=False)
    run(docker, "network", "rm", NETWORK, must_succeed=False)


def make_secrets(directory: Path) -> None:
    """An authority, a certificate of it for the Services, and tokens, in the form of the chart's Secrets."""
    tls, token = directory / "reput-tls", directory / "reput-token"
    trust = directory / "shop-reput-trust"
    for folder in (tls, token, trust):
        folder.mkdir(parents=True)
    (token / "token").write_text("a-token-of-this-test\n")
    for role in ("service", "operator"):
        (trust / role).write_text(f"a-token-of-the-{role}\n")
    names = ",".join(f"DNS:shop-reput-{service}.{NAMESPACE}.svc" for service in SERVICES)
    openssl, key_options = tool("openssl"), ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    authority = ["-keyout", directory / "ca.key", "-out", tls / "ca.crt", "-subj", "/CN=authority of this test"]
    run(openssl, "req", "-x509", *key_options, *authority)
    files = ["-keyout", tls / "tls.key", "-out", tls / "tls.crt", "-subj", "/CN=reput"]
    signer = ["-CA", tls / "ca.crt", "-CAkey", directory / "ca.key"]
    extensions = ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE"]
    run(openssl, "req", "-x509", *key_options, *files, *signer, *extensions)
    for file in (*tls.iterdir(), *token.iterdir(), *trust.iterdir()):
        file.chmod(0o644)  # a cluster does this by fsGroup


@pytest.fixture(scope="module", params=VALUE_SETS.values(), ids=list(VALUE_SETS))
def release(request: pytest.FixtureRequest, image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The services, started as the chart's manifests say."""
    options = [part for value in request.param for part in ("--set", value)]
    command = [tool("helm"), "template", "shop", CHART, "--namespace", NAMESPACE, "--kube-version", "1.34.0", *options]
    items = [item for item in yaml.safe_load_all(run(*command).stdout) if item]
    directory = tmp_path_factory.mktemp("release")
    for folder in (directory, *directory.parents[:2]):
        folder.chmod(0o755)
    make_secrets(directory)
    made = Release({(item["kind"], item["metadata"]["name"]): item for item in items}, directory)
    remove_all()
    run(tool("docker"), "network", "create", NETWORK)
    try:
        for service in SERVICES:
            run(tool("docker"), "run", "--detach", *made.command(service))
        yield made
    finally:
        remove_all()
        shutil.rmtree(directory, ignore_errors=True)


def probe(release: Release, service: str) -> subprocess.CompletedProcess[str]:
    """Do the service's startup probe once, from inside its container."""
    [container] = release.pod(service)["containers"]
    check = container["startupProbe"]
    command = check["exec"]["command"] if "exec" in check else [
        "reput-probe", f"127.0.0.1:{check['grpc']['port']}",
    ]  # fmt: skip
    return run(tool("docker"), "exec", f"{PREFIX}{service}", *command, must_succeed=False)


@pytest.mark.parametrize("service", SERVICES)
def test_probe_passes(release: Release, service: str) -> None:
    """The service starts with its settings, and its probe finds it serving."""
    deadline = time.monotonic() + PROBE_TIMEOUT_S
    while probe(release, service).returncode != 0:
        logs = run(tool("docker"), "logs", f"{PREFIX}{service}", must_succeed=False)
        assert time.monotonic() < deadline, logs.stdout + logs.stderr
        time.sleep(1)


def test_test_pod_passes(release: Release) -> None:
    """`helm test` appends a message and finds it by key and by queue, with the certificates and the token."""
    finished = run(tool("docker"), "run", "--rm", *release.command("test"))
    assert "append, query and pull work" in finished.stdout


@pytest.mark.parametrize("left_out", ["CERTIFICATE_FILE", "TOKEN_FILE", "CA_FILE"])
def test_stranger_is_refused(release: Release, left_out: str) -> None:
    """With TLS and a token, a client without a certificate, without the token or without TLS can't write."""
    command = release.command("test")[:-1]
    unset = {f"--env=REPUT_CLIENT_{left_out}"}
    if left_out in ("CERTIFICATE_FILE", "CA_FILE"):  # the command itself refuses a certificate without TLS
        unset |= {"--env=REPUT_CLIENT_CERTIFICATE_FILE", "--env=REPUT_CLIENT_KEY_FILE"}
    kept = [word for word in command if word.rpartition("=")[0] not in unset]
    if kept == command:
        pytest.skip("these values let everybody in")
    finished = run(tool("docker"), "run", "--rm", *kept, "reput --timeout 5 put strangers x", must_succeed=False)
    assert finished.returncode in (4, 5), finished.stdout + finished.stderr
