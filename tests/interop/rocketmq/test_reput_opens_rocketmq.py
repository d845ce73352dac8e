# SPDX-License-Identifier: Apache-2.0
"""Reput opens a store that RocketMQ's own store wrote."""

import functools
from pathlib import Path

import pytest

from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, Reader, check_equal
from tests.interop.rocketmq.index_bytes import index_bytes
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import Sizes
from tests.interop.rocketmq.writing import killed, write_rocketmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

KILLED_COUNT_MAX = 5_000
HALT_DELAY_MS = 300


@pytest.mark.parametrize("end", ["clean", "killed", "halted"])
async def test_every_message_is_there(tmp_path: Path, major: str, end: str, message_count: int, sizes: Sizes) -> None:
    """Reput finds every message by Pull, key, time and id.

    The queues that Reput makes of the log equal RocketMQ's, byte for byte.
    """
    store_host = f"20010db8{7:024x}:10911" if end == "halted" else "7f000001:10911"
    history, drafts = History(), Drafts(2, store_host=store_host)
    has_crc_property = major == "5" and end == "killed"
    async with await RocketMqStore.open(major, tmp_path, sizes, crc_property=has_crc_property) as rocketmq:
        write = functools.partial(write_rocketmq, rocketmq, history, drafts, has_v2=major == "5")
        if end == "clean":
            await write(message_count)
            await rocketmq.stop()
        elif end == "killed":
            await killed(history, write, min(message_count, KILLED_COUNT_MAX), rocketmq.kill())
        else:
            await rocketmq.halt_after(HALT_DELAY_MS)
            await killed(history, write, 0, rocketmq.wait_halted())
    before = index_bytes(tmp_path, sizes) if end == "clean" else None  # a halt may leave a file of 0 bytes
    async with ReputStore.served(tmp_path, sizes) as reput:
        await reput.settle()
        if end != "clean":
            history.adopt(await reput.walk())
        await Reader(history, sizes).check_reput(reput)
    if before is not None:
        after = index_bytes(tmp_path, sizes)
        check_equal(before.queue_files, after.queue_files, "queue files")
        check_equal(before.entries, after.entries, "index entries")
