# SPDX-License-Identifier: Apache-2.0
"""Retention by time through real processes: dry runs with other hours, and rules of topics.

The log is filled by a server of this process, whose clock the test sets. `reput up` then opens it with the true clock.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
import reput_client
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput_client import Client

from libs.machine.clock import SystemClock
from libs.runtime.trust.tokens import find_local_token
from tests.support.patience import LIMIT_S
from tests.support.reput_up import SEGMENT_SIZE_BYTES, Store, run_here, store
from tests.support.served_commitlog import served as log_served

pytestmark = pytest.mark.e2e

HOUR_MS = 3_600_000
AGES_H = (100, 50, 10, 0)
"""The ages of the messages."""
BODY = bytes(100_000)
COUNT = 12
"""Messages of each age: somewhat more than a segment."""
TOPICS = "long", "short", "other"


async def _fill(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append messages of each topic and age. Their bodies begin with the age."""
    age_h = 0
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: time.time_ns() // 1_000_000 - age_h * HOUR_MS)
    for age_h in AGES_H:
        async with log_served(data_dir, segment_size_bytes=SEGMENT_SIZE_BYTES) as (_, client):
            for number in range(COUNT):
                body = b"%d|" % age_h + BODY
                message = AppendMessage(topic=TOPICS[number % 3], queue_id=0, body=body)
                await client.append.Append(AppendRequest(messages=[message]))
    monkeypatch.undo()


def _ages(client: Client, topic: str) -> list[int]:
    """The ages of the messages of a topic that readers get."""
    bounds = client.queues.range(topic, 0)
    offset, found = bounds.min_queue_offset, list[int]()
    while offset < bounds.max_queue_offset:
        pulled = client.queues.pull(topic, 0, offset)
        found += [int(message.body.partition(b"|")[0]) for message in pulled.messages]
        offset = pulled.next_queue_offset
    return found


def _all(*ages_h: int) -> list[int]:
    return [age_h for age_h in ages_h for _ in range(COUNT // 3)]


def _eventually(client: Client, topic: str, ages_h: list[int]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while _ages(client, topic) != ages_h:
        assert time.monotonic() < end_s, (_ages(client, topic), ages_h)
        time.sleep(0.05)


def _wait_indexed(running: Store) -> None:
    """Wait until all full segments are indexed and synced: others stay."""
    end_s = time.monotonic() + LIMIT_S
    while not all(row["is_indexed"] or row["is_active"] for row in running.json("segments")):
        assert time.monotonic() < end_s
        time.sleep(0.1)


def _reasons(run: dict[str, Any]) -> set[str]:
    return {decision["reason"] for decision in run["decisions"]}


def _full_segments(running: Store) -> list[dict[str, Any]]:
    """The segments that take no more records: positions of groups become records of the active segment at any time."""
    return [row for row in running.json("segments") if not row["is_active"]]


def _tried(running: Store, *words: str) -> dict[str, Any]:
    """A dry run with other limits, which changes nothing."""
    before = _full_segments(running)
    (run,) = running.json("janitor", "run", "--dry-run", *words)
    assert _full_segments(running) == before
    assert run["is_dry_run"]
    return dict(run)


def _topics(run: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """The expired and the kept messages of each topic with a rule."""
    return {
        one["topic"]: (int(one.get("expired_message_count", 0)), int(one.get("kept_message_count", 0)))
        for one in run["topics"]
    }


def test_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dry runs tell what other hours would delete; a shorter and a longer rule of topics do what they tell.

    A restart and indexes that are built from nothing hide the same messages.
    """
    asyncio.run(_fill(tmp_path, monkeypatch))
    services = "--delivery", "--delivery-port", "0"
    token = find_local_token(())
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets, token=token) as client:
        _wait_indexed(running)
        _eventually(client, "other", _all(*AGES_H))
        _check_trials(running)
        running.json("topics", "update", "long", "--retention-hours", "720")
        running.json("groups", "commit", "slow", "short", "--queue", "0", "--offset", "7")
        _check_refusal(running, client)
        running.json("topics", "update", "short", "--retention-hours", "20", "--force")
        (done,) = running.json("janitor", "run", "--yes")
        assert done["deleted_segment_count"] == 0
        assert "TOPIC_KEPT" in _reasons(done)
        _check_shown(client)
        checked = json.loads(running.run("check", "--json").output)
        assert "2 topics have a retention of their own; segments stay up to 720 h for topic long" in [
            finding["text"] for finding in checked["findings"]
        ]
        running.json("topics", "update", "long", "--retention-hours", "0")
        assert _tried(running)["would_delete_segment_count"] >= 1
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        _check_shown(client)
    assert run_here("index", "rebuild", "--data-dir", str(tmp_path), "--yes", "--json").code == 0
    with store(tmp_path, *services) as running, reput_client.connect(**running.targets) as client:
        _wait_indexed(running)
        _check_shown(client)
        (done,) = running.json("janitor", "run", "--yes")
        assert done["deleted_segment_count"] >= 1
        assert _ages(client, "short") == _all(10, 0)
        assert 100 not in _ages(client, "long")
    assert run_here("verify", str(tmp_path)).code == 0


def _check_trials(running: Store) -> None:
    """The policy has 72 hours. Fewer hours delete more, more hours delete nothing."""
    counts = [
        _tried(running, "--retention-hours", str(hours))["would_delete_segment_count"] for hours in (1000, 72, 24, 1)
    ]
    assert counts[0] == 0
    assert 0 < counts[1] < counts[2] <= counts[3]
    assert _tried(running)["would_delete_segment_count"] == counts[1]
    assert _topics(_tried(running, "--topic", "short", "--retention-hours", "20")) == {"short": (8, 8)}
    held = _tried(running, "--topic", "long", "--retention-hours", "720")
    assert held["would_delete_segment_count"] == 0
    assert "TOPIC_KEPT" in _reasons(held)


def _check_refusal(running: Store, client: Client) -> None:
    """A group that is at offset 7 would miss a message: the rule is refused, and a dry run names the group."""
    refused = running.run("topics", "update", "short", "--retention-hours", "20")
    assert (refused.code, "UNREAD_MESSAGES" in refused.errors, "(slow) has 1 unread message" in refused.errors) == (
        5,
        True,
        True,
    ), refused
    assert running.json("topics", "get", "short")[0]["retention_hours"] == 0
    assert client.admin.unread_that_expire("short", retention_hours=20) == {"slow": 1}
    assert client.admin.unread_that_expire("short", retention_hours=60) == {}
    assert running.json("topics", "update", "short", "--retention-hours", "60")[0]["retention_hours"] == 60
    (missing,) = _tried(running, "--topic", "short", "--retention-hours", "20")["consumers"]
    assert (missing["group"], missing["topic"], int(missing["queue_offset"]), int(missing["min_queue_offset"])) == (
        "slow",
        "short",
        7,
        8,
    )
    assert _ages(client, "long") == _all(*AGES_H)


def _check_shown(client: Client) -> None:
    """The messages of each topic after its rule."""
    _eventually(client, "short", _all(10, 0))
    assert client.queues.range("short", 0).min_queue_offset == 8
    for topic in ("long", "other"):
        assert _ages(client, topic) == _all(*AGES_H)
