# SPDX-License-Identifier: Apache-2.0
"""The compose file on a real engine: the demo's questions from outside, after kills, restarts and a new start.

Needs an engine whose published ports can be reached; `tests/e2e/deploy/engine.sh run` gives such an engine. The image
is built from this tree; behind a proxy set EXTRA_CA_CERTIFICATES and PACKAGE_INDEX as the compose file takes them.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.deploy.commands import ROOT, Compose, composed, run, start_all, tool

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1500)]

PROJECT = "reput-e2e"
WITH_FILES = {"commitlog": 7101, "indexer": 7102, "janitor": 7103}
SERVICES = {**WITH_FILES, "delivery": 7104, "gateway": 8081}
METRICS = range(7201, 7207)


@pytest.fixture(scope="module")
def compose() -> Iterator[Compose]:
    """`docker compose` for this test's own project."""
    with composed(PROJECT) as compose:
        yield compose


@pytest.fixture(scope="module", autouse=True)
def operator(compose: Compose, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands from outside are an operator's, because they have the token that the containers share."""
    file = tmp_path_factory.mktemp("trust") / "token"
    file.write_text(compose("exec", "-T", "commitlog", "cat", "/trust/reput/token").stdout)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPUT_CLIENT_TOKEN_FILE", str(file))
        yield


@pytest.fixture(scope="module")
def record(compose: Compose, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of the demo's load, which was sent from outside and whose questions had the source's answers."""
    file = tmp_path_factory.mktemp("compose") / "load.parquet"
    ask(file, "--load")
    return file


def ask(record: Path, *options: str) -> None:
    """Ask the demo's questions from outside the containers, and check that every answer is the source's."""
    targets = [part for service, port in WITH_FILES.items() for part in (f"--{service}", f"127.0.0.1:{port}")]
    finished = run(sys.executable, "-m", "demo.checks", *targets, "--record", record, *options)
    counts = re.search(r"(\d+) comparisons with the source table, (\d+) equal", finished.stdout)
    assert counts is not None, finished.stdout
    assert int(counts[1]) == int(counts[2]) > 20, finished.stdout


def state(compose: Compose, service: str) -> Any:
    """Return the engine's description of a service's container."""
    container = compose("ps", "--all", "--quiet", service).stdout.strip()
    return json.loads(run(tool("docker"), "inspect", container).stdout)[0]


def test_services_start_in_order(compose: Compose) -> None:
    """Each service starts after the services that it calls, and all are healthy."""
    started = {
        service: datetime.fromisoformat(state(compose, service)["State"]["StartedAt"][:26]) for service in SERVICES
    }
    assert started["commitlog"] < started["indexer"] < started["janitor"]
    assert started["indexer"] < started["delivery"] < started["gateway"]
    assert {state(compose, service)["State"]["Health"]["Status"] for service in SERVICES} == {"healthy"}


@pytest.mark.parametrize("service", SERVICES)
def test_process_is_confined(compose: Compose, service: str) -> None:
    """The process has no root and no capability and can't get more. Its image is read-only and has no compiler."""
    status = compose("exec", "-T", service, "cat", "/proc/1/status").stdout
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert found["Uid"].split() == ["10001"] * 4
    assert int(found["CapEff"], 16) == 0
    assert int(found["CapBnd"], 16) == 0
    assert found["NoNewPrivs"] == "1"
    assert compose("exec", "-T", service, "touch", "/opt/x", must_succeed=False).returncode != 0
    assert compose("exec", "-T", service, "sh", "-c", "command -v gcc cc ld", must_succeed=False).returncode != 0


def test_image_keeps_nothing_of_its_build(compose: Compose) -> None:
    """The image, its history and its variables have neither certificates nor the package index of the build."""
    image = state(compose, "commitlog")["Image"]
    history = run(tool("docker"), "history", "--no-trunc", "--format", "{{.CreatedBy}}", image).stdout
    variables = "\n".join(state(compose, "commitlog")["Config"]["Env"])
    for word in ("CERTIFICATE", "PACKAGE_INDEX", "PIP_", "UV_", "PYTHONOPTIMIZE"):
        assert word not in history + variables
    assert compose("exec", "-T", "commitlog", "ls", "/build", must_succeed=False).returncode != 0


def test_image_has_no_pip_and_no_setuid_programs(compose: Compose) -> None:
    """The image can install nothing, and no program in it has another user's rights. It lists its packages."""
    for command in (["python", "-m", "pip"], ["/usr/bin/env", "pip", "--version"], ["python", "-m", "ensurepip"]):
        assert compose("exec", "-T", "commitlog", *command, must_succeed=False).returncode != 0
    image = state(compose, "commitlog")["Image"]
    as_root = ("run", "--rm", "--user", "0", "--workdir", "/", "--entrypoint", "find", image)
    found = run(tool("docker"), *as_root, "/", "-xdev", "-type", "f", "-perm", "/6000")
    assert found.stdout == ""
    bill = json.loads(compose("exec", "-T", "commitlog", "cat", "/opt/reput/sbom.cdx.json").stdout)
    assert {"grpcio", "msgspec"} <= {component["name"] for component in bill["components"]}


def test_the_quick_start_of_a_single_container_works(compose: Compose) -> None:
    """The page's `docker run -p` gives a store that answers on published ports of the machine's loopback."""
    page = (ROOT / "docs/operations.md").read_text()
    (line,) = re.findall(
        r"^docker run --rm --name reput (.*?)\n```", page.replace("\\\n", ""), re.DOTALL | re.MULTILINE
    )
    words = re.sub(r"127\.0\.0\.1:7", "127.0.0.1:3", line).replace("reput-data", f"{PROJECT}-single").split()
    run(tool("docker"), "run", "--detach", "--rm", "--name", f"{PROJECT}-single", *words)
    try:
        targets = {
            f"REPUT_CLIENT_{name.upper()}_TARGET": f"127.0.0.1:{port - 4000}" for name, port in WITH_FILES.items()
        }
        for arguments in (["health", "--wait", "120"], ["put", "orders", "x"], ["pull", "orders", "--wait", "10"]):
            command = [sys.executable, "-m", "cli.main", *arguments]
            environment = {**os.environ, **targets}
            done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    finally:
        run(tool("docker"), "rm", "--force", f"{PROJECT}-single", must_succeed=False)
        run(tool("docker"), "volume", "rm", f"{PROJECT}-single", must_succeed=False)


def test_kernel_is_compiled(compose: Compose) -> None:
    """The image has the compiled kernel, and refuses to run another."""
    program = (
        "import os, sys, reput_server; sys.path.insert(0, reput_server.ROOT); import libs.kernel;"
        "assert libs.kernel.IS_COMPILED; print(os.environ['REPUT_REQUIRE_EXTENSIONS'])"
    )
    assert compose("exec", "-T", "commitlog", "python", "-c", program).stdout.strip() == "1"


def test_foreign_client_finds_its_way(compose: Compose) -> None:
    """A generic gRPC client gets the services by reflection and their health by the standard call."""
    for port in SERVICES.values():
        names = run(tool("grpcurl"), "-plaintext", f"127.0.0.1:{port}", "list").stdout
        assert "grpc.health.v1.Health" in names
        assert "reput." in names or "apache.rocketmq." in names
        health = run(tool("grpcurl"), "-plaintext", f"127.0.0.1:{port}", "grpc.health.v1.Health/Check").stdout
        assert json.loads(health) == {"status": "SERVING"}


def test_operators_are_those_inside(compose: Compose) -> None:
    """A caller outside without the token may not have the Janitor run.

    The `reput` command inside a container may.
    """
    stranger = {name: value for name, value in os.environ.items() if name != "REPUT_CLIENT_TOKEN_FILE"}
    stranger["XDG_STATE_HOME"] = "/nonexistent"
    command = [sys.executable, "-m", "cli.main", "janitor", "run", "--dry-run"]
    refused = subprocess.run(command, env=stranger, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 5
    assert "NOT_PERMITTED" in refused.stderr
    compose("exec", "-T", "janitor", "reput", "janitor", "run", "--dry-run")


@pytest.mark.parametrize("service", SERVICES)
def test_commands_inside_know_all_services(compose: Compose, service: str) -> None:
    """In each container the `reput` command finds all services without options."""
    told = json.loads(compose("exec", "-T", service, "reput", "status", "--json").stdout)
    assert not [name for name in WITH_FILES if "unavailable" in told[name]]
    assert [told[name][0]["health"] for name in ("delivery", "gateway")] == ["SERVING"] * 2


def test_questions_are_answered_from_outside(record: Path) -> None:
    """The demo's load and all of its questions work over the published ports."""
    ask(record)


@pytest.mark.parametrize("service", SERVICES)
def test_answers_survive_a_kill(compose: Compose, record: Path, service: str) -> None:
    """After SIGKILL and a new start of a container every answer is the same as before, without any manual step."""
    compose("kill", "--signal", "KILL", service)
    assert state(compose, service)["State"]["ExitCode"] == 137
    start_all(compose)
    ask(record)


def test_answers_survive_a_kill_of_all(compose: Compose, record: Path) -> None:
    """After SIGKILL of all containers at once every answer is the same as before."""
    compose("kill", "--signal", "KILL")
    start_all(compose)
    ask(record)


def test_health_is_a_service_s_own(compose: Compose, record: Path) -> None:
    """While the CommitLog hangs, the other services stay healthy: a restart of theirs would not help."""
    compose("pause", "commitlog")
    try:
        for service in ("indexer", "janitor"):
            compose("exec", "-T", service, "reput-probe", f"127.0.0.1:{SERVICES[service]}")
    finally:
        compose("unpause", "commitlog")
    ask(record)


@pytest.mark.parametrize("service", list(reversed(SERVICES)))
def test_stop_is_orderly(compose: Compose, record: Path, service: str) -> None:
    """SIGTERM ends a service with exit code 0, long before the engine would kill it."""
    begun = time.monotonic()
    compose("stop", service)
    assert time.monotonic() - begun < 45
    assert state(compose, service)["State"]["ExitCode"] == 0


def test_data_survives_new_containers(compose: Compose, record: Path) -> None:
    """The volumes hold all data: with new containers the answers are the same."""
    compose("down")
    start_all(compose)
    ask(record)


def test_indexer_is_rebuilt_from_the_log(compose: Compose, record: Path) -> None:
    """An Indexer that lost its volume builds the same queues and indexes again."""
    compose("rm", "--stop", "--force", "indexer")
    run(tool("docker"), "volume", "rm", f"{PROJECT}_indexer-data")
    start_all(compose)
    ask(record)


def test_the_console_shows_the_store(compose: Compose) -> None:
    """The console's page at its published port knows all services, and the console has no token of theirs."""
    page = json.loads(run("curl", "--silent", "--fail", "http://127.0.0.1:7300/store.json").stdout)
    assert page["is_healthy"], page
    assert state(compose, "console")["State"]["Health"]["Status"] == "healthy"
    assert compose("exec", "-T", "console", "ls", "/trust/reput", must_succeed=False).returncode != 0


def test_metrics_are_served(compose: Compose) -> None:
    """Each service has a Prometheus endpoint on the loopback interface."""
    for port in METRICS:
        text = run("curl", "--silent", "--fail", f"http://127.0.0.1:{port}/metrics").stdout
        assert "\nreput_" in text
