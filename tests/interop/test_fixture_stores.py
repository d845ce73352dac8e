# SPDX-License-Identifier: Apache-2.0
"""Stores in tests/interop/data, which RocketMQ wrote, open in Reput with every message that RocketMQ finds there."""

import tarfile
from pathlib import Path

import msgspec
import pytest

from tests.interop.rocketmq.history import History, Reader, check_equal
from tests.interop.rocketmq.index_bytes import index_bytes
from tests.interop.rocketmq.make_fixtures import DATA_DIRECTORY, ENDS, SIZES
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RELEASES
from tests.interop.rocketmq.stored import Stored, without_size


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("release", RELEASES.values())
async def test_every_message_is_there(tmp_path: Path, release: str, end: str) -> None:
    """Reput finds every message by Pull, key, time and id, also after a second start.

    Queue files of a clean stop stay as RocketMQ made them.
    """
    with tarfile.open(DATA_DIRECTORY / f"rocketmq-{release}-{end}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    messages = msgspec.json.decode((tmp_path / "messages.json").read_bytes(), type=list[Stored])
    history = History()
    history.messages = without_size(messages)
    before = index_bytes(store, SIZES)
    for _ in range(2):
        async with ReputStore.served(store, SIZES) as reput:
            await reput.settle()
            check_equal(messages, await reput.walk(), "the log")
            await Reader(history, SIZES).check_reput(reput)
    if end == "clean":
        after = index_bytes(store, SIZES)
        check_equal(before.queue_files, after.queue_files, "queue files")
        check_equal(before.entries, after.entries, "index entries")
