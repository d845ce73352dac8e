# SPDX-License-Identifier: Apache-2.0
"""A call on the file system fails: acknowledged data stays, and the stop is not called clean.

`tests/exhaustive/commitlog` lets every call fail once.
"""

import errno

import pytest

from libs.machine.testing.faulty_fs import Fault, FaultyFs, no_faults
from libs.machine.testing.memory_fs import nothing_survives
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.errors import StoreSealed
from tests.support.commitlog import (
    BORN_HOST,
    LISTEN_HOST,
    Machine,
    bodies,
    durability_of,
    make_config,
    message,
    request,
)

LOCAL_DISK = 2


async def test_a_sync_fails() -> None:
    """The message before it is kept, the message behind it is not called durable, and the store is not clean."""
    machine, failures = Machine(), list[BaseException]()
    fs = FaultyFs(machine.fs, no_faults)
    process = CommitLog(make_config(**machine.config), fs, machine.clock, on_failure=failures.append)
    log = await process.open(LISTEN_HOST)
    batch = await log.pipeline.append(request(message(b"kept"), durability=LOCAL_DISK), BORN_HOST)
    assert await durability_of(log, batch) == LOCAL_DISK
    fs.plan = lambda operation, _path: Fault(errno.EIO) if operation == "sync" else None
    batch = await log.pipeline.append(request(message(b"lost"), durability=LOCAL_DISK), BORN_HOST)
    with pytest.raises(StoreSealed):
        await durability_of(log, batch)
    await process.close()
    assert failures
    assert log.seal.is_set
    assert machine.exists("abort")
    machine.fs.crash(nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == [b"kept"]
