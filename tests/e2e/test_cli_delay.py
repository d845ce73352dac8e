# SPDX-License-Identifier: Apache-2.0
"""`reput put` with delays of all kinds, and `reput delay`, against a running store with a Delivery, and the client."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from reput_client import FailedPreconditionError, NotFoundError, connect

from libs.formats.state.system_topics import LEVELS_GROUP
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

TOPIC = "reminders"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store for all tests."""
    with store(tmp_path_factory.mktemp("store"), "--delivery", "--delivery-port", "0") as running:
        yield running


def waiting(running: Store, count: int, *arguments: str) -> list[dict[str, Any]]:
    """Return the rows of `reput delay list`, once they are this many."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        shown = running.run("delay", "list", *arguments, "--json")
        found = running.json("delay", "list", *arguments) if shown.code == 0 else []
        if len(found) == count:
            return found
        time.sleep(0.05)
    raise AssertionError(f"there are not {count} messages")


def pulled(running: Store, topic: str, count: int) -> list[dict[str, Any]]:
    """Return the messages of queue 0 of a topic, once they are this many."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        result = running.run("pull", topic, "--queue", "0", "--json")
        if result.code == 0 and len(result.rows) >= count:
            return result.rows
        time.sleep(0.05)
    raise AssertionError(f"{topic} has not {count} messages")


def test_put_list_cancel(running: Store) -> None:
    """Times are given as people type them, a cancelled message is not listed, and a second cancel is no error."""
    assert running.run("put", TOPIC, "tomorrow", "--deliver-at", "tomorrow 09:00", "--key", "k").code == 0
    assert running.run("put", TOPIC, "soon", "--delay", "1h30m").code == 0
    rows = waiting(running, 2)
    assert sorted(row["message"]["body"] for row in rows) == ["soon", "tomorrow"]
    (by_key,) = waiting(running, 1, "--key", "k")
    due = datetime.fromtimestamp(by_key["delivery_time_ms"] / 1000).astimezone()
    assert (due.hour, due.minute, due.date()) == (9, 0, (datetime.now().astimezone() + timedelta(days=1)).date())
    (sooner,) = [row for row in rows if row["message"]["body"] == "soon"]
    assert running.run("delay", "list", "--start", "+1h", "--end", "+2h").code == 0
    assert running.run("delay", "list", "--end", "+1h").code == 3
    for _ in range(2):
        assert running.run("delay", "cancel", TOPIC, sooner["message_id"]).code == 0
    assert waiting(running, 1, TOPIC)[0]["message_id"] == by_key["message_id"]
    assert running.run("delay", "cancel", TOPIC, "nobody").code == 3
    assert running.run("put", TOPIC, "x", "--delay", "soon").code == 2
    assert running.run("put", TOPIC, "x", "--delay", "41d").code != 0


def test_put_delayed(running: Store, tmp_path: Path) -> None:
    """Messages with a delay level arrive in their topic a second later, from the command line and from a file."""
    (stored,) = running.json("put", "late", "one", "--queue", "0", "--delay-level", "1")
    file = tmp_path / "messages"
    file.write_text('{"body": "two", "delay_level": 1}\n')
    running.json("put", "late", "--queue", "0", "--file", str(file))
    assert stored["queue_id"] == 0
    messages = pulled(running, "late", 2)
    assert [message["body"] for message in messages] == ["one", "two"]
    assert messages[0]["store_time_ms"] >= stored["store_time_ms"] + 1_000


def test_status_shows_messages_that_wait(running: Store) -> None:
    """`reput status` has a line about the messages of all delay levels, and JSON has each level."""
    running.json("put", "much-later", "one", "--delay-level", "18")
    end_s = time.monotonic() + LIMIT_S
    levels: list[dict[str, Any]] = []
    while not levels or not levels[17]["waiting_count"]:
        assert time.monotonic() < end_s
        levels = running.run("status", "--json").rows[0].get("delay_levels", [])
    assert levels[17] == {"level": 18, "delay_s": 7200.0, "waiting_count": 1, "lateness_s": 0.0, "last_error": ""}
    assert [level["level"] for level in levels] == list(range(1, 19))
    assert "delayed    1 delayed message waits" in running.run("status").output.splitlines()


def test_the_groups_of_the_store_are_not_listed(running: Store) -> None:
    """The progress of delay levels and of the journal is stored as groups' offsets, which only their names show."""
    end_s = time.monotonic() + LIMIT_S
    while running.run("groups", "show", LEVELS_GROUP).code == 3:  # Delivery commits it every few seconds
        assert time.monotonic() < end_s
        time.sleep(0.1)
    shown = running.json("groups", "show", LEVELS_GROUP)[0]
    assert {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 0, "queue_offset": 2, "lag": 0} in shown["offsets"]
    assert (shown["is_shared"], running.json("groups", "list")) == (False, [])


def test_the_client(running: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is sent with a delivery time, and is delivered.

    The id in the answer of the send cancels it before its time.
    """
    for name, value in running.client_environment().items():
        monkeypatch.setenv(name, value)
    topic = "client"
    with connect() as client:
        with client.producer() as producer:
            later = producer.send(topic, b"later", deliver_at=datetime.now(UTC) + timedelta(hours=1)).result()
            soon = producer.send(topic, b"soon", delay_s=0.2, queue_id=0).result()
        assert client.delayed.cancel(topic, later.unique_id).message.body == b"later"
        consumer = client.consumer(topic, start="earliest")
        found: list[bytes] = []
        end_s = time.monotonic() + LIMIT_S
        while b"soon" not in found and time.monotonic() < end_s:
            found += [message.body for message in consumer.poll_many(timeout_s=1)]
        assert found == [b"soon"]
        with pytest.raises(FailedPreconditionError, match="too late"):
            client.delayed.cancel(topic, soon.unique_id)
        with pytest.raises(NotFoundError):
            client.delayed.cancel(topic, "nobody")
