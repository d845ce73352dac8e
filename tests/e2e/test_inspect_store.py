# SPDX-License-Identifier: Apache-2.0
"""`reput inspect` knows every file that a store can have, and finds no damage in a healthy store."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.inspect.inspection import Finding, Item
from cli.inspect.store import inspect_file
from libs.formats.state.system_topics import DELIVERY_GROUP, LEVELS_GROUP
from tests.support.inspections import findings_in
from tests.support.patience import LIMIT_S
from tests.support.reput_up import Store, store

pytestmark = pytest.mark.e2e


def findings_of_all(data_dir: Path) -> dict[str, list[Finding]]:
    """Return the findings in each file of a store. Raises UnknownKind for a file that inspection does not know."""
    files = sorted(path for path in data_dir.rglob("*") if path.is_file())
    return {str(path.relative_to(data_dir)): findings_in(inspect_file(path, limit=0)) for path in files}


def items_of(data_dir: Path, name: str) -> list[Item]:
    """Return what inspection shows of a file in `config`."""
    return [step for step in inspect_file(data_dir / "config" / name) if isinstance(step, Item)]


def interrupt(running: Store) -> None:
    running.stop()


def terminate(running: Store) -> None:
    running.process.send_signal(signal.SIGTERM)
    running.process.communicate(timeout=LIMIT_S)


def kill(running: Store) -> None:
    for child in [running.child(service) for service in running.targets]:
        os.kill(child, signal.SIGKILL)
    running.process.communicate(timeout=LIMIT_S)


@pytest.mark.parametrize("end", [interrupt, terminate, kill])
def test_every_file_of_a_store_is_known_and_sound(tmp_path: Path, end: Callable[[Store], None]) -> None:
    """After messages of all kinds, offsets of groups, a run of the Janitor, and any stop: no finding in any file.

    The second start and stop make files that the first do not make: backups, and the copy of a truncated tail.
    """
    for round_count in range(2):
        with store(tmp_path, "--delivery", "--delivery-port", "0") as running:
            lines = "".join(f"body {number}\n" for number in range(50))
            running.json("put", "orders", "--key", "k1", "--tag", "t", standard_input=lines)
            late = f"late{round_count}"
            running.json("put", "orders", "later", "--delay-level", "1", "--key", late)
            while running.run("query", "key", "orders", late).code:
                time.sleep(0.1)
            queue = running.json("query", "key", "orders", late)[0]["queue_id"]
            running.json("groups", "commit", "group", "orders", "--queue", str(queue), "--offset", "1")
            running.json("janitor", "run", "--dry-run")
            end(running)
        found = findings_of_all(tmp_path)
        assert {name: findings for name, findings in found.items() if findings} == {}, round_count
    assert {"checkpoint", "reput/ballast", "reput/index_ballast"} <= found.keys()
    if end is not kill:
        levels = [one.fields for one in items_of(tmp_path, "delayOffset.json")]
        groups = {one.fields["group"]: one.fields["queue_offsets"] for one in items_of(tmp_path, "consumerOffset.json")}
        assert (levels, groups[LEVELS_GROUP]) == ([{"delay_level": 1, "next_queue_offset": 2}], {0: 2})
        assert {"group", DELIVERY_GROUP} <= groups.keys()
