# SPDX-License-Identifier: Apache-2.0
"""Backups in end-to-end tests: filling a store, making and restoring backups, and the contents of a store."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, run_here


def fill(running: Store, number: int, count: int = 900) -> None:
    """Put messages of some 1.2 KB, more than a segment of them, and have a group read some."""
    lines = "".join(
        json.dumps({"body": f"{number}-{at}-" + "x" * 1_100, "keys": [f"k{number}-{at}"]}) + "\n" for at in range(count)
    )
    assert running.run("put", "orders", "--file", "-", standard_input=lines).code == 0
    end_s = time.monotonic() + LIMIT_S
    offset = number * 100 + 50
    while running.run("groups", "commit", "nightly", "orders", "--queue", "0", "--offset", str(offset)).code:
        assert time.monotonic() < end_s
        offset -= offset // 8  # the queue may have fewer messages, or the Indexer be behind


def created(running: Store, place: Path | str) -> dict[str, object]:
    """Make a backup. Returns the printed row."""
    (row,) = running.json("backup", "create", "--to", str(place), "--rate-mib-s", "0")
    return dict(row)


def restored(
    place: Path | str, data_dir: Path, *options: str, extra: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Restore a backup. Returns the printed row."""
    result = run_here("restore", "--from", str(place), "--data-dir", str(data_dir), *options, "--json", extra=extra)
    assert result.code == 0, result
    return dict(result.rows[0])


def messages(running: Store) -> dict[int, list[tuple[int, str]]]:
    """All messages of the topic, by queue: physical offset and body."""
    found = {}
    for queue in range(4):
        rows = running.json("pull", "orders", "--queue", str(queue), "--count", "100000")
        found[queue] = [(int(row["physical_offset"]), row["body"][:20]) for row in rows]
    return found


def positions(running: Store) -> list[tuple[object, ...]]:
    """The position of each group in each queue."""
    return [
        (row["group"], row["topic"], row["queue_id"], row["queue_offset"])
        for row in running.json("groups", "list")
        if not str(row["group"]).startswith("rmq_sys")
    ]


def check_sound(data_dir: Path) -> None:
    """Check a store of which no service runs."""
    result = run_here("verify", str(data_dir))
    assert result.code == 0, result
