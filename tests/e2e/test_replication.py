# SPDX-License-Identifier: Apache-2.0
"""A log and its copy as processes: records that are appended to the leader are in both, after any kills."""

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED, DURABILITY_UNSPECIFIED
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from cli.verify.findings import Finding, Report
from cli.verify.store import verify_store
from libs.formats import store_layout
from tests.support import served_commitlog as log_served
from tests.support import served_indexer as index_served
from tests.support.patience import LIMIT_S
from tests.support.service_process import Refusal

T = "orders"
SMALL = ("--segment-size-bytes", "65536", "--disk-reserve-bytes", "0", "--disk-ballast-bytes", "0")


@contextlib.asynccontextmanager
async def follower(data_dir: Path, leader_port: int, *flags: str) -> AsyncIterator[log_served.Process]:
    """A log that follows the log at this port."""
    role = ("--role", "slave", "--replica-id", data_dir.name, "--reconnect-ms-max", "100")
    target = ("--leader-target", f"127.0.0.1:{leader_port}")
    async with log_served.process(data_dir, *SMALL, *role, *target, *flags) as process:
        yield process


async def append(client: log_served.Client, number: int) -> append_pb.AppendResult:
    """Append a batch of three messages."""
    messages = [
        append_pb.AppendMessage(topic=T, queue_id=0, body=b"%d-%d " % (number, index) * (1 + number % 50))
        for index in range(3)
    ]
    request = append_pb.AppendRequest(messages=messages, durability=DURABILITY_LOCAL_DISK)
    return (await client.append.Append(request)).result


async def status(client: log_served.Client) -> log_pb.GetStatusResponse:
    """Return the status of a log."""
    return await client.log.GetStatus(log_pb.GetStatusRequest())


async def reached(client: log_served.Client, end: int) -> log_pb.GetStatusResponse:
    """Wait until a log shows everything up to this offset."""
    async with asyncio.timeout(LIMIT_S):
        while (found := await status(client)).confirmed_physical_offset < end:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    return found


async def test_an_indexer_beside_a_follower(tmp_path: Path) -> None:
    """An Indexer beside a follower has the answers of the leader's Indexer.

    The follower refuses calls for a leader, with the leader's address.
    """
    async with (
        log_served.process(tmp_path / "a", *SMALL) as one,
        follower(tmp_path / "b", one.port) as other,
        index_served.process(tmp_path / "b", f"127.0.0.1:{other.port}") as index,
        one.client() as leader,
        other.client() as copy,
        index.client() as reader,
    ):
        end = 0
        for number in range(50):
            end = (await append(leader, number)).end_physical_offset
        found = await reached(copy, end)
        assert found.role == log_pb.ROLE_SLAVE
        assert found.refusals == ["NOT_LEADER"]
        assert found.following.leader_target == f"127.0.0.1:{one.port}"
        assert found.following.leader_max_physical_offset == end
        await reader.wait_indexed(end)
        pulled = await reader.queues.Pull(queue_pb.PullRequest(topic=T, queue_offset=100, message_count_max=32))
        assert [message.queue_offset for message in pulled.messages] == list(range(100, 132))
        for call in (
            append(copy, 0),
            copy.topics.CreateTopic(topic_pb.CreateTopicRequest(name="new")),
            copy.topics.DeleteTopic(topic_pb.DeleteTopicRequest(name=T)),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            refusal = Refusal(refused.value)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_LEADER")
            assert refusal.metadata["leader"] == f"127.0.0.1:{one.port}"
        (replica,) = (await status(leader)).replicas
        assert (replica.replica_id, replica.received_physical_offset) == ("b", end)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_kills(tmp_path: Path, seed: int) -> None:
    """After kills and restarts of leader and follower both logs have the same bytes, and all acknowledged messages."""
    chance, ends = random.Random(seed), [0]
    signals = (signal.SIGKILL, signal.SIGTERM)
    port: tuple[str, ...] = ()
    for _ in range(4):
        async with log_served.process(tmp_path / "a", *SMALL, *port) as one, one.client() as leader:
            port = ("--port", str(one.port))
            for _ in range(3):
                async with follower(tmp_path / "b", one.port) as other:
                    for _ in range(chance.randint(10, 60)):
                        ends.append((await append(leader, len(ends))).end_physical_offset)
                    if chance.random() < 0.5:
                        async with other.client() as copy:
                            await reached(copy, ends[-1])
                    await other.end(chance.choice(signals))
            await one.end(chance.choice(signals))
    async with (
        log_served.process(tmp_path / "a", *SMALL, *port) as one,
        follower(tmp_path / "b", one.port) as other,
        other.client() as copy,
    ):
        await reached(copy, ends[-1])
        await other.end(signal.SIGTERM)
        await one.end(signal.SIGTERM)
    assert compared(tmp_path) == 3 * (len(ends) - 1)


async def test_the_old_leader_comes_back(tmp_path: Path) -> None:
    """The old leader truncates the records that only it had, and keeps a copy of them.

    Its Indexer then has the answers of the new leader's Indexer.
    """
    async with log_served.process(tmp_path / "a", *SMALL) as one, one.client() as leader:
        async with follower(tmp_path / "b", one.port) as other, other.client() as copy:
            for number in range(20):
                end = (await append(leader, number)).end_physical_offset
            await reached(copy, end)
        async with index_served.process(tmp_path / "a", f"127.0.0.1:{one.port}") as index, index.client() as reader:
            for number in range(20, 30):
                lost = (await append(leader, number)).end_physical_offset
            await reader.wait_indexed(lost)
        await one.end(signal.SIGKILL)
    async with log_served.process(tmp_path / "b", *SMALL) as promoted, promoted.client() as leader:
        for number in range(40, 45):
            end = (await append(leader, number)).end_physical_offset
        async with (
            follower(tmp_path / "a", promoted.port) as former,
            former.client() as copy,
            index_served.process(tmp_path / "a", f"127.0.0.1:{former.port}") as index,
            index.client() as reader,
        ):
            async with asyncio.timeout(LIMIT_S):
                while not (recovery := (await until_served(copy)).recovery).truncated_bytes:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(0.01)
            assert kept_bytes(tmp_path / "a") == recovery.truncated_bytes
            await reached(copy, end)
            await reader.wait_indexed(end)
            pulled = await reader.queues.Pull(queue_pb.PullRequest(topic=T, queue_offset=60, message_count_max=32))
            assert [bytes(message.body).split()[0] for message in pulled.messages] == [
                b"%d-%d" % (number, index) for number in range(40, 45) for index in range(3)
            ]
            await former.end(signal.SIGTERM)
        await promoted.end(signal.SIGTERM)
    assert compared(tmp_path) == 25 * 3


def kept_bytes(data_dir: Path) -> int:
    """Return the size of the copies of truncated records."""
    return sum(path.stat().st_size for path in (data_dir / store_layout.CUT).iterdir())


async def until_served(client: log_served.Client) -> log_pb.GetStatusResponse:
    """Return the status of a log, once it answers. It does not answer while it is truncated."""
    while True:
        try:
            found = await status(client)
        except grpc.aio.AioRpcError as error:
            assert Refusal(error).reason == "RECOVERING"  # noqa: PT017 - another error is raised by this
            await asyncio.sleep(0.01)
        else:
            return found


def compared(directory: Path) -> int:
    """Return the number of records of two stopped logs, which must be equal."""
    found: list[Finding] = []
    summary = verify_store(directory / "b", Report(show=found.append, limit=10), against=directory / "a")
    assert [finding for finding in found if finding.severity != "note"] == []
    assert summary.compared_bytes > 0
    return summary.record_count


async def test_replicated_survives_any_one_of_three(tmp_path: Path) -> None:
    """Members are killed in turn under load, and a member that is in sync leads next.

    REPLICATED messages stay at their physical offsets.
    """
    chance, replicated = random.Random(3), dict[int, bytes]()
    flags = ("--replica-lag-ms-max", "1000", "--replicate-timeout-ms", "10000")
    leads, number = "a", 0
    for _ in range(4):
        others = [name for name in "abc" if name != leads]
        async with contextlib.AsyncExitStack() as stack:
            role = ("--role", "sync_master", "--replica-id", leads)
            one = await stack.enter_async_context(log_served.process(tmp_path / leads, *SMALL, *flags, *role))
            leader = await stack.enter_async_context(one.client())
            copies = {
                name: await stack.enter_async_context(follower(tmp_path / name, one.port, *flags)) for name in others
            }
            await in_sync(leader, "abc")
            for step in range(30):
                if step == 15:
                    await copies.pop(chance.choice(others)).end(signal.SIGKILL)
                if step == 25:
                    await in_sync(leader, [leads, *copies])
                number += 1
                body = b"%d " % number * 50
                request = append_pb.AppendRequest(messages=[append_pb.AppendMessage(topic=T, body=body)])
                result = (await leader.append.Append(request)).result
                assert result.durability == DURABILITY_REPLICATED
                replicated[result.start_physical_offset] = body
            await append(leader, number)  # possibly on a single disk, so it may be lost
            await one.end(signal.SIGKILL)
        (leads,) = copies
    async with log_served.process(tmp_path / leads, *SMALL) as one, one.client() as leader:
        request = log_pb.ReadRecordsRequest(physical_offsets=replicated, view=log_pb.RECORD_VIEW_MESSAGES)
        answer = await leader.log.ReadRecords(request)
        assert [bytes(message.body) for message in answer.messages] == list(replicated.values())


async def in_sync(client: log_served.Client, replica_ids: Iterable[str]) -> None:
    """Wait until REPLICATED waits for these members and no others."""
    async with asyncio.timeout(LIMIT_S):
        while set((await status(client)).in_sync_replica_ids) != set(replica_ids):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)


async def test_too_few_members(tmp_path: Path) -> None:
    """With too few members a REPLICATED batch is refused, and nothing is stored.

    Less durable batches are accepted.
    """
    async with log_served.process(tmp_path, *SMALL, "--role", "sync_master") as one, one.client() as leader:
        for durability in (DURABILITY_REPLICATED, DURABILITY_UNSPECIFIED):
            message = append_pb.AppendMessage(topic=T, body=b"x")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await leader.append.Append(append_pb.AppendRequest(messages=[message], durability=durability))
            refusal = Refusal(refused.value)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_ENOUGH_REPLICAS")
            assert (refusal.metadata["in_sync"], refusal.metadata["needed"]) == ("1", "2")
        assert (await status(leader)).max_physical_offset == 0
        assert (await append(leader, 1)).start_physical_offset == 0
        assert len((await status(leader)).in_sync_replica_ids) == 1
