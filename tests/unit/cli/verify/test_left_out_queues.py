# SPDX-License-Identifier: Apache-2.0
"""A store whose Indexer had no room for queues of a deleted topic is in order, as its notes say."""

import asyncio
import errno
from pathlib import Path

from libs.machine.posix_fs import PosixFs
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from libs.machine.testing.manual_clock import ManualClock
from services.indexer.engine.offline_rebuild import rebuild
from tests.support.commitlog import append, log_on, message
from tests.support.made_store import SEGMENT_SIZE, commit_log_config, indexer_config, verified


async def _make(data_dir: Path) -> None:
    async with log_on(PosixFs(), commit_log_config(data_dir), ManualClock()) as log:
        for _ in range(2):
            sent = (message(topic=topic, queue_id=number) for topic in ("orders", "wide") for number in (0, 1))
            await append(log, *sent)
        await log.topics.delete("wide")
    fs = FaultyFs(
        PosixFs(),
        lambda operation, path: Fault(errno.ENOSPC) if operation == "create_mapped" and "wide" in path.parts else None,
    )
    await rebuild(
        fs, indexer_config(data_dir), log_data_dir=data_dir, segment_size_bytes=SEGMENT_SIZE, clock=ManualClock()
    )


def test_what_was_left_out_is_no_fault(tmp_path: Path) -> None:
    """Records that the Indexer left out are no fault if index_progress has them.

    Every other message has its unit.
    """
    asyncio.run(_make(tmp_path))
    assert list((tmp_path / "consumequeue" / "wide").iterdir()) == []
    findings = verified(tmp_path)[1]
    assert [found for found in findings if found.severity == "fault"] == []
    assert "RECORDS_STEPPED_OVER" in {found.code for found in findings}
    (tmp_path / "reput" / "index_progress").unlink()
    assert [found for found in verified(tmp_path)[1] if found.severity == "fault"]
