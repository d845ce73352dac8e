# SPDX-License-Identifier: Apache-2.0
"""Three logs that elect a leader by a real etcd: leaders are killed, frozen, stopped and cut off under load."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED
from reput_client import Durability, NewMessage, Options, ProducerOptions, RetryPolicy
from reput_client.aio import AsyncClient

from tests.e2e.test_replication import SMALL, T, compared
from tests.e2e.test_roles_at_run_time import bodies_of, reput, target
from tests.support import served_commitlog as log_served
from tests.support.etcd_server import ETCD, NO_ETCD, EtcdServer
from tests.support.patience import LIMIT_S, freeze
from tests.support.reput_up import run
from tests.support.service_process import Refusal
from tests.support.surroundings import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(ETCD is None, reason=NO_ETCD)]

QUICK = ("--lease-duration-ms", "2000", "--lease-renew-ms", "500", "--reconnect-ms-max", "100")
LATE = ("--replica-lag-ms-max", "1000")


class Trio:
    """Logs a, b and c on their directories and ports, and their etcd."""

    def __init__(self, directory: Path, stack: contextlib.AsyncExitStack, *flags: str) -> None:
        self.directory, self._stack, self._flags = directory, stack, flags
        self.etcd = EtcdServer(directory / "etcd")
        self._ports = {name: free_port() for name in "abc"}
        self.processes: dict[str, log_served.Process] = {}
        self.clients: dict[str, log_served.Client] = {}

    def coordinator(self, name: str) -> tuple[str, ...]:
        """Return the flags by which a log finds the coordinator."""
        return ("--coordinator", "etcd", "--etcd-targets", self.etcd.target)

    async def start(self, name: str) -> None:
        """Start a log, and wait until it serves."""
        own = ("--bootstrap-replica-id", "a", "--replica-id", name, "--port", str(self._ports[name]))
        process = await self._stack.enter_async_context(
            log_served.process(
                self.directory / name, *SMALL, *QUICK, *LATE, *self.coordinator(name), *own, *self._flags
            )
        )
        self.processes[name] = process
        self.clients[name] = await self._stack.enter_async_context(process.client())

    async def status(self, name: str) -> log_pb.GetStatusResponse:
        """Return the status of a log, or an empty status if the log does not answer."""
        try:
            return await self.clients[name].log.GetStatus(log_pb.GetStatusRequest(), timeout=1)
        except grpc.aio.AioRpcError:
            return log_pb.GetStatusResponse()

    async def leader(self, *, but: str = "", in_sync: int = 2) -> str:
        """Wait until a log leads with this many in sync, and return its name."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                for name in self.clients:
                    found = await self.status(name)
                    leads = found.state == log_pb.LOG_STATE_SERVING and not found.HasField("following")
                    if name != but and leads and found.is_writable and found.live_in_sync_count >= in_sync:
                        return name
                await asyncio.sleep(0.02)

    @property
    def targets(self) -> str:
        """The addresses of all logs."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())


@contextlib.asynccontextmanager
async def trio(directory: Path, *flags: str) -> AsyncIterator[Trio]:
    """Three logs, all in sync."""
    async with contextlib.AsyncExitStack() as stack:
        logs = Trio(directory, stack, *flags)
        logs.etcd.start()
        stack.callback(logs.etcd.kill)
        for name in "abc":
            await logs.start(name)
        await logs.leader(in_sync=3)
        yield logs


class Load:
    """A writer and a producer, which ask for REPLICATED during all events."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.sent: list[asyncio.Future[Any]] = []
        self._is_over = asyncio.Event()
        self.longest_s = 0.0
        """Longest time in which nothing was acknowledged to the writer."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        """Run the load for a block. In the end all messages are acknowledged."""
        retry = RetryPolicy(retries=100, delay_max_s=0.2)
        producer = self._client.producer(ProducerOptions(durability=Durability.REPLICATED, retry=retry))
        writer = self._client.writer("w", durability=Durability.REPLICATED)
        loading = asyncio.create_task(self._load(producer, writer))
        try:
            yield self
        finally:
            self._is_over.set()
            await loading
        await writer.flush()
        await producer.flush()
        assert {(await future).durability for future in self.sent} == {Durability.REPLICATED}

    async def _load(self, producer: Any, writer: Any) -> None:
        number = 0
        while not self._is_over.is_set():
            number, began_s = number + 1, time.monotonic()
            self.sent.append(await producer.send_message(NewMessage(T, b"p%d" % number)))
            await writer.append([NewMessage("written", b"w%d" % number, queue_id=0)])
            await writer.flush()
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)

    def check(self, stored: list[bytes]) -> None:
        """Check that a producer's messages are all there, and a writer's once each and in order."""
        numbers = range(1, len(self.sent) + 1)
        assert {b"p%d" % number for number in numbers} <= set(stored)
        assert [body for body in stored if body.startswith(b"w")] == [b"w%d" % number for number in numbers]


@contextlib.asynccontextmanager
async def loaded(logs: Trio) -> AsyncIterator[Load]:
    """A load on all logs."""
    options = Options(commitlog=logs.targets, timeout_s=LIMIT_S)
    async with (
        AsyncClient(options, RetryPolicy(retries=100, delay_max_s=0.2)) as client,
        Load(client).running() as load,
    ):
        yield load


@pytest.mark.parametrize("role", ["async_master", "sync_master"])
async def test_leaders_die(tmp_path: Path, role: str) -> None:
    """After a leader's death another log leads by itself.

    No replicated message is lost, and the dead log comes back as a follower.
    """
    async with trio(tmp_path, "--role", role) as logs:
        async with loaded(logs) as load:
            for _ in range(3):
                await asyncio.sleep(0.3)
                dead = await logs.leader(in_sync=3)
                epoch = (await logs.status(dead)).epoch
                await logs.processes[dead].end(signal.SIGKILL)
                new = await logs.leader(but=dead)
                assert (await logs.status(new)).epoch > epoch
                await logs.start(dead)
                await logs.leader(in_sync=3)
        leader = await logs.leader(in_sync=3)
        load.check(await bodies_of(logs.clients[leader]))
        await all_the_same(logs, leader)
    assert compared(tmp_path) > len(load.sent)


async def all_the_same(logs: Trio, leader: str) -> None:
    """Wait until all logs have synced everything, and stop the followers before the leader.

    So no log begins another epoch.
    """
    end = (await logs.status(leader)).max_physical_offset
    for name in sorted(logs.clients, key=lambda each: each == leader):
        async with asyncio.timeout(LIMIT_S):
            while (await logs.status(name)).flushed_physical_offset < end:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
        await logs.processes[name].end(signal.SIGTERM)


async def test_leaders_stop(tmp_path: Path) -> None:
    """An orderly stop hands the lead over without waiting for the lease.

    No acknowledged message is lost, at any durability.
    """
    async with trio(tmp_path, "--lease-duration-ms", "60000") as logs:
        stored: dict[int, bytes] = {}
        for number in range(6):
            leader = await logs.leader(in_sync=3)
            body = b"%d " % number * 20
            messages = [append_pb.AppendMessage(topic=T, body=body)]
            request = append_pb.AppendRequest(messages=messages, durability=DURABILITY_LOCAL_DISK)
            answer = await logs.clients[leader].append.Append(request)
            stored[answer.result.start_physical_offset] = body
            if number % 2:
                began_s = time.monotonic()
                await logs.processes[leader].end(signal.SIGTERM)
                await logs.leader(but=leader)
                assert time.monotonic() - began_s < 48  # the lease's own end
                await logs.start(leader)
        leader = await logs.leader(in_sync=3)
        assert await bodies_of(logs.clients[leader]) == list(stored.values())


async def test_a_frozen_leader(tmp_path: Path) -> None:
    """A leader that was frozen and continues acknowledges no message that it may lose, and follows."""
    async with trio(tmp_path) as logs:
        old = await logs.leader(in_sync=3)
        messages = [append_pb.AppendMessage(topic=T, body=b"frozen")]
        request = append_pb.AppendRequest(messages=messages, durability=DURABILITY_LOCAL_DISK)
        await freeze(logs.processes[old].child.pid)
        waiting = asyncio.ensure_future(_append(logs.clients[old], request))
        await logs.leader(but=old)
        logs.processes[old].child.send_signal(signal.SIGCONT)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await waiting
        assert Refusal(refused.value).reason in ("LEASE_OVER", "NOT_LEADER", "RECOVERING")
        await logs.leader(but=old, in_sync=3)


async def _append(client: log_served.Client, request: append_pb.AppendRequest) -> append_pb.AppendResponse:
    return await client.append.Append(request, timeout=LIMIT_S)


async def test_without_etcd(tmp_path: Path) -> None:
    """Without etcd the leader continues while all others promise not to stand for election, and no longer.

    After a restart of etcd its epoch is the same if no other log led.
    """
    async with trio(tmp_path) as logs:
        leader = await logs.leader(in_sync=3)
        epoch = (await logs.status(leader)).epoch
        logs.etcd.kill()
        for durability in (DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED) * 4:
            await asyncio.sleep(0.8)
            messages = [append_pb.AppendMessage(topic=T, body=b"by promises")]
            await logs.clients[leader].append.Append(append_pb.AppendRequest(messages=messages, durability=durability))
        found = await logs.status(leader)
        assert "promised" in found.election.decision, found.election
        assert (found.epoch, found.is_writable) == (epoch, True)
        await logs.processes[next(name for name in "abc" if name != leader)].end(signal.SIGKILL)
        async with asyncio.timeout(LIMIT_S):
            while (found := await logs.status(leader)).is_writable:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
        assert (list(found.refusals), found.election.lease_left_ms) == (["NOT_LEADER"], 0)
        logs.etcd.start()
        again = await logs.leader()
        found = await logs.status(again)
        assert found.epoch == epoch or again != leader or found.epoch > epoch
        assert found.election.leader_replica_id == again


async def test_handover(tmp_path: Path) -> None:
    """`reput handover` names the next leader, and all logs learn it from the record."""
    async with trio(tmp_path) as logs:
        leader = await logs.leader(in_sync=3)
        other = next(name for name in "abc" if name != leader)
        (row,) = await reput(logs.processes[leader], "handover", target(logs.processes[other]))
        assert row["leader"] == other
        assert await logs.leader(in_sync=3) == other
        for name in "abc":
            assert (await logs.status(name)).election.leader_replica_id == other
        await logs.leader(in_sync=3)
        result = await asyncio.to_thread(run, "--commitlog", logs.targets, "replicas", "--json")
        rows = {row["replica_id"]: row for row in result.rows}
        assert (result.code, sorted(rows), rows[other]["state"]) == (0, ["a", "b", "c"], "LEADING")
        assert [row["is_in_sync"] for row in rows.values()] == [True] * 3
        assert {row["epoch"] for row in rows.values()} == {rows[other]["epoch"]}
        await logs.processes[other].end(signal.SIGKILL)
        result = await asyncio.to_thread(run, "--commitlog", logs.targets, "replicas", "--json")
        assert (result.code, [row["target"] for row in result.rows if row["state"] == "UNREACHABLE"]) == (
            4, [target(logs.processes[other])]
        )  # fmt: skip
