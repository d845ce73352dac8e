# SPDX-License-Identifier: Apache-2.0
"""A reload takes all changed live settings or none, says what it did, and never raises."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from libs.importance import Advanced, Basic
from libs.runtime.config import Loaded, load
from libs.runtime.process import Shell
from libs.runtime.reload import Reload
from libs.runtime.settings import TelemetryConfig
from libs.runtime.watch.telemetry import Telemetry


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """An engine's settings."""

    low_percent: Basic[Annotated[int, Meta(ge=1, le=100)]] = 10
    """Low."""

    high_percent: Basic[Annotated[int, Meta(ge=1, le=100)]] = 20
    """High."""

    size: Advanced[int] = 1
    """A setting for a start."""

    api_token: Advanced[str] = ""
    """A secret."""

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if self.low_percent > self.high_percent:
            raise ValueError(
                f"low_percent is {self.low_percent}, high_percent is {self.high_percent}: must not descend"
            )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a process."""

    engine: Engine = field(default_factory=Engine)
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=1))


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


class Site:
    """A file, and a service that began with it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "reput.toml"
        self.taken: list[Settings] = []
        self.write("")
        live = ("low_percent", "high_percent", "api_token")
        self.reload = Reload(self.read(), self.read, live, self.taken.append, now_s=lambda: 5.0)

    def read(self) -> Loaded[Settings]:
        """Read the file and the environment of the start."""
        environment = {"REPUT_COMMITLOG_HIGH_PERCENT": "50"}
        return load(Settings, section="commitlog", file=self.file, environment=environment, flags={})

    def write(self, text: str) -> None:
        """Write the service's table."""
        self.file.write_text(f"[commitlog]\n{text}\n")


@pytest.fixture
def site(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Site:
    """A service that runs with its defaults."""
    caplog.set_level(logging.INFO)
    return Site(tmp_path)


def test_changes_are_taken_and_named(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Live settings change, others are named, and a setting goes back when its line is removed."""
    site.write("low_percent = 30\nsize = 7\nlog_level = 'error'")
    site.reload.run()
    assert [settings.engine for settings in site.taken] == [Engine(low_percent=30, high_percent=50)]
    assert caplog.messages[-1:] == []
    assert logging.getLogger().level == logging.ERROR
    site.write("low_percent = 31\nsize = 7")
    site.reload.run()
    line = "SIGHUP: low_percent is 31, was 30; log_level is info, was error; changed, and taken at the next start: size"
    assert caplog.messages == [line]
    assert site.reload.waiting == ("size",)
    site.write("")
    site.reload.run()
    assert site.taken[-1].engine == Engine(high_percent=50)
    assert site.reload.waiting == ()
    statistics = site.reload.statistics()
    assert (statistics.taken_total, statistics.refused_total, statistics.is_last_taken) == (3, 0, True)
    assert statistics.last_time_ms == 5000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "low_percent = 0",
            "low_percent is 0 (",
        ),
        ("low_percent = 'many'", "but must be an integer from 1 to 100"),
        ("low_percent = 60", "low_percent is 60, high_percent is 50: must not descend"),
        ("high_percnt = 60", "did you mean high_percent"),
        ("size = 'x'\nlow_percent = 11", "size is 'x'"),
        ("low_percent =", "not a TOML file"),
        ("api_token = 5", "api_token is ********"),
    ],
)
def test_a_wrong_value_keeps_all_old_values(site: Site, caplog: pytest.LogCaptureFixture, text: str, said: str) -> None:
    """A wrong value refuses the whole reload, with one warning that names setting, value and limit."""
    site.write(f"log_level = 'error'\n{text}")
    site.reload.run()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("SIGHUP: no setting is changed: ")
    assert said in record.getMessage()
    assert (site.taken, site.reload.loaded.value.engine) == ([], Engine(high_percent=50))
    assert logging.getLogger().level == logging.INFO
    assert site.reload.statistics().is_last_taken is False
    site.write("low_percent = 12")
    site.reload.run()
    assert site.taken[-1].engine.low_percent == 12
    assert (site.reload.statistics().refused_total, site.reload.statistics().is_last_taken) == (1, True)


def test_a_file_that_is_gone(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is gone changes nothing: a reload is no way to lose settings."""
    site.file.unlink()
    site.reload.run()
    assert "No such file" in caplog.messages[0]
    assert site.taken == []


def test_values_that_contradict_only_together(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Live settings that fit a new setting for a start, but not the old setting, are refused."""
    site.reload = Reload(site.read(), site.read, ("low_percent",), site.taken.append)

    def read() -> Loaded[Settings]:
        return load(Settings, section="commitlog", file=site.file, environment={}, flags={})

    site.reload = Reload(read(), read, ("low_percent",), site.taken.append)
    site.write("low_percent = 60\nhigh_percent = 70")
    site.reload.run()
    assert "low_percent is 60, high_percent is 20" in caplog.messages[0]
    assert site.taken == []


def test_secrets_stay_secret(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the log nor the document of the settings has a secret."""
    site.write("api_token = 'hunter2'")
    site.reload.run()
    assert site.taken[-1].engine.api_token == "hunter2"
    assert "hunter2" not in f"{caplog.messages}{site.reload.document()}"
    assert "api_token is ********" in caplog.messages[0]


CHANGED: dict[str, dict[str, Any]] = {
    "commitlog": {
        "auto_create_topics": False,
        "default_queue_count": 3,
        "topic_count_max": 11,
        "queue_count_max": 12,
        "topic_queue_count_max": 13,
        "disk_full_percent": 99,
        "disk_open_percent": 51,
        "disk_report_timeout_ms": 1234,
    },
    "indexer": {"long_poll_count_max": 11, "scan_count_max": 12, "stream_count_max": 13},
    "janitor": {
        "retention_hours": 5,
        "retention_bytes": 6,
        "disk_max_used_percent": 71,
        "disk_forcible_percent": 81,
        "disk_full_percent": 91,
        "disk_forced": False,
        "delete_when": "07",
        "delete_batch_count_max": 8,
        "delete_interval_ms": 9,
        "retry_interval_ms": 10,
    },
    "delivery": {
        "open_count_max": 11,
        "group_queue_count_max": 12,
        "delayed_count_max": 13,
        "delayed_roll_hours": 14,
        "transaction_check_count_max": 17,
        "transaction_count_max": 16,
    },
    "gateway": {
        "auto_create_topics": True,
        "client_stream_count_max": 11,
        "inflated_size_bytes_max": 12,
        "renewal_count_max": 13,
    },
}
"""Another value for each live setting of each service."""


def held(service: Any, name: str) -> dict[str, Any]:
    """The values that the engine of a service reads, by setting."""
    holders = {
        "commitlog": lambda: service.commit_log.config,
        "delivery": lambda: service.config,
        "janitor": lambda: service.loop.policy,
    }
    if name in holders:
        return {key: getattr(holders[name](), key) for key in service.live}
    if name == "indexer":
        engine = service.indexer
        return {
            "long_poll_count_max": engine.follow.polls.count_max,
            "scan_count_max": engine.answers.scanner.count_max,
            "stream_count_max": service.queues.stream_count_max,
        }
    return {
        "auto_create_topics": service.log.creates_topics,
        "client_stream_count_max": service.telemetry.stream_count_max,
        "inflated_size_bytes_max": service.bodies.size_bytes_max,
        "renewal_count_max": service.renewals.count_max,
    }


@pytest.mark.parametrize("name", CHANGED)
async def test_each_live_setting_of_each_service(name: str, tmp_path: Path) -> None:
    """The engine of each service holds the new value of each live setting, and of no other."""
    bootstrap = import_module(f"services.{name}.bootstrap")
    flags: dict[str, object] = {"data_dir": str(tmp_path)} if name in ("commitlog", "indexer", "janitor") else {}
    first = load(bootstrap.Settings, section=name, environment={}, flags=flags)
    service = bootstrap.Service(first.value, Shell(Telemetry.off(name)))
    assert set(CHANGED[name]) == set(service.live)
    before = held(service, name)
    assert all(before[key] != value for key, value in CHANGED[name].items()), before
    again = load(bootstrap.Settings, section=name, environment={}, flags=flags | CHANGED[name])
    Reload(first, lambda: again, service.live, service.reload).run()
    assert held(service, name) == CHANGED[name]
