# SPDX-License-Identifier: Apache-2.0
"""Backups of logs that elect a leader: a member from a backup, and a whole group from a backup."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.common.v1.message_pb2 import DURABILITY_REPLICATED

from tests.e2e.test_elections import Trio, all_the_same, loaded, trio
from tests.e2e.test_replication import T, compared
from tests.e2e.test_roles_at_run_time import bodies_of
from tests.support.backups import restored
from tests.support.etcd_server import ETCD, NO_ETCD
from tests.support.reput_up import run

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(ETCD is None, reason=NO_ETCD)]


async def backed_up(logs: Trio, place: Path) -> str:
    """Make a backup of the logs, whichever leads. Returns the name of their history."""
    made = await asyncio.to_thread(
        run, "--commitlog", logs.targets, "backup", "create", "--no-positions", "--to", str(place), "--json"
    )
    assert made.code == 0, made
    return str(made.rows[0]["history_id"])


async def append(logs: Trio, name: str, count: int) -> None:
    """Append messages that all members in sync have."""
    for number in range(count):
        messages = [AppendMessage(topic=T, body=b"%d " % number * 200)]
        await logs.clients[name].append.Append(AppendRequest(messages=messages, durability=DURABILITY_REPLICATED))


async def test_a_member_from_a_backup(tmp_path: Path) -> None:
    """A member whose directory is a restored backup gets the later records, and may lead: nothing acknowledged is lost.

    It does not lead before: the other follower does, although the leader dies while the member is behind.
    """
    async with trio(tmp_path) as logs:
        async with loaded(logs) as load:
            await append(logs, await logs.leader(in_sync=3), 50)
            history_id = await backed_up(logs, tmp_path / "place")
            leader = await logs.leader(in_sync=3)
            await append(logs, leader, 50)
            lost = next(name for name in "bca" if name != leader)
            await logs.processes[lost].end(signal.SIGKILL)
            shutil.rmtree(tmp_path / lost)
            made = await asyncio.to_thread(restored, tmp_path / "place", tmp_path / lost, "--as-follower")
            assert made["history_id"] == history_id
            await logs.leader(but=lost)
            await logs.start(lost)
            await logs.processes[leader].end(signal.SIGKILL)
            next_leader = await logs.leader(but=leader)
            await logs.start(leader)
            await logs.leader(in_sync=3)
            assert next_leader != lost
            await logs.processes[next_leader].end(signal.SIGKILL)
            await logs.leader(but=next_leader)
            await logs.start(next_leader)
        leader = await logs.leader(in_sync=3)
        load.check(await bodies_of(logs.clients[leader]))
        await all_the_same(logs, leader)
    assert compared(tmp_path) > len(load.sent)


async def test_a_group_from_a_backup(tmp_path: Path) -> None:
    """One log is restored and begins a group of its own; the others begin empty, or as copies of its directory."""
    async with trio(tmp_path / "old") as logs:
        leader = await logs.leader(in_sync=3)
        await append(logs, leader, 60)
        await backed_up(logs, tmp_path / "place")
        bodies = await bodies_of(logs.clients[leader])
    new = tmp_path / "new"
    await asyncio.to_thread(restored, tmp_path / "place", new / "a")
    shutil.copytree(new / "a", new / "b")
    async with trio(new) as logs:
        leader = await logs.leader(in_sync=3)
        assert await bodies_of(logs.clients[leader]) == bodies
        await append(logs, leader, 5)
        await all_the_same(logs, leader)
    assert compared(new) > len(bodies)
