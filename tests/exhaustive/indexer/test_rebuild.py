# SPDX-License-Identifier: Apache-2.0
"""An offline rebuild that crashes at any sync or rename."""

import contextlib

import pytest

from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import MemoryFs, Survives, everything_survives, nothing_survives
from services.indexer.engine import offline_rebuild as rebuilding
from tests.support.indexer import assert_complete, running
from tests.support.patience import eventually
from tests.support.rebuilds import filled, run, stored

PLACES = ("file.sync", "create.before_rename", "create.after_rename", "write_atomic.before_rename")


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
@pytest.mark.parametrize("again", [True, False], ids=["rebuilt again", "started"])
async def test_a_crash_anywhere_is_harmless(survives: Survives, again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash at any sync or rename, the next rebuild or start ends with the same indexes."""
    monkeypatch.setattr(rebuilding, "SYNC_BYTES", 2_000)
    log, fs = filled(70), MemoryFs()
    log.append("T", 5, keys="all")
    old = filled(90) if again else log
    async with running(old, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == old.end_physical_offset)
    stored(log, fs)
    disks: list[MemoryFs] = []

    def crash() -> None:
        """Keep a copy of the disk as after a crash at this moment, and continue."""
        disks.append(fs.after_crash(survives))

    with contextlib.ExitStack() as failpoints:
        for name in PLACES:
            failpoints.enter_context(armed(name, crash))
        await run(fs)
    assert len(disks) > 30
    for disk in disks:
        if again:
            await run(disk)
        await assert_complete(disk, log)
