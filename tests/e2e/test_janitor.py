# SPDX-License-Identifier: Apache-2.0
"""Retention over a real store.

Expired messages are removed from log, queues and index, and other messages are found as before.
"""

import time
from pathlib import Path

import pytest

from tests.support.patience import LIMIT_S
from tests.support.reput_up import SEGMENT_SIZE_BYTES, Store, store

pytestmark = pytest.mark.e2e

EXPIRE_AT_ONCE = {"REPUT_JANITOR_RETENTION_HOURS": "0"}
BODY = "x" * 3000


def fill(running: Store, count: int) -> None:
    """Store messages in queue 0 whose keys are their numbers, and wait until they are indexed and synced."""
    rows = "\n".join(f'{{"body": "{BODY}", "keys": ["k{number}"], "queue_id": 0}}' for number in range(count))
    assert running.run("put", "t", "--file", "-", standard_input=rows).code == 0
    end = time.monotonic() + LIMIT_S
    while not all(row["is_indexed"] or row["is_active"] for row in running.json("segments")):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_retention(tmp_path: Path) -> None:
    """A dry run has the decisions of a run.

    After the run old messages are gone everywhere, and new messages are found, also after a restart.
    """
    with store(tmp_path, extra=EXPIRE_AT_ONCE) as running:
        fill(running, 1200)
        before = running.json("segments")
        assert len(before) >= 4
        (dry,) = running.json("janitor", "run", "--dry-run")
        assert [row["reason"] for row in dry["decisions"]] == ["EXPIRED"] * (len(before) - 1) + ["ACTIVE"]
        assert running.json("segments") == before
        (done,) = running.json("janitor", "run", "--yes")
        assert done["deleted_segment_count"] == len(before) - 1
        assert done["freed_bytes"] >= (len(before) - 1) * SEGMENT_SIZE_BYTES
        (left,) = running.json("segments")
        assert left["base_physical_offset"] == before[-1]["base_physical_offset"]
        assert running.run("query", "key", "t", "k0").code == 3
        assert running.run("pull", "t", "--queue", "0", "--offset", "0").code == 3
        assert [row["keys"] for row in running.json("query", "key", "t", "k1199")] == [["k1199"]]
        (history,) = running.json("janitor", "history")
        assert history["deleted_segment_count"] == len(before) - 1
        (again,) = running.json("janitor", "run", "--yes")
        assert again["deleted_segment_count"] == 0
    with store(tmp_path) as running:
        assert running.json("janitor", "history") == [history]
        assert running.json("segments")[0]["base_physical_offset"] == left["base_physical_offset"]
        assert [row["keys"] for row in running.json("query", "key", "t", "k1199")] == [["k1199"]]
        assert running.run("query", "key", "t", "k0").code == 3


def test_what_is_not_indexed_stays(tmp_path: Path) -> None:
    """Segments that the Indexer has not synced are kept, and the reason says so."""
    slow = {**EXPIRE_AT_ONCE, "REPUT_INDEXER_FLUSH_THOROUGH_INTERVAL_MS": "3600000"}
    with store(tmp_path, extra={**slow, "REPUT_INDEXER_FLUSH_INTERVAL_MS": "3600000"}) as running:
        rows = "\n".join(f'{{"body": "{BODY}"}}' for _ in range(800))
        assert running.run("put", "t", "--file", "-", standard_input=rows).code == 0
        (done,) = running.json("janitor", "run", "--yes")
        assert done["deleted_segment_count"] == 0
        assert done["decisions"][0]["reason"] == "NOT_INDEXED"
        assert "the Indexer has synced the log up to" in done["decisions"][0]["explanation"]
