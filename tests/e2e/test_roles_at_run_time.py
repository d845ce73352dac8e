# SPDX-License-Identifier: Apache-2.0
"""The leader changes while the processes run: by handover, by promotion, and followers find the new leader."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Sized
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import replication_service_pb2 as pb
from reput.commitlog.v1 import replication_service_pb2_grpc as stubs
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED
from reput_client import Durability, NewMessage, Options, ProducerOptions, RetryPolicy
from reput_client.aio import AsyncClient

from tests.e2e.test_replication import SMALL, T, append, compared, follower, in_sync, reached, status, until_served
from tests.support import served_commitlog as log_served
from tests.support.patience import LIMIT_S, eventually, freeze
from tests.support.reput_up import run
from tests.support.service_process import Refusal


def target(process: log_served.Process) -> str:
    """The address of a log."""
    return f"127.0.0.1:{process.port}"


def service(client: log_served.Client) -> Any:
    """The calls about the leader."""
    return stubs.ReplicationServiceStub(client.channel)


async def hand_over(old: log_served.Client, new: log_served.Client, leader_target: str, replica_id: str) -> int:
    """Hand over as `reput handover` does, and return the new epoch."""
    answer = await service(old).Demote(pb.DemoteRequest(leader_target=leader_target, replica_id=replica_id))
    request = pb.PromoteRequest(
        epoch=answer.epoch, end_physical_offset=answer.end_physical_offset, role=answer.former_role
    )
    return (await service(new).Promote(request)).epoch.number


async def leads(client: log_served.Client, *, is_leader: bool = True) -> log_pb.GetStatusResponse:
    """Wait until a log leads, or until it follows and has a stream."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            found = await until_served(client)
            if found.state == log_pb.LOG_STATE_SERVING:
                follows = found.HasField("following")
                if is_leader and not follows:
                    return found
                if not is_leader and found.following.state == log_pb.FOLLOWING_STATE_FOLLOWING:
                    return found
            await asyncio.sleep(0.01)


async def served(client: log_served.Client) -> log_pb.GetStatusResponse:
    """Return the status of a log, once it is open."""
    while (found := await until_served(client)).state != log_pb.LOG_STATE_SERVING:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    return found


async def more_of(done: Sized) -> None:
    """Wait until a load has stored some more messages."""
    count = len(done)
    await eventually(lambda: len(done) > count + 20)


async def test_handover_under_load(tmp_path: Path) -> None:
    """A handover loses no acknowledged message, at any durability.

    A third log finds the new leader by itself.
    """
    stored: dict[int, bytes] = {}
    async with (
        log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a") as one,
        follower(tmp_path / "b", one.port) as other,
        follower(tmp_path / "c", one.port) as third,
        one.client() as first,
        other.client() as second,
        third.client() as watcher,
    ):
        clients = {target(one): first, target(other): second}
        now, is_over = target(one), asyncio.Event()
        longest_s = 0.0

        async def load() -> None:
            nonlocal now, longest_s
            number, since_s = 0, time.monotonic()
            while not is_over.is_set():
                body = b"%d " % number * 20
                messages = [append_pb.AppendMessage(topic=T, body=body)]
                durability = DURABILITY_LOCAL_DISK if number % 2 else DURABILITY_REPLICATED
                request = append_pb.AppendRequest(messages=messages, durability=durability)
                try:
                    result = (await clients[now].append.Append(request)).result
                except grpc.aio.AioRpcError as error:
                    refusal = Refusal(error)
                    assert refusal.reason in ("NOT_LEADER", "RECOVERING", "NOT_ENOUGH_REPLICAS"), refusal
                    now = refusal.metadata.get("leader", now)
                    await asyncio.sleep(0.005)
                    continue
                stored[result.start_physical_offset] = body
                longest_s = max(longest_s, time.monotonic() - since_s)
                number, since_s = number + 1, time.monotonic()

        await in_sync(first, "abc")
        loading = asyncio.create_task(load())
        for _ in range(3):
            await more_of(stored)
            before = (await status(first)).epoch
            assert await hand_over(first, second, target(other), "b") > before
            await in_sync(second, "abc")
            await more_of(stored)
            await hand_over(second, first, target(one), "a")
            await in_sync(first, "abc")
        is_over.set()
        await loading
        assert len(stored) > 100
        end = (await status(first)).max_physical_offset
        await reached(watcher, end)
        await reached(second, end)
        offsets = list(stored)
        for start in range(0, len(offsets), 1_000):
            some = offsets[start : start + 1_000]
            request = log_pb.ReadRecordsRequest(physical_offsets=some, view=log_pb.RECORD_VIEW_MESSAGES)
            answer = await first.log.ReadRecords(request)
            assert [bytes(message.body) for message in answer.messages] == [stored[offset] for offset in some]
        for process in (one, other, third):
            await process.end(signal.SIGTERM)
    assert compared(tmp_path) == len(stored)


async def test_a_role_outlives_its_process(tmp_path: Path) -> None:
    """A promoted log leads after a kill, too, and a log that handed over follows.

    Settings that have changed since then take effect.
    """
    port: tuple[str, ...] = ()
    async with log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a") as one, one.client() as first:
        async with follower(tmp_path / "b", one.port) as other, other.client() as second:
            await append(first, 1)
            await in_sync(first, "ab")
            await first.topics.CreateTopic(topic_pb.CreateTopicRequest(name="made-last"))
            await hand_over(first, second, target(other), "b")
            assert (await second.topics.GetTopic(topic_pb.GetTopicRequest(name="made-last"))).topic.name == "made-last"
            await leads(first, is_leader=False)
            port = ("--port", str(other.port))
            await other.end(signal.SIGKILL)
        await one.end(signal.SIGKILL)
    async with (
        log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a") as one,
        follower(tmp_path / "b", one.port, *port) as other,
        one.client() as first,
        other.client() as second,
    ):
        # `b` has a new leader_target, so its settings take effect; `a` has the same settings as before
        for client in (first, second):
            assert (await served(client)).HasField("following")
        refused = await refusal(service(second).Promote(pb.PromoteRequest(role=log_pb.ROLE_ASYNC_MASTER)))
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "MAY_LOSE_DATA")
        request = pb.PromoteRequest(role=log_pb.ROLE_ASYNC_MASTER, accept_data_loss=True)
        await service(second).Promote(request)
        await append(second, 2)
        await leads(first, is_leader=False)
        await other.end(signal.SIGKILL)
        await one.end(signal.SIGKILL)


async def refusal(call: Any) -> Refusal:
    """Return the refusal of a call."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return Refusal(refused.value)


async def test_what_is_refused(tmp_path: Path) -> None:
    """A call with the wrong log, the wrong epoch or no proof is refused and changes nothing."""
    async with (
        log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a", "--handover-timeout-ms", "200") as one,
        follower(tmp_path / "b", one.port) as other,
        one.client() as first,
        other.client() as second,
    ):
        await append(first, 1)
        await in_sync(first, "ab")
        there = target(other)
        for request, reason in (
            (pb.DemoteRequest(), "BAD_ARGUMENT"),
            (pb.DemoteRequest(leader_target=there), "BAD_ARGUMENT"),
            (pb.DemoteRequest(leader_target=there, replica_id="z"), "REPLICA_BEHIND"),
            (pb.DemoteRequest(leader_target=there, replica_id="b", epoch=9), "STALE_EPOCH"),
        ):
            assert (await refusal(service(first).Demote(request))).reason == reason
        demote = pb.DemoteRequest(leader_target=target(one), replica_id="a")
        assert (await refusal(service(second).Demote(demote))).reason == "NOT_LEADER"
        master = log_pb.ROLE_ASYNC_MASTER
        for promote, reason in (
            (pb.PromoteRequest(), "BAD_ARGUMENT"),
            (pb.PromoteRequest(role=log_pb.ROLE_SLAVE), "BAD_ARGUMENT"),
            (pb.PromoteRequest(role=master), "MAY_LOSE_DATA"),
            (pb.PromoteRequest(role=master, epoch=1, end_physical_offset=1), "MAY_LOSE_DATA"),
            (pb.PromoteRequest(role=master, accept_data_loss=True), "MAY_LOSE_DATA"),
            (pb.PromoteRequest(role=master, accept_data_loss=True, epoch=7), "STALE_EPOCH"),
        ):
            assert (await refusal(service(second).Promote(promote))).reason == reason
        await freeze(other.child.pid)
        try:
            await append(first, 2)
            refused = await refusal(service(first).Demote(pb.DemoteRequest(leader_target=there, replica_id="b")))
            assert refused.reason == "REPLICA_BEHIND"
            await append(first, 3)
        finally:
            other.child.send_signal(signal.SIGCONT)
        begun = (await service(first).Promote(pb.PromoteRequest(role=log_pb.ROLE_SYNC_MASTER))).epoch
        assert begun.number == (await status(first)).epoch
        with contextlib.suppress(grpc.aio.AioRpcError):
            await reached(second, (await status(first)).max_physical_offset)


async def test_from_the_command_line(tmp_path: Path) -> None:
    """`reput handover` and `reput promote` work, each once."""
    async with (
        log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a") as one,
        follower(tmp_path / "b", one.port) as other,
        one.client() as first,
    ):
        await append(first, 1)
        await in_sync(first, "ab")
        (row,) = await reput(one, "handover", target(other))
        assert (row["leader"], row["end_physical_offset"]) == ("b", (await until_served(first)).max_physical_offset)
        await leads(first, is_leader=False)
        (again,) = await reput(other, "promote")  # it leads already
        assert again["epoch"] == row["epoch"]
        (row,) = await reput(other, "replicas")
        assert row["replica_id"] == "a"
        result = await asyncio.to_thread(run, "--commitlog", target(one), "promote", "--accept-data-loss")
        assert (result.code, "is there: let it hand over, or stop it" in result.errors) == (5, True)
        await other.end(signal.SIGKILL)
        (row,) = await reput(one, "promote", "--accept-data-loss", "--role", "sync-master")
        found = await leads(first)
        assert (found.epoch, found.role) == (row["epoch"], log_pb.ROLE_SYNC_MASTER)


async def test_how_far_one_has_caught_up(tmp_path: Path) -> None:
    """While the leader limits a follower's catch-up, it reports the follower's progress."""
    pace = ("--catch-up-bytes-per-s", "500")
    async with log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a", *pace) as one, one.client() as first:
        end = 0
        while end < 100_000:
            end = (await append(first, 49)).end_physical_offset
        async with follower(tmp_path / "b", one.port):
            rows: list[Any] = []
            async with asyncio.timeout(LIMIT_S):
                while not rows or not rows[0].get("caught_up_percent"):
                    rows = await reput(one, "replicas")
            (row,) = rows
            assert 0 < row["caught_up_percent"] < 100
            assert row["catch_up_left_s"] >= 0


async def reput(process: log_served.Process, *arguments: str) -> list[Any]:
    """Return the output of a command at a log."""
    result = await asyncio.to_thread(run, "--commitlog", target(process), *arguments, "--json")
    assert result.code == 0, result
    return result.rows


async def test_python_clients_find_the_leader(tmp_path: Path) -> None:
    """Through handovers and a leader's death all messages of a producer are stored.

    A writer's messages are stored once each, in order.
    """
    sent: list[asyncio.Future[Any]] = []
    flags = ("--replica-lag-ms-max", "1000")
    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(log_served.process(tmp_path / "a", *SMALL, "--replica-id", "a", *flags))
        other = await stack.enter_async_context(follower(tmp_path / "b", one.port, *flags))
        third = await stack.enter_async_context(follower(tmp_path / "c", one.port, *flags))
        first, second = [await stack.enter_async_context(process.client()) for process in (one, other)]
        everybody = ",".join(map(target, (one, other, third)))
        client = await stack.enter_async_context(
            AsyncClient(Options(commitlog=everybody, timeout_s=LIMIT_S), RetryPolicy(retries=100))
        )
        await in_sync(first, "abc")
        producer = client.producer(ProducerOptions(durability=Durability.REPLICATED, retry=RetryPolicy(retries=100)))
        writer = client.writer("w", durability=Durability.REPLICATED)
        is_over = asyncio.Event()

        async def load() -> None:
            number = 0
            while not is_over.is_set():
                number += 1
                sent.append(await producer.send_message(NewMessage(T, b"p%d" % number)))
                await writer.append([NewMessage("written", b"w%d" % number, queue_id=0)])
                await asyncio.sleep(0.002)

        loading = asyncio.create_task(load())
        for old, new, there, replica_id in ((first, second, other, "b"), (second, first, one, "a")):
            await more_of(sent)
            await hand_over(old, new, target(there), replica_id)
            await in_sync(new, "abc")
        await one.end(signal.SIGKILL)
        request = pb.PromoteRequest(role=log_pb.ROLE_ASYNC_MASTER, accept_data_loss=True)
        async with asyncio.timeout(LIMIT_S):
            while (await status(second)).following.state == log_pb.FOLLOWING_STATE_FOLLOWING:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        await service(second).Promote(request)
        await third.end(signal.SIGTERM)
        await stack.enter_async_context(follower(tmp_path / "c", other.port, *flags))
        await in_sync(second, "bc")
        await more_of(sent)
        is_over.set()
        await loading
        written = await writer.flush()
        await producer.flush()
        results = [await future for future in sent]
        stored = await bodies_of(second)
    assert len(sent) > 50
    assert written.message_count == len(sent)
    assert {result.durability for result in results} == {Durability.REPLICATED}
    assert {b"p%d" % number for number in range(1, len(sent) + 1)} <= set(stored)
    assert [body for body in stored if body.startswith(b"w")] == [b"w%d" % number for number in range(1, len(sent) + 1)]


async def bodies_of(client: log_served.Client) -> list[bytes]:
    """Return all bodies of a log."""
    end = (await status(client)).confirmed_physical_offset
    request = log_pb.StreamRecordsRequest(end_physical_offset=end, view=log_pb.RECORD_VIEW_MESSAGES)
    return [bytes(message.body) async for answer in client.log.StreamRecords(request) for message in answer.messages]
