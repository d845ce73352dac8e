# SPDX-License-Identifier: Apache-2.0
"""`reput config`: a file is checked for all services, and a running service tells its settings."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from cli.commands.config import METRICS_PORTS
from libs.runtime.watch.metrics_server import MetricsServer
from tests.support.reput_up import run_here

FOUND = {
    "version": "0",
    "file": "",
    "waiting": ["port"],
    "settings": [
        {"setting": "retention_hours", "value": "5", "source": "default", "is_live": True},
        {"setting": "of_a_newer_version", "value": "1", "source": "default", "is_live": False},
    ],
}


@pytest.fixture
def url() -> Iterator[str]:
    """A service that tells FOUND."""
    server = MetricsServer("127.0.0.1", 0, CollectorRegistry(), settings=lambda: FOUND)
    yield f"http://127.0.0.1:{server.server_port}"
    server.close()


def test_live_settings(url: str) -> None:
    """The settings of a running service have the importance that this version knows, and --basic chooses by it."""
    result = run_here("config", "show", "janitor", "--live", "--metrics", url, "--json")
    rows = {row["setting"]: row for row in result.rows}
    assert rows["retention_hours"]["value"] == "5"
    assert rows["retention_hours"]["importance"] == "basic"
    assert rows["of_a_newer_version"]["value"] == "1"
    result = run_here("config", "show", "janitor", "--live", "--basic", "--metrics", url, "--json")
    assert [row["setting"] for row in result.rows] == ["retention_hours"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--live", "--metrics", "http://127.0.0.1:9"), 4, "Connection refused"),
        (("--live", "--metrics", "127.0.0.1:9"), 2, "must begin with http:// or https://"),
        (("--live", "--metrics", "file:///etc/passwd"), 2, "must begin with http:// or https://"),
        (("--live", "--config", "x.toml"), 2, "has read its own file"),
        (("--metrics", "http://127.0.0.1:9"), 2, "it needs --live"),
    ],
)
def test_wrong_questions(arguments: tuple[str, ...], code: int, said: str) -> None:
    """A wrong question has a line that says why."""
    result = run_here("config", "show", "janitor", *arguments)
    assert result.code == code
    assert said in result.errors


def test_a_file_of_all_services(tmp_path: Path) -> None:
    """Each service has a line, and each wrong service is named: setting, value, limit."""
    file = tmp_path / "reput.toml"
    file.write_text("[commitlog]\nport = 1\n[janitor]\nretention_hours = 5\n")
    result = run_here("config", "validate", str(file), "--json")
    assert result.code == 0
    assert [row["service"] for row in result.rows] == list(METRICS_PORTS)
    file.write_text("[commitlog]\nport = 70000\n[janitor]\nretention_hour = 5\n[indexer]\nport = 2\n")
    result = run_here("config", "validate", str(file), "--json")
    assert result.code == 2
    texts = {row["service"]: row["text"] for row in result.rows if not row["is_valid"]}
    assert "port is 70000" in texts["commitlog"]
    assert "from 0 to 65535" in texts["commitlog"]
    assert "did you mean retention_hours" in texts["janitor"]
    assert list(texts) == ["commitlog", "janitor"]
    assert "wrong settings of commitlog, janitor" in result.errors
    variable = {"REPUT_DELIVERY_PORT": "x"}
    file.write_text("")
    assert json.loads(run_here("config", "validate", str(file), "--json", extra=variable).output.splitlines()[3]) == {
        "service": "delivery",
        "is_valid": False,
        "text": "port is 'x' (environment REPUT_DELIVERY_PORT), but must be an integer from 0 to 65535",
    }
    assert run_here("config", "validate", str(tmp_path / "none.toml")).code == 2


def test_files_that_settings_name_are_checked(tmp_path: Path) -> None:
    """A wrong rights file and an empty file of tokens are wrong settings; a file that is not here is a warning."""
    file, rights, tokens = tmp_path / "reput.toml", tmp_path / "rights.toml", tmp_path / "tokens"
    file.write_text(
        f"[commitlog]\nrights_file = '{rights}'\n[janitor]\nservice_token_file = '{tokens}'\n"
        f"[gateway]\naccess_keys_file = '{tmp_path / 'keys'}'\naudit_file = '{tmp_path / 'audit'}'\n"
    )
    missing = run_here("config", "validate", str(file), "--json")
    assert missing.code == 0
    for text in (f"commitlog: rights_file: {rights}", f"gateway: access_keys_file: {tmp_path / 'keys'}"):
        assert text in " ".join(missing.errors.split())
    assert "audit_file" not in missing.errors
    rights.write_text(
        "[[subjects]]\nname = 'shop'\n[[rules]]\nsubjects = ['shop']\nallow = ['produced']\ntopics = ['*']\n"
    )
    tokens.write_text("\n")
    result = run_here("config", "validate", str(file), "--json")
    texts = {row["service"]: row["text"] for row in result.rows if not row["is_valid"]}
    assert result.code == 2
    assert list(texts) == ["commitlog", "janitor"]
    assert "line 5: rules[0].allow is 'produced'" in texts["commitlog"]
    assert "the file is empty" in texts["janitor"]
