# SPDX-License-Identifier: Apache-2.0
"""Dockerfile, compose file and scripts, checked as they stand, without an engine."""

import json
from pathlib import Path
from typing import Any

import pytest

from libs.runtime.peer.shards import shards_of
from tests.e2e.deploy.commands import CHART, ROOT, compose_command, run, tool
from tests.e2e.deploy.settings import load_settings

SERVICES = {"commitlog": 7101, "indexer": 7102, "janitor": 7103, "delivery": 7104, "gateway": 8081}
WITH_FILES = ("commitlog", "indexer", "janitor")
CONSOLE = "console"


def test_dockerfiles_have_no_known_weakness() -> None:
    """hadolint finds nothing in the images' files."""
    run(tool("hadolint"), *sorted((ROOT / "deploy/docker").glob("*Dockerfile")))


def test_yaml_is_tidy() -> None:
    """The compose files, the values of the chart, the alarms and the files for Spark pass yamllint."""
    rules, spark = ROOT / "deploy/yamllint.yaml", sorted((ROOT / "deploy/k8s/spark").iterdir())
    alarms = (*sorted((ROOT / "deploy/prometheus").iterdir()), *sorted(Path(__file__).parent.glob("*alarms_test.yaml")))
    files = (
        "docker-compose.yml",
        "docker-compose.ha.yml",
        "docker-compose.shards.yml",
        *alarms,
        CHART / "Chart.yaml",
        CHART / "values.yaml",
        *spark,
    )
    run(tool("yamllint"), "--strict", "-c", rules, *files)


def test_scripts_have_no_known_trap() -> None:
    """shellcheck finds nothing in the scripts of this folder."""
    run(tool("shellcheck"), *sorted(Path(__file__).parent.glob("*.sh")))


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as compose understands them."""
    command = compose_command()
    run(*command, "config", "--quiet")
    found: dict[str, Any] = json.loads(run(*command, "config", "--format", "json").stdout)["services"]
    return found


def test_compose_has_the_services(services: dict[str, Any]) -> None:
    """The compose file has our five services and the console, and no others."""
    assert set(services) == {*SERVICES, CONSOLE}


def test_compose_console(services: dict[str, Any]) -> None:
    """The console asks all services as a client, without any token, and a single variable leaves it out."""
    found = services[CONSOLE]
    settings = load_settings(CONSOLE, found["environment"])
    assert (settings.server.port, settings.engine.allow_anonymous) == (7300, True)
    assert settings.engine.store_token_file is None
    for name in ("commitlog", "indexer", "janitor", "delivery"):
        assert getattr(settings.engine, f"{name}_target") == f"{name}:{SERVICES[name]}"
    assert "volumes" not in found
    assert found["healthcheck"]["test"] == ["CMD", "reput-probe", "http://127.0.0.1:7300"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPUT_CONSOLE", "0")
        command = [*compose_command(), "config", "--format", "json"]
        assert (found["scale"], json.loads(run(*command).stdout)["services"][CONSOLE]["scale"]) == (1, 0)


@pytest.mark.parametrize("service", SERVICES)
def test_compose_service_starts_with_its_settings(services: dict[str, Any], service: str) -> None:
    """Every variable of a service is a setting.

    The service listens on its published port, and has its files on /data.
    """
    settings = load_settings(service, services[service]["environment"])
    assert settings.server.port == SERVICES[service]
    assert settings.server.allow_insecure
    places = ["/data", "/trust"] if service in WITH_FILES else ["/trust"]
    assert [volume["target"] for volume in services[service]["volumes"]] == places
    assert "/data" not in places or str(settings.engine.data_dir) == "/data"
    assert services[service]["environment"]["XDG_STATE_HOME"] == "/trust"


@pytest.mark.parametrize("service", SERVICES)
def test_commands_in_a_container_know_the_services(services: dict[str, Any], service: str) -> None:
    """The `reput` command in a container has the services' names and the operators' token.

    The first service makes the token.
    """
    environment = services[service]["environment"]
    for name, port in SERVICES.items():
        assert environment[f"REPUT_CLIENT_{name.upper()}_TARGET"] == f"{name}:{port}"
    assert environment["REPUT_CLIENT_TOKEN_FILE"] == f"{environment['XDG_STATE_HOME']}/reput/token"


@pytest.mark.parametrize("service", [*SERVICES, CONSOLE])
def test_compose_service_is_confined(services: dict[str, Any], service: str) -> None:
    """A service has no root, no capability, no writable image, bounded memory, and no port beyond this machine."""
    found = services[service]
    assert found["user"] == "10001:10001"
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert int(found["mem_limit"]) > 0
    assert {port["host_ip"] for port in found["ports"]} == {"127.0.0.1"}
    assert not found["image"].endswith(":latest")


def test_compose_volumes_are_separate(services: dict[str, Any]) -> None:
    """Each service with files has its own volume, so the Indexer and the Janitor do not need the CommitLog's."""
    sources = [services[service]["volumes"][0]["source"] for service in WITH_FILES]
    assert len(set(sources)) == len(WITH_FILES)


def test_compose_services_share_their_token(services: dict[str, Any]) -> None:
    """All services share a volume with the token, which the first of them makes."""
    assert {services[service]["volumes"][-1]["source"] for service in SERVICES} == {"trust"}


@pytest.mark.parametrize("service", SERVICES)
def test_compose_waits_for_an_orderly_stop(services: dict[str, Any], service: str) -> None:
    """SIGKILL comes after the times of an orderly stop.

    Streams and calls each have the drain time-out, and closing the store has a minute.
    """
    settings = load_settings(service, services[service]["environment"])
    assert services[service]["stop_grace_period"] == "1m30s"
    assert 2 * settings.server.drain_timeout_ms / 1000 + 60 < 90


def test_compose_checks_health_seldom(services: dict[str, Any]) -> None:
    """Each service's health is checked every 30 s.

    A service starts after the services that it calls, and waits for them itself.
    """
    needs = {name: set(services[name].get("depends_on", {})) for name in SERVICES}
    assert needs == {
        "commitlog": set(), "indexer": {"commitlog"}, "janitor": {"commitlog", "indexer"},
        "delivery": {"commitlog", "indexer"}, "gateway": {"commitlog", "delivery"},
    }  # fmt: skip
    conditions = {need["condition"] for name in SERVICES for need in services[name].get("depends_on", {}).values()}
    assert conditions == {"service_started"}
    for name, port in SERVICES.items():
        assert services[name]["healthcheck"]["interval"] == "30s"
        assert services[name]["healthcheck"]["test"] == ["CMD", "reput-probe", f"127.0.0.1:{port}"]


@pytest.fixture(scope="module")
def copies() -> dict[str, Any]:
    """The services of the file with three copies of the log."""
    command = [*compose_command(), "-f", "docker-compose.ha.yml"]
    run(*command, "config", "--quiet")
    found: dict[str, Any] = json.loads(run(*command, "config", "--format", "json").stdout)["services"]
    return found


def test_each_copy_has_its_services(copies: dict[str, Any]) -> None:
    """There are three of each service except the gateway and the console, an etcd and a container for commands."""
    each = {f"{service}-{name}" for service in SERVICES if service != "gateway" for name in "abc"}
    assert set(copies) == {"etcd", "client", "gateway", CONSOLE} | each


@pytest.mark.parametrize("name", "abc")
def test_copies_start_with_their_settings(copies: dict[str, Any], name: str) -> None:
    """Every variable of a copy is a setting.

    The services of a copy use each other, and a log advertises its own address.
    """
    log, index, janitor, delivery = (
        load_settings(service, copies[f"{service}-{name}"]["environment"]) for service in (*WITH_FILES, "delivery")
    )
    own = f"commitlog-{name}"
    assert (log.engine.replica_id, log.engine.advertise_target) == (own, f"{own}:7101")
    assert (log.engine.coordinator, log.engine.role, log.etcd.members) == ("etcd", "sync_master", ("etcd:2379",))
    assert log.engine.bootstrap_replica_id == "commitlog-a"
    assert index.commitlog.target == f"{own}:7101"
    assert (janitor.commitlog.target, janitor.indexer.target) == (f"{own}:7101", f"indexer-{name}:7102")
    assert (delivery.commitlog.target, delivery.indexer.target) == (f"{own}:7101", f"indexer-{name}:7102")


def test_the_gateway_knows_all_copies(copies: dict[str, Any]) -> None:
    """The gateway has the addresses of all copies, and finds the leader."""
    settings = load_settings("gateway", copies["gateway"]["environment"])
    for service, peer in (("commitlog", settings.commitlog), ("delivery", settings.delivery)):
        assert peer.target == ",".join(f"{service}-{letter}:{SERVICES[service]}" for letter in "abc")


def test_the_console_knows_all_copies(copies: dict[str, Any]) -> None:
    """The console has the addresses of all copies."""
    settings = load_settings(CONSOLE, copies[CONSOLE]["environment"])
    for service in (*WITH_FILES, "delivery"):
        targets = ",".join(f"{service}-{letter}:{SERVICES[service]}" for letter in "abc")
        assert getattr(settings.engine, f"{service}_target") == targets


def test_commands_in_each_container_know_all_copies(copies: dict[str, Any]) -> None:
    """The `reput` command in each container has all three addresses of each service, and the operators' token."""
    for name, found in copies.items():
        if name not in ("etcd", CONSOLE):
            for service, port in SERVICES.items():
                names = [service] if service == "gateway" else [f"{service}-{letter}" for letter in "abc"]
                targets = ",".join(f"{one}:{port}" for one in names)
                assert found["environment"][f"REPUT_CLIENT_{service.upper()}_TARGET"] == targets, name
            assert found["environment"]["REPUT_CLIENT_TOKEN_FILE"] == "/trust/reput/token", name


def test_copies_are_confined_and_apart(copies: dict[str, Any]) -> None:
    """A copy has no capability, no writable image, bounded memory and no moving tag.

    Each copy has its own volume, and no port beyond this machine.
    """
    volumes, ports = [], []
    for name, found in copies.items():
        assert found["read_only"] is True, name
        assert found["cap_drop"] == ["ALL"], name
        assert found["security_opt"] == ["no-new-privileges:true"], name
        assert int(found["mem_limit"]) > 0, name
        assert found["image"].rpartition(":")[2].lstrip("v").replace(".", "").isdigit(), name
        volumes += [volume["source"] for volume in found.get("volumes", []) if volume["target"] == "/data"]
        ports += [port["published"] for port in found.get("ports", [])]
        assert {port["host_ip"] for port in found.get("ports", [])} <= {"127.0.0.1"}, name
    assert len(set(volumes)) == len(volumes) == 10
    assert len(set(ports)) == len(ports) == 16


@pytest.fixture(scope="module")
def sharded() -> dict[str, Any]:
    """The services of the compose file with the second shard of the other file."""
    command = [*compose_command(), "-f", "docker-compose.yml", "-f", "docker-compose.shards.yml"]
    run(*command, "config", "--quiet")
    found: dict[str, Any] = json.loads(run(*command, "config", "--format", "json").stdout)["services"]
    return found


def test_a_second_shard_has_its_own_services(services: dict[str, Any], sharded: dict[str, Any]) -> None:
    """Shard b has services, volumes and addresses of its own, without published ports; the rest is as it was."""
    own = [*WITH_FILES, "delivery"]
    assert set(sharded) == {*services, *(f"{name}-b" for name in own)}
    for name in own:
        first, second = sharded[name], sharded[f"{name}-b"]
        assert "ports" not in second
        assert second["volumes"][-1 if name in WITH_FILES else 0]["source"] == "trust"
        assert name not in WITH_FILES or second["volumes"][0]["source"] == f"{name}-b-data"
        for key in ("user", "read_only", "cap_drop", "security_opt", "mem_limit", "healthcheck", "stop_grace_period"):
            assert first[key] == second[key]
        settings = load_settings(name, second["environment"])
        for peer in ("commitlog", "indexer"):
            if hasattr(settings, peer):
                assert getattr(settings, peer).target == f"{peer}-b:{SERVICES[peer]}"
                assert f"{peer}-b" in second["depends_on"]
        for peer in own:
            variable = second["environment"][f"REPUT_CLIENT_{peer.upper()}_TARGET"]
            assert variable == f"{peer}-b:{SERVICES[peer]}"
    for name in set(services) - {"gateway", "delivery"}:
        assert sharded[name] == services[name]


def test_gateway_and_deliveries_read_the_shards(sharded: dict[str, Any]) -> None:
    """The gateway and both Deliveries read the same file, whose addresses are services, by their own parser."""
    for name in ("gateway", "delivery", "delivery-b"):
        settings = load_settings(name.removesuffix("-b"), sharded[name]["environment"])
        (mount,) = [one for one in sharded[name]["volumes"] if one["target"] == str(settings.engine.shards_file)]
        assert mount["read_only"] is True
        for shard, suffix in zip(shards_of(Path(mount["source"])).values(), ("", "-b"), strict=True):
            for service in (*WITH_FILES, "delivery"):
                assert getattr(shard, service) == f"{service}{suffix}:{SERVICES[service]}"
    environment = sharded["gateway"]["environment"]
    assert environment["REPUT_CLIENT_SHARDS_FILE"] == environment["REPUT_GATEWAY_SHARDS_FILE"]
