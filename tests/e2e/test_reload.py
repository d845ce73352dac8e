# SPDX-License-Identifier: Apache-2.0
"""SIGHUP at each service as a process: live settings change, a wrong value keeps all, and nothing ends."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.patience import LIMIT_S
from tests.support.reput_up import environment, run_here
from tests.support.surroundings import free_port

pytestmark = pytest.mark.e2e

SECRET = "a-planted-secret"
CASES = {
    "commitlog": ("auto_create_topics", "false", "message_size_bytes_max", "1000"),
    "indexer": ("scan_count_max", "3", "flush_interval_ms", "1001"),
    "janitor": ("retention_hours", "5", "check_interval_ms", "10001"),
    "delivery": ("open_count_max", "7", "receive_count_max", "8"),
    "gateway": ("auto_create_topics", "true", "client_stream_count_max", "9"),
}
"""A live setting, its value, and another setting with its value: for a start, but at the gateway."""


class Running:
    """A service as a process, its file of settings, and its log."""

    def __init__(self, service: str, folder: Path) -> None:
        self.service, self.folder = service, folder
        self.file, self.log = folder / "reput.toml", folder / "log"
        self.port, self.metrics = free_port(), free_port()
        self.write("")

    def write(self, text: str) -> None:
        """Write the service's table."""
        data = f'data_dir = "{self.folder}/data"\n' if self.service in ("commitlog", "indexer", "janitor") else ""
        ports = f"port = {self.port}\nmetrics_port = {self.metrics}\n"
        self.file.write_text(f"[{self.service}]\n{data}{ports}{text}\n")

    def lines(self) -> list[dict[str, object]]:
        """The log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]

    def until(self, begin: str, count: int = 1) -> dict[str, object]:
        """Wait for so many lines with this begin, and return the last."""
        end = time.monotonic() + LIMIT_S
        while True:
            found = [line for line in self.lines() if str(line.get("event", "")).startswith(begin)]
            if len(found) >= count:
                return found[-1]
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def live(self) -> dict[str, object]:
        """The settings in force, as `reput config show --live` prints them."""
        url = f"http://127.0.0.1:{self.metrics}"
        result = run_here("config", "show", self.service, "--live", "--metrics", url, "--json")
        assert result.code == 0, result
        return {row["setting"]: row["value"] for row in result.rows}


@contextmanager
def running(service: str, folder: Path) -> Iterator[tuple[Running, "subprocess.Popen[bytes]"]]:
    """A service that serves within the block."""
    made = Running(service, folder)
    command = [sys.executable, "-m", f"services.{service}", "--config", str(made.file)]
    with made.log.open("wb") as log, subprocess.Popen(command, stderr=log, env=environment()) as process:
        try:
            made.until("serving")
            yield made, process
        finally:
            process.terminate()
            process.wait(LIMIT_S)


@pytest.mark.parametrize("service", CASES)
def test_a_reload(service: str, tmp_path: Path) -> None:
    """A change, a wrong value, and the way back, at one process that goes on."""
    setting, value, other, other_value = CASES[service]
    with running(service, tmp_path) as (it, process):
        before = it.live()
        told = it.until("serving")
        assert told["version"]
        assert (told["config"], told["listen_host"]) == (str(it.file), "127.0.0.1")
        it.write(f"{setting} = {value}\n{other} = {other_value}\nlog_level = 'debug'")
        process.send_signal(signal.SIGHUP)
        line = it.until("SIGHUP: ")
        assert line["level"] == "info"
        assert f"{setting} is {json.loads(value)}" in str(line["event"])
        changed = it.live()
        assert str(changed[setting]).lower() == value
        assert changed["log_level"] == "debug"
        if service != "gateway":
            assert f"taken at the next start: {other}" in str(line["event"])
            assert changed[other] == before[other]
        it.write(f"{setting} = 'wrong'\nlog_level = 'error'")
        process.send_signal(signal.SIGHUP)
        line = it.until("SIGHUP: no setting is changed: ")
        assert line["level"] == "warning"
        assert f"{setting} is 'wrong' ({it.file}: [{service}] {setting}), but must be " in str(line["event"])
        assert it.live() == changed
        with urlopen(f"http://127.0.0.1:{it.metrics}/metrics") as answer:
            page = answer.read().decode()
        assert f"reput_{service}_reload_is_last_taken 0.0" in page
        assert f"reput_{service}_reload_refused_total 1.0" in page
        it.write("")
        process.send_signal(signal.SIGHUP)
        it.until("SIGHUP: ", 3)
        assert it.live() == before
        assert process.poll() is None
    assert process.returncode == 0


def test_a_live_limit_of_the_log_takes_effect(tmp_path: Path) -> None:
    """A topic is made for a message, and after a reload no more."""
    with running("commitlog", tmp_path) as (it, process):
        extra = {"REPUT_CLIENT_COMMITLOG_TARGET": f"127.0.0.1:{it.port}"}
        assert run_here("put", "first", "x", extra=extra).code == 0
        it.write("auto_create_topics = false")
        os.kill(process.pid, signal.SIGHUP)
        it.until("SIGHUP: auto_create_topics is False, was True")
        result = run_here("put", "second", "x", extra=extra)
        assert (result.code, "TOPIC_NOT_FOUND" in result.errors) == (3, True), result
        assert run_here("put", "first", "x", extra=extra).code == 0


def test_a_bundle_of_a_service_with_a_token(tmp_path: Path) -> None:
    """A bundle has the pages and the log of a running service, and not the token that its settings' file holds."""
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    token.chmod(0o600)
    with running("janitor", tmp_path) as (it, process):
        it.write(f'token_file = "{token}"')
        process.send_signal(signal.SIGHUP)
        it.until("SIGHUP: ")
    with it.log.open("a") as log:
        log.write(f"a line with {SECRET} in it\n")
    it.log = tmp_path / "second"
    command = [sys.executable, "-m", "services.janitor", "--config", str(it.file)]
    with it.log.open("wb") as errors, subprocess.Popen(command, stderr=errors, env=environment()) as process:
        try:
            it.until("serving")
            file = tmp_path / "b.tar.gz"
            result = run_here(
                "debug", "bundle", "--output", str(file), "--data-dir", str(tmp_path / "data"),
                "--log", str(tmp_path / "log"), "--metrics", f"janitor=http://127.0.0.1:{it.metrics}", "--json",
            )  # fmt: skip
            assert result.code == 0, result
        finally:
            process.terminate()
            process.wait(LIMIT_S)
    with tarfile.open(file) as archive:
        entries = {one.name.partition("/")[2]: archive.extractfile(one) for one in archive.getmembers()}
        texts = {name: entry.read().decode() for name, entry in entries.items() if entry is not None}
    assert not [name for name, text in texts.items() if SECRET in text]
    assert "a line with ******** in it" in texts["logs/1-log"]
    assert "reput_janitor_reload_is_last_taken" in texts["janitor/metrics.txt"]
    found = json.loads(texts["janitor/settings.json"])["settings"]
    assert [row["value"] for row in found if row["setting"] == "token_file"] == [str(token)]
