# SPDX-License-Identifier: Apache-2.0
"""OpenLog: built from a recovered store. The recovery alone reads the disk, and leaves nothing behind if it fails."""

from pathlib import Path
from typing import Any

import pytest

from libs.formats.state.replication import InSyncFile, Member
from libs.log.state import small_files
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import NOBODY
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.opening import RecoveredStore, recover_store
from tests.support.commitlog import DATA_DIR, LISTEN_HOST, Machine, append, make_config, message

FILE = InSyncFile(history_id="h", epoch=1, leader=Member("a", "a" * 32), others=[], min_in_sync=1)
ROLES = pytest.mark.parametrize("role", ["async_master", "sync_master", "slave"])


class Disk:
    """The file system of a machine that tells its operations, and refuses them on demand."""

    def __init__(self, machine: Machine, failing: str = "") -> None:
        self.operations: list[str] = []
        self._failing = failing
        self.fs: Any = FaultyFs(machine.fs, self._plan)

    def _plan(self, operation: str, path: Path) -> Fault | None:
        self.operations.append(operation)
        return Fault(5) if self._failing and path.name == self._failing else None


def recovered(machine: Machine, disk: Disk, **changes: Any) -> RecoveredStore:
    """The store of a machine."""
    return recover_store(disk.fs, make_config(**changes), machine.clock, RecoveryMeter(machine.clock))


@ROLES
async def test_a_log_is_built_without_the_disk(role: str) -> None:
    """Not one call reaches the file system, in any role, and the log has the records of the store."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(b"kept"), durability=2)
        end = log.chain.max_physical_offset
    disk = Disk(machine)
    store = recovered(machine, disk, role=role)
    disk.operations.clear()
    leader = NOBODY if role == "slave" else None
    log = OpenLog(
        store,
        disk.fs,
        make_config(role=role),
        machine.clock,
        listen_host=LISTEN_HOST,
        on_failure=machine.failures.append,
        leader=leader,
    )
    assert disk.operations == []
    assert log.marks.wrote.value == end
    assert (log.in_sync is None, log.follower is None) == (role == "slave", role != "slave")


async def test_a_recovery_that_fails_at_its_last_file_gives_the_store_back() -> None:
    """Its locks are free, so the next attempt opens the log."""
    machine = Machine()
    async with machine.running():
        pass
    small_files.save_in_sync(machine.fs, DATA_DIR, FILE)
    with pytest.raises(OSError, match="error"):
        await machine.start(Disk(machine, failing="in_sync_set").fs)
    async with machine.running() as log:
        assert log.marks.wrote.value == log.chain.max_physical_offset
