# SPDX-License-Identifier: Apache-2.0
"""Reput and RocketMQ write to a store in turns, each where the other stopped or was killed."""

import functools
from pathlib import Path

import msgspec
import pytest

from libs.formats.indexes.consume_queue import FILE_SIZE_BYTES
from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, Reader
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import Sizes
from tests.interop.rocketmq.writing import killed, write_reput, write_rocketmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

ROUND_COUNT_MAX = 5_000
ROUNDS = (  # the writer, and whether it is killed in the midst of writing
    ("reput", False),
    ("rocketmq", False),
    ("reput", True),
    ("rocketmq", True),
    ("reput", False),
    ("rocketmq", True),
    ("reput", True),
    ("rocketmq", False),
    ("reput", False),
)


async def test_both_read_everything_after_every_round(
    tmp_path: Path, major: str, message_count: int, sizes: Sizes
) -> None:
    """Each program finds all messages of both, in every way of reading, and continues from there.

    This is true after every round.
    """
    count = min(message_count // 8, ROUND_COUNT_MAX)
    history, drafts = History(), Drafts(3)
    for writer, is_killed in ROUNDS:
        await _round(tmp_path, major, sizes, history, drafts, count, writer, is_killed=is_killed)


async def test_queue_files_with_holes(tmp_path: Path, major: str) -> None:
    """Queue files of the usual size take few blocks more than their content.

    Each program continues in the files of the other.
    """
    sizes, history, drafts = Sizes(queue_file_size_bytes=FILE_SIZE_BYTES), History(), Drafts(5)
    for writer, is_killed in ROUNDS[:5]:
        await _round(tmp_path, major, sizes, history, drafts, 200, writer, is_killed=is_killed)
        paths = [path for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()]
        if is_killed:
            # A kill between making a queue's last file and sizing it leaves it empty; the next start repairs it.
            paths = [path for path in paths if path.stat().st_size or path != max(path.parent.iterdir())]
        found = [path.stat() for path in paths]
        assert {one.st_size for one in found} == {FILE_SIZE_BYTES}
        assert all(one.st_blocks * 512 < FILE_SIZE_BYTES // 8 for one in found)


async def _round(
    directory: Path,
    major: str,
    sizes: Sizes,
    history: History,
    drafts: Drafts,
    count: int,
    writer: str,
    *,
    is_killed: bool,
) -> None:
    if writer == "rocketmq":
        await _rocketmq_round(directory, major, sizes, history, drafts, count, is_killed=is_killed)
    else:
        await _reput_round(directory, sizes, history, drafts, count, is_killed=is_killed)


async def _reput_round(
    directory: Path, sizes: Sizes, history: History, drafts: Drafts, count: int, *, is_killed: bool
) -> None:
    opened = ReputStore.running if is_killed else ReputStore.served
    async with opened(directory, sizes) as reput:
        await reput.settle()
        history.adopt(await reput.walk())
        await Reader(history, sizes).check_reput(reput)
        write = functools.partial(write_reput, reput, history, drafts)
        if is_killed:
            return await killed(history, write, count, reput.kill())
        await write(count)
        await reput.settle()
        Reader(history, sizes).check_queues(await reput.read())
        return None


async def _rocketmq_round(
    directory: Path, major: str, sizes: Sizes, history: History, drafts: Drafts, count: int, *, is_killed: bool
) -> None:
    # RocketMQ repairs its indexes after a crash with certainty only with messageIndexSafe.
    async with await RocketMqStore.open(major, directory, sizes, index_safe=True) as rocketmq:
        history.adopt(await rocketmq.walk())
        await Reader(history, sizes).check_rocketmq(rocketmq)
        put = functools.partial(write_rocketmq, rocketmq, history, drafts, has_v2=major == "5")
        if is_killed:
            return await killed(history, put, count, rocketmq.kill())
        await put(count)
        await rocketmq.settle()
        await Reader(history, sizes).check_rocketmq(rocketmq)
        await rocketmq.stop()
        return None


@pytest.mark.parametrize("is_killed", [False, True])
async def test_records_that_look_torn(tmp_path: Path, major: str, *, is_killed: bool) -> None:
    """A zero near a record's end is a lost sector only in Reput's own log.

    RocketMQ's records have no CRC property.
    """
    sizes, history, drafts = Sizes(), History(), Drafts(4)
    async with ReputStore.served(tmp_path, sizes) as reput:
        await write_reput(reput, history, drafts, 50)
        await reput.settle()
    async with await RocketMqStore.open(major, tmp_path, sizes) as rocketmq:
        odd = {"a": "x" * 30 + "\x00yy"}
        parts = [msgspec.structs.replace(draft, properties=odd) for draft in drafts.take(20, topic="odd")]
        history.send(parts)
        history.acknowledge(parts, await rocketmq.put(parts))
        await (rocketmq.kill() if is_killed else rocketmq.stop())
    async with ReputStore.served(tmp_path, sizes) as reput:
        await reput.settle()
        await Reader(history, sizes).check_reput(reput)
