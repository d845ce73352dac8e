# SPDX-License-Identifier: Apache-2.0
"""The Indexer's API over gRPC with a real CommitLog behind it: the answers of each RPC."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.common.v1 import consumer_pb2
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb
from reput.indexer.v1 import scan_service_pb2 as scan_pb

from services.indexer.engine.answer.pull import PullStatus
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.rpc import consumer_offset_servicer
from tests.support.commitlog import message
from tests.support.patience import LIMIT_S
from tests.support.records import stored_message
from tests.support.served_commitlog import Client as LogClient
from tests.support.served_commitlog import served as served_log
from tests.support.served_indexer import Client, served
from tests.support.service_process import Refusal

T = "orders"


@contextlib.asynccontextmanager
async def store(tmp_path: Path, **config: Any) -> AsyncIterator[tuple[LogClient, Client]]:
    """A CommitLog and an Indexer over the same directory, which they may share."""
    async with served_log(tmp_path) as (log_service, log):
        target = f"127.0.0.1:{log_service.server.port}"
        async with served(tmp_path, target, **config) as (_, client):
            await client.wait_indexed(0)
            yield log, client


async def put(log: LogClient, client: Client, *batch: append_pb.AppendMessage) -> append_pb.AppendResult:
    """Append messages and wait until they are indexed. The result has the offsets of all of them."""
    total = append_pb.AppendResult()
    for start in range(0, len(batch), 100):
        total.MergeFrom((await log.append.Append(append_pb.AppendRequest(messages=batch[start : start + 100]))).result)
    await client.wait_indexed(total.physical_offsets[-1] + 1)
    return total


def new(index: int, queue_id: int = 0, topic: str = T, **properties: str) -> append_pb.AppendMessage:
    """Message number `index`."""
    names = {"KEYS": f"k{index} all", "TAGS": "ab"[index % 2], "UNIQ_KEY": f"U{index}", **properties}
    return message(b"body %d" % index, topic=topic, queue_id=queue_id, properties=names)


async def test_pull_returns_what_was_appended(tmp_path: Path) -> None:
    """Every field of a pulled message equals the field of the appended message."""
    async with store(tmp_path) as (log, client):
        result = await put(log, client, *[new(index) for index in range(10)])
        answer = await client.queues.Pull(queue_pb.PullRequest(topic=T, queue_offset=3, message_count_max=4))
        assert answer.status == queue_pb.PULL_STATUS_FOUND
        assert (answer.next_queue_offset, answer.min_queue_offset, answer.max_queue_offset) == (7, 0, 10)
        assert [found.body for found in answer.messages] == [b"body %d" % index for index in range(3, 7)]
        first = answer.messages[0]
        assert (first.topic, first.queue_id, first.queue_offset) == (T, 0, 3)
        assert first.physical_offset == result.physical_offsets[3]
        assert {"KEYS": "k3 all", "TAGS": "b", "UNIQ_KEY": "U3"}.items() <= dict(first.properties).items()
        answer = await client.queues.Pull(queue_pb.PullRequest(topic=T, tag_expression="b", message_count_max=2))
        assert [found.queue_offset for found in answer.messages] == [1, 3]


async def test_records_are_the_log_s_own(tmp_path: Path) -> None:
    """A pull, a stream and queries that want records get the bytes that the log has, of the same messages."""
    async with store(tmp_path) as (log, client):
        result = await put(log, client, *[new(index) for index in range(10)])
        raw = log_pb.ReadRecordsRequest(physical_offsets=result.physical_offsets[1::2], view=log_pb.RECORD_VIEW_RAW)
        odd = (await log.log.ReadRecords(raw)).records
        wanted: dict[str, Any] = {"topic": T, "wants_records": True}
        pulled = await client.queues.Pull(queue_pb.PullRequest(tag_expression="b", **wanted))
        call = client.queues.Subscribe(queue_pb.SubscribeRequest(tag_expression="b", **wanted))
        step = await call.read()
        call.cancel()
        by_time = await client.queries.QueryByTime(query_pb.QueryByTimeRequest(where="TAGS = 'b'", **wanted))
        for answer in (pulled, step, by_time):
            assert (answer.records, answer.record_count, len(answer.messages)) == (odd, 5, 0)
        by_key = await client.queries.QueryByKey(query_pb.QueryByKeyRequest(key="k3", **wanted))
        plain = await client.queries.QueryByKey(query_pb.QueryByKeyRequest(topic=T, key="k3"))
        assert [stored_message(by_key.records, 0)] == list(plain.messages)


async def test_statuses_have_the_protocol_s_numbers() -> None:
    """The engine's enums and the protocol's have the same names and numbers."""
    for mine, theirs, prefix in (
        (PullStatus, queue_pb.PullStatus, "PULL_STATUS_"),
        (ReputState, index_pb.ReputState, "REPUT_STATE_"),
    ):
        assert {prefix + item.name: item.value for item in mine} == {
            name: value for name, value in theirs.items() if value
        }


async def test_a_long_poll_ends_with_the_first_message(tmp_path: Path) -> None:
    """An append answers a waiting pull long before its time is over."""
    async with store(tmp_path) as (log, client):
        request = queue_pb.PullRequest(topic=T, wait=Duration(seconds=30))
        waiting = asyncio.ensure_future(client.queues.Pull(request))
        await asyncio.sleep(0.05)
        await put(log, client, new(0))
        async with asyncio.timeout(25):  # it would wait for half a minute by itself
            answer = await waiting
        assert [found.body for found in answer.messages] == [b"body 0"]


async def test_subscribe_follows_a_queue(tmp_path: Path) -> None:
    """A stream on a queue that does not exist yet gets all its messages, in order.

    A new stream resumes at its offset.
    """
    async with store(tmp_path) as (log, client):
        call = client.queues.Subscribe(queue_pb.SubscribeRequest(topic=T, message_count_max=7))
        found: list[int] = []

        async def read() -> None:
            async for step in call:
                found.extend(entry.queue_offset for entry in step.messages)
                if len(found) == 60:
                    assert (step.next_queue_offset, step.max_queue_offset) == (60, 60)
                    return

        reader = asyncio.ensure_future(read())
        for start in range(0, 60, 20):
            await put(log, client, *[new(index) for index in range(start, start + 20)])
        async with asyncio.timeout(LIMIT_S):
            await reader
        call.cancel()
        assert found == list(range(60))
        again = client.queues.Subscribe(queue_pb.SubscribeRequest(topic=T, queue_offset=58))
        step = await again.read()
        assert [entry.queue_offset for entry in step.messages] == [58, 59]
        again.cancel()


@pytest.mark.parametrize(
    ("start", "status", "next_offset"),
    [(99, queue_pb.PULL_STATUS_OFFSET_OVERFLOW_BADLY, 4), (0, queue_pb.PULL_STATUS_FOUND, 4)],
)
async def test_subscribe_outside_of_the_queue(tmp_path: Path, start: int, status: int, next_offset: int) -> None:
    """A subscription at an offset outside the queue is answered with the status and the next offset.

    The stream continues from there.
    """
    async with store(tmp_path) as (log, client):
        await put(log, client, *[new(index) for index in range(4)])
        call = client.queues.Subscribe(queue_pb.SubscribeRequest(topic=T, queue_offset=start))
        step = await call.read()
        assert (step.status, step.next_queue_offset) == (status, next_offset)
        await put(log, client, new(4))
        step = await call.read()
        assert [entry.queue_offset for entry in step.messages] == [4]
        call.cancel()
        far = client.queues.Subscribe(queue_pb.SubscribeRequest(topic="none", queue_offset=9))
        step = await far.read()
        assert (step.status, step.next_queue_offset) == (queue_pb.PULL_STATUS_OFFSET_OVERFLOW_BADLY, 0)
        far.cancel()


async def test_subscriptions_are_bounded(tmp_path: Path) -> None:
    """A subscription above the limit is refused. When a subscription ends, there is room again."""
    async with store(tmp_path, stream_count_max=1) as (log, client):
        await put(log, client, new(0))
        first = client.queues.Subscribe(queue_pb.SubscribeRequest(topic=T))
        await first.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.queues.Subscribe(queue_pb.SubscribeRequest(topic=T)).read()
        assert Refusal(caught.value).reason == "WINDOW_FULL"
        first.cancel()
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    call = client.queues.Subscribe(queue_pb.SubscribeRequest(topic=T))
                    await call.read()
                    call.cancel()
                    break


@pytest.mark.parametrize("length", [100, 9_000, 200_000])
async def test_a_long_id_is_refused_with_a_reason(tmp_path: Path, length: int) -> None:
    """The refusal of an unknown id of any length fits into gRPC's limit of metadata."""
    async with store(tmp_path) as (log, client):
        await put(log, client, new(0))
        for topic in (T, ""):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.queries.QueryById(query_pb.QueryByIdRequest(topic=topic, message_id="ä" * length))
            refusal = Refusal(caught.value)
            assert refusal.reason in ("MESSAGE_NOT_FOUND", "BAD_ARGUMENT", "REQUEST_TOO_LARGE")
            assert len(refusal.message.encode()) <= 600


async def test_queues_and_offsets_by_time(tmp_path: Path) -> None:
    """Ranges, lists and times agree with the appended messages."""
    async with store(tmp_path) as (log, client):
        stamps = []
        for index in range(6):
            stamps.append((await put(log, client, new(index, index % 2))).store_time_ms)
            await asyncio.sleep(0.003)
        await put(log, client, new(0, 3, "other"))
        listed = await client.queues.ListQueues(queue_pb.ListQueuesRequest(page_size=2))
        assert [(queue.topic, queue.queue_id, queue.max_queue_offset) for queue in listed.queues] == [
            (T, 0, 3), (T, 1, 3),
        ]  # fmt: skip
        rest = await client.queues.ListQueues(
            queue_pb.ListQueuesRequest(page_size=2, page_token=listed.next_page_token)
        )
        assert ([(queue.topic, queue.queue_id) for queue in rest.queues], rest.next_page_token) == ([("other", 3)], "")
        one = (await client.queues.GetQueueRange(queue_pb.GetQueueRangeRequest(topic=T, queue_id=1))).queue
        assert (one.min_queue_offset, one.max_queue_offset) == (0, 3)
        assert one.first_store_time.ToMilliseconds() == stamps[1]
        assert one.last_store_time.ToMilliseconds() == stamps[5]
        pulled = await client.queues.Pull(queue_pb.PullRequest(topic=T, queue_id=1))
        sizes = [message.record_size_bytes for message in pulled.messages]

        async def size_bytes(start: int, *others: int) -> int:
            fields = {"size_start_queue_offset": start, "size_queue_offsets": others}
            request = queue_pb.GetQueueRangeRequest(topic=T, queue_id=1, **fields)  # type: ignore[arg-type]
            return (await client.queues.GetQueueRange(request)).size_bytes

        assert [await size_bytes(start) for start in range(4)] == [sum(sizes[start:]) for start in range(4)]
        assert await size_bytes(2, 0, 99) == sizes[0] + sizes[2]

        parts = [
            queue_pb.QueuePart(topic=T, queue_id=1, start_queue_offset=2, queue_offsets=[0, 99], time_queue_offset=1),
            queue_pb.QueuePart(topic=T, queue_id=0, start_queue_offset=3, time_queue_offset=3),
            queue_pb.QueuePart(topic=T, queue_id=9, time_queue_offset=0),
            queue_pb.QueuePart(topic="nothing"),
        ]
        measured = (await client.queues.MeasureQueues(queue_pb.MeasureQueuesRequest(parts=parts))).measures
        assert [measure.max_queue_offset for measure in measured] == [3, 3, 0, 0]
        assert [measure.size_bytes for measure in measured] == [sizes[0] + sizes[2], 0, 0, 0]
        assert [measure.HasField("store_time") for measure in measured] == [True, False, False, False]
        assert measured[0].store_time.ToMilliseconds() == stamps[3]

        async def at(time_ms: int, boundary: int) -> int:
            time = Timestamp()
            time.FromMilliseconds(time_ms)
            request = queue_pb.GetOffsetByTimeRequest(topic=T, queue_id=1, time=time, boundary=boundary)  # type: ignore[arg-type]
            return (await client.queues.GetOffsetByTime(request)).queue_offset

        assert [await at(stamps[3] + nudge, queue_pb.BOUNDARY_LOWER) for nudge in (-1, 0, 1)] == [1, 1, 2]
        assert [await at(stamps[3] + nudge, queue_pb.BOUNDARY_UPPER) for nudge in (-1, 0, 1)] == [0, 1, 1]
        assert [await at(0, 0), await at(stamps[5] + 1, 0), await at(0, 2), await at(stamps[5] + 1, 2)] == [0, 3, 0, 2]


async def test_queries(tmp_path: Path) -> None:
    """Messages are found by key, by time, by offset id and by unique id."""
    async with store(tmp_path) as (log, client):
        result = await put(log, client, *[new(index) for index in range(300)])
        page = await client.queries.QueryByKey(query_pb.QueryByKeyRequest(topic=T, key="k7"))
        assert [found.body for found in page.messages] == [b"body 7"]
        found: list[bytes] = []
        request = query_pb.QueryByKeyRequest(topic=T, key="all", page_size=64)
        while True:
            page = await client.queries.QueryByKey(request)
            found += [entry.body for entry in page.messages]
            assert page.indexed_physical_offset > result.physical_offsets[-1]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert found == [b"body %d" % index for index in reversed(range(300))]
        timed = await client.queries.QueryByTime(query_pb.QueryByTimeRequest(topic=T, queue_id=0, page_size=1024))
        assert [entry.queue_offset for entry in timed.messages] == list(range(300))
        offset_id = timed.messages[9].offset_message_id
        for request_by_id in (
            query_pb.QueryByIdRequest(message_id=offset_id),
            query_pb.QueryByIdRequest(topic=T, message_id="U9"),
        ):
            assert (await client.queries.QueryById(request_by_id)).message.body == b"body 9"


async def test_scans(tmp_path: Path) -> None:
    """A plan's partitions read all rows as Arrow, by range and by key."""
    async with store(tmp_path) as (log, client):
        await put(log, client, *[new(index, index % 4) for index in range(400)])
        for keys, expected in (([], 400), (["k5", "k399", "none"], 2), (["all"], 400)):
            scan_filter = scan_pb.ScanFilter(keys=keys)
            plan = await client.scans.PlanScan(
                scan_pb.PlanScanRequest(topics=[T], filter=scan_filter, partition_count_min=3)
            )
            bodies: list[bytes] = []
            for partition in plan.partitions:
                call = client.scans.Scan(
                    scan_pb.ScanRequest(
                        partition=partition, filter=scan_filter, frame_size_bytes=5_000, compression="lz4"
                    )
                )
                async for step in call:
                    table = pa.ipc.open_stream(step.arrow_ipc).read_all()
                    assert table.num_rows == step.row_count
                    assert step.HasField("range") != bool(keys)
                    bodies += table["value"].to_pylist()
            assert len(bodies) == len(set(bodies)) == expected


Answer = TypeVar("Answer")


async def retried(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer of a call that the Indexer refuses until it has read the positions of groups from the log."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                return await call()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)


async def test_consumer_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups commit, read, list and reset their offsets, with their lag, and keep them after a restart."""
    offset = offset_pb.ConsumerOffset
    async with store(tmp_path) as (log, client):
        await put(log, client, *[new(index, index % 2) for index in range(10)])
        commit = offset_pb.CommitConsumerOffsetRequest(
            group="g",
            offsets=[offset(topic=T, queue_id=0, queue_offset=3), offset(topic=T, queue_id=1, queue_offset=5)],
        )
        await client.offsets.CommitConsumerOffset(commit)
        got = await client.offsets.GetConsumerOffset(offset_pb.GetConsumerOffsetRequest(group="g", topic=T))
        assert (got.offset.queue_offset, got.offset.lag) == (3, 2)
        reset = offset_pb.ResetConsumerOffsetRequest(group="h", topic=T, latest=True)
        moved = await client.offsets.ResetConsumerOffset(reset)
        assert [(o.queue_id, o.queue_offset, o.lag) for o in moved.offsets] == [(0, 5, 0), (1, 5, 0)]
        assert b'"orders@h"' in (tmp_path / "config" / "consumerOffset.json").read_bytes()
        reset = offset_pb.ResetConsumerOffsetRequest(group="h", topic=T, time=Timestamp(seconds=1))
        moved = await client.offsets.ResetConsumerOffset(reset)
        assert [o.queue_offset for o in moved.offsets] == [0, 0]
        gone = offset_pb.CommitConsumerOffsetRequest(group="i", offsets=[offset(topic=T), offset(topic="U")])
        await client.offsets.CommitConsumerOffset(gone)
        for topic, count in (("U", 1), ("", 1), ("", 0)):
            delete = offset_pb.DeleteConsumerGroupRequest(group="i", topic=topic)
            assert (await client.offsets.DeleteConsumerGroup(delete)).deleted_offset_count == count
        assert b"@i" not in (tmp_path / "config" / "consumerOffset.json").read_bytes()
    async with store(tmp_path) as (_, client):
        request = offset_pb.ListConsumerGroupsRequest(page_size=1)
        page = await retried(lambda: client.offsets.ListConsumerGroups(request))
        assert [(g.group, [o.queue_offset for o in g.offsets]) for g in page.groups] == [("g", [3, 5])]
        request = offset_pb.ListConsumerGroupsRequest(page_size=1, page_token=page.next_page_token)
        page = await client.offsets.ListConsumerGroups(request)
        assert ([g.group for g in page.groups], page.next_page_token) == (["h"], "")
        monkeypatch.setattr(consumer_offset_servicer, "PAGE_OFFSET_COUNT_MAX", 1)
        request, parts = offset_pb.ListConsumerGroupsRequest(), []
        while not parts or request.page_token:  # a group with more than a page holds comes in parts
            page = await client.offsets.ListConsumerGroups(request)
            parts += [(g.group, [o.queue_id for o in g.offsets]) for g in page.groups]
            request.page_token = page.next_page_token
        assert parts == [("g", [0]), ("g", [1]), ("h", [0]), ("h", [1])]


async def test_trim_and_status(tmp_path: Path) -> None:
    """After a trim readers get no older messages, and the status has the new minimum.

    The Indexer reports its progress to the log.
    """
    async with store(tmp_path, flush_interval_ms=20, flush_thorough_interval_ms=20) as (log, client):
        result = await put(log, client, *[new(index) for index in range(500)])
        async with asyncio.timeout(LIMIT_S):
            while (await client.status()).flushed_physical_offset <= result.physical_offsets[-1]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            while (await log.log.GetStatus(log_pb.GetStatusRequest())).indexed_physical_offset == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        offset = offset_pb.ConsumerOffset(topic=T, queue_id=0, queue_offset=7)
        await client.offsets.CommitConsumerOffset(offset_pb.CommitConsumerOffsetRequest(group="g", offsets=[offset]))
        request = index_pb.TrimToRequest(min_physical_offset=result.physical_offsets[450], dry_run=True)
        dry = await client.index.TrimTo(request)
        below = consumer_pb2.ConsumerBelow(group="g", topic=T, queue_id=0, queue_offset=7, min_queue_offset=450)
        assert (list(dry.consumers), dry.consumer_count) == ([below], 1)
        assert (dry.deleted_queue_file_count, dry.deleted_index_file_count) == (4, 6)
        assert 0 < dry.freed_bytes <= dry.own_bytes
        assert (await client.queues.Pull(queue_pb.PullRequest(topic=T))).status == queue_pb.PULL_STATUS_FOUND
        trimmed = await client.index.TrimTo(index_pb.TrimToRequest(min_physical_offset=result.physical_offsets[450]))
        assert (list(trimmed.consumers), trimmed.consumer_count) == ([below], 1)
        assert (trimmed.deleted_queue_file_count, trimmed.deleted_index_file_count) == (4, 6)
        assert trimmed.freed_bytes > 0
        answer = await client.queues.Pull(queue_pb.PullRequest(topic=T))
        assert (answer.status, answer.next_queue_offset) == (queue_pb.PULL_STATUS_OFFSET_TOO_SMALL, 450)
        status = await client.status()
        assert status.state == index_pb.REPUT_STATE_LIVE
        assert status.min_physical_offset == result.physical_offsets[450]
        assert status.epoch == 1
        assert status.queue_count in (1, 2), "the topic, and the positions once they are records"
        assert 500 <= status.applied_record_count <= 502
        assert 0 < status.disk_free_bytes < status.disk_total_bytes
        assert 0 < status.disk_used_percent <= 100
        assert status.indexed_physical_offset == status.confirmed_physical_offset
        again = await client.index.TrimTo(index_pb.TrimToRequest(min_physical_offset=result.physical_offsets[450]))
        assert again.deleted_queue_file_count == again.deleted_index_file_count == again.freed_bytes == 0


async def test_removal_of_queues(tmp_path: Path) -> None:
    """The queue of a deleted topic is removed after a dry run with the same answer, and is no expired queue."""
    async with store(tmp_path) as (log, client):
        await put(log, client, *[new(index) for index in range(3)])
        request = index_pb.RemoveQueuesRequest(selection=index_pb.QUEUE_SELECTION_EXPIRED)
        assert await client.index.RemoveQueues(request) == index_pb.RemoveQueuesResponse()
        request = index_pb.RemoveQueuesRequest(selection=index_pb.QUEUE_SELECTION_UNUSED_TOPICS, dry_run=True)
        assert await client.index.RemoveQueues(request) == index_pb.RemoveQueuesResponse()
        await log.topics.DeleteTopic(topic_pb.DeleteTopicRequest(name=T))
        told = await client.index.RemoveQueues(request)
        assert (await client.status()).queue_count == 1
        request.dry_run = False
        removed = await client.index.RemoveQueues(request)
        assert removed == told
        assert removed.queues == [index_pb.RemovedQueue(topic=T, queue_id=0, max_queue_offset=3)]
        assert (removed.removed_queue_count, removed.deleted_queue_file_count) == (1, 1)
        assert removed.freed_bytes > 0
        assert (await client.status()).queue_count == 0
        assert await client.index.RemoveQueues(request) == index_pb.RemoveQueuesResponse()


async def test_without_the_log(tmp_path: Path) -> None:
    """Without the log the Indexer serves from its own files, and names the missing service otherwise.

    It is unhealthy.
    """
    async with store(tmp_path) as (log, client):
        await put(log, client, *[new(index) for index in range(3)])
    async with served(tmp_path, "127.0.0.1:1") as (_, client):
        assert (await client.status()).state == index_pb.REPUT_STATE_CONNECTING
        answer = await client.queues.Pull(queue_pb.PullRequest(topic=T, queue_offset=3))
        assert answer.status == queue_pb.PULL_STATUS_OFFSET_OVERFLOW_ONE
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await client.queues.Pull(queue_pb.PullRequest(topic=T))
        refusal = Refusal(caught.value)
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE")
        assert refusal.metadata == {"service": "commitlog"}
        health = await health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_plan_of_an_unknown_topic_fails(tmp_path: Path) -> None:
    """A topic without messages has an empty plan, and a topic that was never created is NOT_FOUND."""
    async with store(tmp_path) as (log, client):
        await log.topics.CreateTopic(topic_pb.CreateTopicRequest(name="empty"))
        plan = await client.scans.PlanScan(scan_pb.PlanScanRequest(topics=["empty"]))
        assert not plan.partitions
        for name in ("emtpy", "n" * 200):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await client.scans.PlanScan(scan_pb.PlanScanRequest(topics=["empty", name]))
            refusal = Refusal(caught.value)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")
            assert refusal.metadata == {"topic": name}


async def test_a_scan_ends_when_its_caller_goes(tmp_path: Path) -> None:
    """A caller that reads a frame and leaves gives the scan's place back at once."""
    async with (
        served_log(tmp_path) as (log_service, log),
        served(tmp_path, f"127.0.0.1:{log_service.server.port}") as (service, client),
    ):
        await put(log, client, *[new(index) for index in range(200)])
        (partition,) = (await client.scans.PlanScan(scan_pb.PlanScanRequest(topics=[T]))).partitions
        gc.disable()  # or it would be the collector that ends the scan
        try:
            call = client.scans.Scan(scan_pb.ScanRequest(partition=partition, frame_size_bytes=1))
            await call.read()
            assert service.indexer.answers.scanner.count == 1
            call.cancel()
            async with asyncio.timeout(LIMIT_S):
                while service.indexer.answers.scanner.count:  # noqa: ASYNC110 - the server hears of it in its time
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
