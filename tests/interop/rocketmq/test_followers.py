# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own store opens a follower's directory, like a leader's, whether Reput or RocketMQ began the log."""

import asyncio
from pathlib import Path

import pytest

from cli.verify.codes import Area
from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from tests.interop.rocketmq.drafts import Drafts
from tests.interop.rocketmq.history import History, Reader, check_equal
from tests.interop.rocketmq.index_bytes import index_bytes
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import Sizes
from tests.interop.rocketmq.writing import write_reput, write_rocketmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

COUNT_MAX = 5_000
MORE_COUNT = 20


async def test_a_follower_of_reput_opens(tmp_path: Path, major: str, message_count: int, sizes: Sizes) -> None:
    """A follower that was stopped in order has all messages.

    Its queues and index entries equal the leader's, byte for byte, and RocketMQ continues on its store.
    """
    count, history, drafts = min(message_count, COUNT_MAX), History(), Drafts(11)
    leads, follows = tmp_path / "leader", tmp_path / "follower"
    async with (
        ReputStore.served(leads, sizes) as leader,
        ReputStore.running(follows, sizes, leader_target=leader.target) as follower,
    ):
        await write_reput(leader, history, drafts, count)
        await follower.settle(await leader.settle())
        await Reader(history, sizes).check_reput(follower)
        await follower.stop()
    same_logs(leads, follows)
    expected, found = index_bytes(leads, sizes), index_bytes(follows, sizes)
    check_equal(expected.queue_files, found.queue_files, "queue files")
    check_equal(expected.entries, found.entries, "index entries")
    await rocketmq_goes_on(follows, major, sizes, history, drafts)


async def test_a_follower_that_was_killed_opens(tmp_path: Path, major: str, message_count: int, sizes: Sizes) -> None:
    """A follower that is killed while it receives records keeps whole records without a gap.

    All messages that it had shown are among them.
    """
    count, history, drafts = min(message_count, COUNT_MAX), History(), Drafts(12)
    leads, follows = tmp_path / "leader", tmp_path / "follower"
    async with (
        ReputStore.served(leads, sizes) as leader,
        ReputStore.running(follows, sizes, leader_target=leader.target) as follower,
    ):
        await write_reput(leader, history, drafts, count)
        await follower.settle(await leader.settle())
        shown_count = len(history)
        writing = asyncio.create_task(write_reput(leader, history, drafts, count))
        while len(history) < shown_count + count // 2 and not writing.done():  # noqa: ASYNC110 - it has no bell
            await asyncio.sleep(0.001)
        await follower.kill()
        await writing
    async with await RocketMqStore.open(major, follows, sizes, index_safe=True) as rocketmq:
        kept = history.first(len(await rocketmq.walk()))
        assert len(kept) >= shown_count
        await Reader(kept, sizes).check_rocketmq(rocketmq)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_log_that_rocketmq_began_is_replicated(
    tmp_path: Path, major: str, message_count: int, sizes: Sizes, *, is_killed: bool
) -> None:
    """A store of RocketMQ becomes a leader, and an empty follower gets its whole log.

    The log has RocketMQ's records, and Reput's records behind them.
    """
    count, history, drafts = min(message_count, COUNT_MAX), History(), Drafts(13)
    leads, follows = tmp_path / "leader", tmp_path / "follower"
    async with await RocketMqStore.open(major, leads, sizes) as rocketmq:
        await write_rocketmq(rocketmq, history, drafts, count, has_v2=major == "5")
        await (rocketmq.kill() if is_killed else rocketmq.stop())
    async with ReputStore.served(leads, sizes) as leader:
        await write_reput(leader, history, drafts, count // 4)
        async with ReputStore.running(follows, sizes, leader_target=leader.target) as follower:
            await follower.settle(await leader.settle())
            await Reader(history, sizes).check_reput(follower)
            await write_reput(leader, history, drafts, MORE_COUNT)
            await follower.settle(await leader.settle())
            await follower.stop()
    same_logs(leads, follows)
    await rocketmq_goes_on(follows, major, sizes, history, drafts)


def same_logs(leads: Path, follows: Path) -> None:
    """Compare all bytes of two logs, except the bytes behind a blank, where RocketMQ may leave anything."""
    findings: list[Finding] = []
    summary = verify_store(follows, Report(findings.append, 10, frozenset((Area.LOG,))), against=leads)
    assert not [finding for finding in findings if finding.code != "STORE_NOT_CLEAN"]
    assert summary.compared_bytes


async def rocketmq_goes_on(directory: Path, major: str, sizes: Sizes, history: History, drafts: Drafts) -> None:
    """RocketMQ finds every message in every way of reading, and also the messages that it puts behind them."""
    async with await RocketMqStore.open(major, directory, sizes, index_safe=True) as rocketmq:
        await Reader(history, sizes).check_rocketmq(rocketmq)
        await write_rocketmq(rocketmq, history, drafts, MORE_COUNT, has_v2=major == "5")
        await rocketmq.settle()
        await Reader(history, sizes).check_rocketmq(rocketmq)
        await rocketmq.stop()
