# SPDX-License-Identifier: Apache-2.0
"""The command `reput-outbox`: help, status, retry, discard, and errors with a sentence that helps."""

import json
from pathlib import Path

import pytest
from pytest_reput import MemoryReput
from reput_outbox import RelaySettings
from reput_outbox.command import main, make_parser
from reput_outbox.core.rows import State
from sqlalchemy import create_engine

from clients.outbox.tests.shop import Shop, bodies, until


def test_help_names_each_command_and_setting(capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting of the relay is an option."""
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("relay", "status", "retry", "discard", "REPUT_CLIENT_"))
    with pytest.raises(SystemExit):
        main(["relay", "--help"])
    shown = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in shown for name in RelaySettings.__dataclass_fields__)
    assert make_parser().parse_args(["relay", "--batch-rows", "7"]).batch_rows == 7


@pytest.mark.reput(commitlog={"auto_create_topics": False})
def test_a_refused_row_is_shown_retried_and_discarded(
    reput: MemoryReput, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status` shows the row with its reason; `retry` sends it again; `discard` deletes it."""
    url, topic, missing = f"sqlite:///{tmp_path / 'shop.db'}", reput.topic(), reput.name("missing")
    shop = Shop(create_engine(url))
    settings = RelaySettings(poll_s=0.02, retry_s=1e6)
    with shop.relay(reput, settings):
        for name in (missing, f"{missing}2", topic):
            shop.buy(name, "anna", 1)
        until(lambda: shop.count(State.REFUSED) == 2 and shop.count(State.SENT) == 1)
        assert main(["status", "--database", url]) == 0
        shown = capsys.readouterr().out
        assert "2 refused" in shown
        assert f"to {missing}, key 'anna', 1 attempts: TOPIC_NOT_FOUND" in shown
        assert main(["status", "--database", url, "--json"]) == 0
        first, second = json.loads(capsys.readouterr().out)["refused"]
        assert main(["status", "--database", url, "--prometheus"]) == 0
        assert 'reput_outbox_rows{outbox="reput_outbox",state="refused"} 2' in capsys.readouterr().out
        reput.client().topics.create(missing, read_queue_count=1, write_queue_count=1)
        assert main(["retry", "--database", url, str(first["id"])]) == 0
        until(lambda: bodies(reput, missing) == ["anna 1"])
        assert main(["discard", "--database", url, str(second["id"])]) == 0
        until(lambda: shop.count(State.SENT) == 2 and shop.is_sent())
        assert main(["discard", "--database", url, str(second["id"])]) == 1
        assert f"row {second['id']} is not refused" in capsys.readouterr().err
    shop.engine.dispose()


def test_a_stopped_relay_shows(reput: MemoryReput, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a relay the age of the oldest row grows, also of rows that a dead relay had assigned; it falls later."""
    url, topic = f"sqlite:///{tmp_path / 'shop.db'}", reput.topic()
    shop = Shop(create_engine(url))

    def metrics() -> dict[str, float]:
        assert main(["status", "--database", url, "--prometheus"]) == 0
        lines = [line.rsplit(" ", 1) for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
        return {name.replace('{outbox="reput_outbox"}', ""): float(value) for name, value in lines}

    assert metrics()["reput_outbox_oldest_pending_seconds"] == 0
    assert shop.database.transact(lambda table: table.take("dead", table.lane()))
    shop.buy(topic, "anna", 1)
    assert shop.database.transact(lambda table: table.claim("dead", 10, 1000)).rows
    shown = metrics()
    assert shown['reput_outbox_rows{outbox="reput_outbox",state="assigned"}'] == 1
    assert shown["reput_outbox_last_sent_time_seconds"] == 0
    until(lambda: metrics()["reput_outbox_oldest_pending_seconds"] > 0.3)
    with shop.relay(reput, RelaySettings(poll_s=0.02, lease_s=0.2)):
        until(shop.is_sent)
    shown = metrics()
    assert shown["reput_outbox_oldest_pending_seconds"] == 0
    assert shown["reput_outbox_last_sent_time_seconds"] == pytest.approx(
        shown["reput_outbox_status_time_seconds"], abs=60
    )
    assert main(["status", "--database", url]) == 0
    assert "sent     last" in capsys.readouterr().out
    shop.engine.dispose()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["status"], "no database: give --database, REPUT_OUTBOX_DATABASE, or --django"),
        (["status", "--database", "nonsense"], "the database's URL"),
        (["status", "--database", "sqlite:////no/such/folder/shop.db"], "unable to open database file"),
        (["relay", "--database", "sqlite://", "--lease-s", "0"], "lease_s is 0.0: expected more than 0"),
    ],
)
def test_an_error_is_a_sentence(arguments: list[str], part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong argument or an absent database ends the command with code 1 and a single line."""
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert part in line
