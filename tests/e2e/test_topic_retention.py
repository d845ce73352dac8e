# SPDX-License-Identifier: Apache-2.0
"""Retention by topic through real processes: by size, also after a restart and a rebuild, and queues that are added."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import reput_client
from reput_client import Client

from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, run_here, store

pytestmark = pytest.mark.e2e

SERVICES = "--delivery", "--delivery-port", "0"
BODY_SIZE, SENT_COUNT, LIMIT_BYTES = 1000, 40, 12_000


def _send(client: Client, topic: str, count: int, *, queues: int) -> list[bytes]:
    bodies = [f"{topic}{number}".encode().ljust(BODY_SIZE) for number in range(count)]
    with client.producer() as producer:
        sent = [producer.send(topic, body, queue_id=number % queues, keys=["k"]) for number, body in enumerate(bodies)]
    client.query.wait_indexed(sent[-1].result())
    return bodies


def _pulled(client: Client, topic: str) -> list[bytes]:
    """The messages of all queues."""
    found: list[bytes] = []
    for queue in client.queues.list(topic):
        found += [one.body for one in client.queues.pull(topic, queue.queue_id, queue.min_queue_offset).messages]
    return sorted(found)


def _eventually(client: Client, topic: str, bodies: list[bytes]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while _pulled(client, topic) != sorted(bodies):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def _both_ways(client: Client, topic: str) -> tuple[list[bytes], list[bytes]]:
    return _pulled(client, topic), sorted(message.body for message in client.query.by_key(topic, "k"))


def test_a_topic_has_a_size_of_its_own(tmp_path: Path) -> None:
    """The newest messages that fit stay, in order over all queues; other topics keep all of theirs.

    This is true after a restart of all services and after a rebuild; a dry run changes nothing.
    """
    with store(tmp_path, *SERVICES) as running, reput_client.connect(**running.targets) as client:
        running.json("topics", "create", "bound", "--queues", "2")
        running.json("topics", "create", "free", "--queues", "2")
        bodies, free = _send(client, "bound", SENT_COUNT, queues=2), _send(client, "free", 4, queues=2)
        size_bytes = str(LIMIT_BYTES)
        (tried,) = running.json("janitor", "run", "--dry-run", "--topic", "bound", "--retention-bytes", size_bytes)
        (shown,) = tried["topics"]
        expired = int(shown["expired_message_count"])
        assert SENT_COUNT - LIMIT_BYTES // BODY_SIZE <= expired < SENT_COUNT
        assert int(shown["kept_bytes"]) <= LIMIT_BYTES
        assert _pulled(client, "bound") == sorted(bodies)
        (topic,) = running.json("topics", "update", "bound", "--retention-bytes", size_bytes)
        assert topic["retention_bytes"] == LIMIT_BYTES
        running.json("janitor", "run", "--yes")
        kept = sorted(bodies[expired:])
        _eventually(client, "bound", kept)
        assert _both_ways(client, "bound") == (kept, kept)
        assert _both_ways(client, "free") == (sorted(free), sorted(free))
        (status,) = running.json("janitor", "status")
        assert [one["topic"] for one in status["topics"]] == ["bound"]
        more = _send(client, "bound", 2, queues=2)
        running.json("janitor", "run", "--yes")
        _eventually(client, "bound", bodies[expired + 2 :] + more)
        kept = _pulled(client, "bound")
    with store(tmp_path, *SERVICES) as running, reput_client.connect(**running.targets) as client:
        assert running.json("topics", "get", "bound")[0]["retention_bytes"] == LIMIT_BYTES
        assert _both_ways(client, "bound") == (kept, kept)
        assert running.json("index", "rebuild", "--yes")
        assert _both_ways(client, "bound") == (kept, kept)
        running.json("topics", "update", "bound", "--retention-bytes", "0", "--retention-hours", "1")
        running.json("janitor", "run", "--yes")
        assert _pulled(client, "bound") == kept
    assert run_here("verify", str(tmp_path)).code == 0


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A common store."""
    with store(tmp_path_factory.mktemp("store"), *SERVICES) as running:
        yield running


def test_queues_change_in_a_safe_order(running: Store) -> None:
    """One command sets both counts; fewer queues are refused while a group has unread messages in the others."""
    with reput_client.connect(**running.targets) as client:
        running.json("topics", "create", "wide", "--queues", "2")
        (topic,) = running.json("topics", "update", "wide", "--queues", "4")
        assert (topic["read_queue_count"], topic["write_queue_count"]) == (4, 4)
        bodies = _send(client, "wide", 4, queues=4)
        running.json("groups", "commit", "slow", "wide", "--queue", "3", "--offset", "0")
        refused = running.run("topics", "update", "wide", "--queues", "2")
        assert (refused.code, "UNREAD_MESSAGES" in refused.errors, "slow" in refused.errors) == (5, True, True)
        assert running.json("topics", "get", "wide")[0]["read_queue_count"] == 4
        (topic,) = running.json("topics", "update", "wide", "--queues", "2", "--force")
        assert (topic["read_queue_count"], topic["write_queue_count"]) == (2, 2)
        assert _pulled(client, "wide") == sorted(bodies)


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "update", "wide", "--queues", "2", "--write-queues", "2"),
        ("topics", "update", "wide", "--force"),
        ("topics", "update", "wide", "--retention-hours", "-1"),
        ("topics", "create", "other", "--retention-hours", "876001"),
        ("janitor", "run", "--yes", "--retention-hours", "24"),
    ],
)
def test_options_that_are_refused(running: Store, words: tuple[str, ...]) -> None:
    """Limits out of range, and options that do not go together, end with exit code 2."""
    assert running.run(*words).code == 2
