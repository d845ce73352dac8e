# SPDX-License-Identifier: Apache-2.0
"""The leader dies after purges, deletions and changes of rules: no reader of the other logs gets hidden messages.

Three logs elect a leader by a Lease, each with an Indexer of its own. An Indexer builds its indexes from nothing, and a
Janitor goes on with the rules at the new leader.
"""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb
from reput.janitor.v1 import retention_service_pb2 as retention_pb
from reput.janitor.v1 import retention_service_pb2_grpc

from libs.runtime.process import running
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.janitor.bootstrap import Service as Janitor
from services.janitor.bootstrap import Settings as JanitorSettings
from services.janitor.config import JanitorConfig
from tests.e2e.test_kubernetes_elections import LeaseTrio, lease_trio
from tests.support import served_indexer
from tests.support.lease_server import LeaseServer
from tests.support.patience import LIMIT_S
from tests.support.trusted import trusted

pytestmark = pytest.mark.e2e

PURGED, GONE, BOUND, WIDE = TOPICS = "purged", "gone", "bound", "wide"
BODY_SIZE, LIMIT_BYTES = 1_000, 4_000
"""Three messages fit into the limit: a record is somewhat larger than its body."""
Shown = dict[str, list[str]]


@pytest.fixture
async def server() -> AsyncIterator[LeaseServer]:
    """The API server with the Lease and the pods."""
    made = LeaseServer()
    made.pods = {name: {} for name in "abc"}
    await made.start()
    yield made
    await made.stop()


async def _append(logs: LeaseTrio, leader: str, topic: str, *bodies: str) -> None:
    """Append replicated messages, each with its topic as its key."""
    for body in bodies:
        message = append_pb.AppendMessage(
            topic=topic, queue_id=0, body=body.encode().ljust(BODY_SIZE), properties={"KEYS": topic}
        )
        await logs.clients[leader].append.Append(append_pb.AppendRequest(messages=[message]))


@contextlib.asynccontextmanager
async def _indexer(logs: LeaseTrio, name: str) -> AsyncIterator[tuple[served_indexer.Client, str]]:
    """The Indexer of a log, which has indexed all of it, and its address."""
    target = f"127.0.0.1:{logs.processes[name].port}"
    async with (
        served_indexer.process(logs.directory / f"index-{name}", target) as process,
        process.client() as client,
    ):
        await client.wait_indexed((await logs.status(name)).confirmed_physical_offset)
        yield client, f"127.0.0.1:{process.port}"
        await process.end(signal.SIGTERM)


async def _shown(index: served_indexer.Client) -> Shown:
    """The messages of each topic that readers get by offset, and those by key too where the two differ."""
    found: Shown = {}
    for topic in TOPICS:
        request = queue_pb.PullRequest(topic=topic, queue_id=0, message_count_max=100, size_bytes_max=1 << 20)
        pulled = await index.queues.Pull(request)
        request.queue_offset = pulled.min_queue_offset
        pulled = await index.queues.Pull(request)
        by_key = await index.queries.QueryByKey(query_pb.QueryByKeyRequest(topic=topic, key=topic, page_size=100))
        by_offset = [message.body.decode().strip() for message in pulled.messages]
        of_key = [message.body.decode().strip() for message in by_key.messages]
        same = sorted(by_offset) == sorted(of_key)
        found[topic] = by_offset if same else ["by offset", *by_offset, "by key", *of_key]
    return found


async def _eventually(index: served_indexer.Client, expected: Shown) -> None:
    """Wait until readers get these messages, by offset and by key. The Indexer may learn of a change in between."""
    async with asyncio.timeout(LIMIT_S):
        while (found := await _shown(index)) != expected:  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.05)
    assert found == expected


async def _run_janitor(logs: LeaseTrio, leader: str, index_target: str) -> int:
    """Let a Janitor run once beside a log and an Indexer. Return how many messages expired."""
    settings = JanitorSettings(
        engine=JanitorConfig(data_dir=logs.directory / f"janitor-{leader}", retention_hours=100),
        commitlog=PeerConfig(target=f"127.0.0.1:{logs.processes[leader].port}"),
        indexer=PeerConfig(target=index_target),
        server=ServerConfig(port=0),
        telemetry=TelemetryConfig(metrics_port=0),
    )
    async with (
        running(Janitor, settings) as janitor,
        trusted(grpc.aio.insecure_channel(f"127.0.0.1:{janitor.server.port}")) as channel,
    ):
        stub = retention_service_pb2_grpc.RetentionServiceStub(channel)
        run = (await stub.RunOnce(retention_pb.RunOnceRequest())).run
        assert not run.error
        status = await stub.GetStatus(retention_pb.GetStatusRequest())
        return int(status.expired_message_count)


async def _change(logs: LeaseTrio, leader: str) -> None:
    """Purge, delete, bound and widen topics that have messages."""
    topics = logs.clients[leader].topics
    for topic in TOPICS:
        await topics.CreateTopic(topic_pb.CreateTopicRequest(name=topic, read_queue_count=1, write_queue_count=1))
        await _append(logs, leader, topic, *(f"old{number}" for number in range(5)))
    await topics.PurgeTopic(topic_pb.PurgeTopicRequest(name=PURGED))
    await topics.DeleteTopic(topic_pb.DeleteTopicRequest(name=GONE))
    await topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=BOUND, retention_bytes=LIMIT_BYTES))
    await topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=WIDE, read_queue_count=4))
    await topics.UpdateTopic(topic_pb.UpdateTopicRequest(name=WIDE, write_queue_count=4))


async def test_the_leader_dies(tmp_path: Path, server: LeaseServer) -> None:
    """Hidden messages stay hidden at the new leader, for a copy's Indexer that is new, and at the old leader again.

    The new leader has the rule and the queues, and its Janitor continues with the rule.
    """
    olds = [f"old{number}" for number in range(5)]
    async with lease_trio(tmp_path, server.config_file(tmp_path), "--role", "sync_master") as logs:
        first = await logs.leader(in_sync=3)
        await _change(logs, first)
        async with _indexer(logs, first) as (index, target):
            assert await _run_janitor(logs, first, target) == 2
            shown: Shown = {PURGED: [], GONE: [], BOUND: olds[2:], WIDE: olds}
            await _eventually(index, shown)
            await logs.processes[first].end(signal.SIGKILL)
        second = await logs.leader(but=first)
        for topic in (PURGED, GONE, BOUND):
            await _append(logs, second, topic, "new")
            shown[topic] = [*shown[topic], "new"]
        found = (await logs.clients[second].topics.GetTopic(topic_pb.GetTopicRequest(name=BOUND))).topic
        assert found.retention_bytes == LIMIT_BYTES
        found = (await logs.clients[second].topics.GetTopic(topic_pb.GetTopicRequest(name=WIDE))).topic
        assert (found.read_queue_count, found.write_queue_count) == (4, 4)
        async with _indexer(logs, second) as (index, target):
            await _eventually(index, shown)
            assert await _run_janitor(logs, second, target) == 1
            shown[BOUND] = shown[BOUND][1:]
            await _eventually(index, shown)
        shutil.rmtree(tmp_path / f"index-{second}")
        async with _indexer(logs, second) as (index, _):
            await _eventually(index, shown)
        await logs.start(first)
        await logs.leader(in_sync=3)
        async with _indexer(logs, first) as (index, _):
            await _eventually(index, shown)
