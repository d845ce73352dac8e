# SPDX-License-Identifier: Apache-2.0
"""Every RPC of the CommitLog over a real connection, on a real directory."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest
from google.rpc import code_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import segment_service_pb2 as segment_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb

from libs.formats.records import record
from services.commitlog.bootstrap import Service
from tests.support.commitlog import SEGMENT_SIZE, message
from tests.support.served_commitlog import Client, served
from tests.support.service_process import Refusal

LOCAL_DISK, MEMORY = 2, 1


def batch(*bodies: bytes, durability: int = 0) -> append_pb.AppendRequest:
    """A request of plain messages."""
    return append_pb.AppendRequest(messages=[message(body) for body in bodies], durability=durability)


def stream(*bodies: bytes, durability: int = 0) -> append_pb.AppendStreamRequest:
    """A request of a stream."""
    return append_pb.AppendStreamRequest(messages=[message(body) for body in bodies], durability=durability)


async def outcomes(client: Client, requests: Iterable[append_pb.AppendStreamRequest]) -> list[append_pb.AppendOutcome]:
    """Return all outcomes of a stream."""

    async def send() -> AsyncIterator[append_pb.AppendStreamRequest]:
        for request in requests:
            yield request

    return [outcome async for response in client.append.AppendStream(send()) for outcome in response.outcomes]


async def read_to_end(call: Any) -> None:
    """Read a stream to its end."""
    while (await call.read()) is not grpc.aio.EOF:
        pass


async def test_append_and_read_back(tmp_path: Path) -> None:
    """Appended messages are read back, as messages and as the bytes of the log."""
    async with served(tmp_path) as (_, client):
        result = (await client.append.Append(batch(b"one", b"two"))).result
        assert result.durability == MEMORY
        assert result.store_host.port
        request = log_pb.ReadRecordsRequest(physical_offsets=result.physical_offsets)
        response = await client.log.ReadRecords(request)
        assert [found.body for found in response.messages] == [b"one", b"two"]
        assert response.max_physical_offset == result.end_physical_offset
        request.view = log_pb.RECORD_VIEW_RAW
        raw = await client.log.ReadRecords(request)
        assert raw.record_sizes_bytes == response.record_sizes_bytes
        assert [record.decode(raw.records).body, record.decode(raw.records, raw.record_sizes_bytes[0]).body] == [
            b"one",
            b"two",
        ]
        assert str(record.decode(raw.records).born_host).startswith("127.0.0.1:")


async def test_append_waits_for_the_disk(tmp_path: Path) -> None:
    """A caller that asks for LOCAL_DISK gets its answer when the flushed offset covers its batch."""
    async with served(tmp_path) as (service, client):
        result = (await client.append.Append(batch(b"one", durability=LOCAL_DISK))).result
        assert result.durability == LOCAL_DISK
        assert service.commit_log.log.marks.flushed.value >= result.end_physical_offset


async def test_stream_outcomes_come_in_order(tmp_path: Path) -> None:
    """Each request of a stream has an outcome, in order, with any durability.

    A refused request leaves the stream usable.
    """
    requests = [stream(b"%d" % index, durability=index % 3) for index in range(200)]
    requests[50] = stream()
    requests[100] = append_pb.AppendStreamRequest(messages=[message(topic="../x")])
    async with served(tmp_path) as (service, client):
        found = await outcomes(client, requests)
        assert [index for index, outcome in enumerate(found) if outcome.HasField("error")] == [50, 100]
        assert Refusal(found[50].error).reason == "BATCH_EMPTY"
        assert Refusal(found[100].error).reason == "BAD_TOPIC_NAME"
        assert Refusal(found[100].error).field == "messages[0].topic"
        stored = [outcome.result for outcome in found if outcome.HasField("result")]
        ends = [result.end_physical_offset for result in stored]
        assert ends == sorted(ends)
        waited = [outcome.result.durability for index, outcome in enumerate(found) if index % 3 == 2 and index != 50]
        assert set(waited) == {LOCAL_DISK}
        assert service.commit_log.log.pipeline.message_count == 198


async def test_a_writer_in_a_stream(tmp_path: Path) -> None:
    """A repeated batch is answered at its durability.

    A batch beyond the expected number is refused, and the expected batch is accepted after it.
    """
    numbers = [0, 1, 1, 0, 3, 2, 4, 3]
    requests = [
        append_pb.AppendStreamRequest(
            messages=[message(b"%d" % number)],
            durability=LOCAL_DISK,
            writer=append_pb.Writer(id="job", sequence=number),
        )
        for number in numbers
    ]
    async with served(tmp_path) as (service, client):
        found = await outcomes(client, requests)
        refusals = {index: Refusal(one.error) for index, one in enumerate(found) if one.HasField("error")}
        assert {index: refusal.reason for index, refusal in refusals.items()} == {
            4: "WRITER_SEQUENCE_GAP",
            6: "WRITER_SEQUENCE_GAP",
        }
        assert refusals[4].metadata == {"field": "writer.sequence", "value": "3", "writer_id": "job", "expected": "2"}
        results = [one.result for one in found if one.HasField("result")]
        assert [one.is_repeated for one in results] == [False, False, True, True, False, False]
        assert {one.durability for one in results} == {LOCAL_DISK}
        assert results[2].start_physical_offset == results[1].start_physical_offset
        requests[0].messages[0].body = b"other"
        (refused,) = await outcomes(client, requests[:1])
        assert Refusal(refused.error).reason == "WRITER_CONTENT_DIFFERS"
        assert service.commit_log.log.pipeline.message_count == 4


async def test_outcomes_of_a_stream_share_responses(tmp_path: Path) -> None:
    """Outcomes of requests that arrive together share a response, and a slow caller gets each outcome soon."""
    async with served(tmp_path) as (service, client):
        call = client.append.AppendStream()
        for index in range(3):
            await call.write(stream(b"%d" % index))
            assert len((await call.read()).outcomes) == 1
        await call.done_writing()
        sizes = [len(response.outcomes) for response in await together(service, 30)]
        assert (sum(sizes), len(sizes)) == (30, 1)


async def together(service: Service, count: int) -> list[append_pb.AppendStreamResponse]:
    """Send this many requests at once, and return the responses."""

    async def requests() -> AsyncIterator[bytes]:
        for index in range(count):
            yield stream(b"%d" % index).SerializeToString()

    context = mock.Mock(peer=lambda: "unix:")
    replies = service.append.AppendStream(requests(), context)
    return [append_pb.AppendStreamResponse.FromString(reply) async for reply in replies]


async def test_a_stream_that_is_dropped_frees_what_it_took(tmp_path: Path) -> None:
    """A caller that cancels its stream frees its share of the limits for others."""
    names = ("append_request_size_bytes_max", "append_inflight_bytes_max", "append_stream_inflight_bytes_max")
    async with served(tmp_path, stream_count_max=1, **dict.fromkeys(names, 1 << 20)) as (service, client):
        call = client.append.AppendStream()
        await call.write(stream(bytes(1000)))
        await call.read()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await outcomes(client, [stream(b"x")])
        assert Refusal(refused.value).reason == "WINDOW_FULL"
        [session] = service.append.sessions
        call.cancel()
        await asyncio.wait([session._reading])
        assert len(await outcomes(client, [stream(bytes(60_000))] * 40)) == 40


async def test_malformed_batches_in_a_stream(tmp_path: Path) -> None:
    """Bytes that are not a request are refused as an outcome, and the stream continues."""
    async with served(tmp_path) as (_, client):
        call = client.channel.stream_stream("/reput.commitlog.v1.AppendService/AppendStream")()
        for raw in (b"\x0a\x09abc", b"\x08\x01", stream(b"fine").SerializeToString()):
            await call.write(raw)
        await call.done_writing()
        found = [o async for raw in call for o in append_pb.AppendStreamResponse.FromString(raw).outcomes]
        assert [Refusal(outcome.error).reason for outcome in found[:2]] == ["MALFORMED_REQUEST"] * 2
        assert found[0].error.code == code_pb2.INVALID_ARGUMENT
        assert found[2].HasField("result")


@pytest.mark.parametrize("view", [log_pb.RECORD_VIEW_MESSAGES, log_pb.RECORD_VIEW_RAW])
async def test_stream_records(tmp_path: Path, view: int) -> None:
    """A range of records arrives whole and in order, over segments, in responses of bounded size."""
    async with served(tmp_path) as (_, client):
        for index in range(150):
            await client.append.Append(batch(b"%04d" % index + bytes(1000)))
        request = log_pb.StreamRecordsRequest(view=view, response_size_bytes_max=10_000)
        at, found = 0, []
        async for response in client.log.StreamRecords(request):
            assert response.start_physical_offset == at
            at = response.end_physical_offset
            if view == log_pb.RECORD_VIEW_RAW:
                position = 0
                while position < len(response.records):
                    one = record.decode(response.records, position)
                    found.append(one.body[:4])
                    position += one.size_bytes
            else:
                found += [stored.body[:4] for stored in response.messages]
            assert len(response.records) <= 10_000
        assert found == [b"%04d" % index for index in range(150)]


async def test_dispatch(tmp_path: Path) -> None:
    """Dispatch sends a handshake, then columns without a gap, then heartbeats, and new records soon."""
    async with served(tmp_path) as (_, client):
        await client.append.Append(batch(*[b"x"] * 10))
        call = client.log.Dispatch(log_pb.DispatchRequest(record_count_max=4))
        handshake = (await call.read()).handshake
        assert (handshake.common_end_physical_offset, handshake.epoch) == (0, 1)
        counts = [len((await call.read()).columns.physical_offsets) for _ in range(3)]
        assert counts == [4, 4, 2]
        assert (await call.read()).heartbeat.confirmed_physical_offset == handshake.confirmed_physical_offset
        await client.append.Append(batch(b"later"))
        while not (step := await call.read()).HasField("columns"):
            assert step.HasField("heartbeat")
        assert step.columns.start_physical_offset == handshake.confirmed_physical_offset
        assert [(queue.topic, queue.queue_id) for queue in step.columns.queues] == [("orders", 0)]
        call.cancel()


async def test_status_and_progress(tmp_path: Path) -> None:
    """The status has the state of the log, and the Indexer's report."""
    async with served(tmp_path) as (_, client):
        result = (await client.append.Append(batch(b"x", durability=LOCAL_DISK))).result
        end = result.end_physical_offset
        before = await client.log.GetStatus(log_pb.GetStatusRequest())
        assert not before.HasField("indexed_time")
        await client.log.ReportProgress(
            log_pb.ReportProgressRequest(indexed_physical_offset=end, flushed_physical_offset=end, epoch=1)
        )
        status = await client.log.GetStatus(log_pb.GetStatusRequest())
        assert (status.role, status.epoch) == (log_pb.ROLE_ASYNC_MASTER, 1)
        assert (status.min_physical_offset, status.max_physical_offset) == (0, end)
        assert status.flushed_physical_offset == status.confirmed_physical_offset == end
        assert status.indexed_physical_offset == end
        assert status.HasField("indexed_time")
        assert status.is_writable
        assert (status.segment_count, status.segment_size_bytes) == (1, SEGMENT_SIZE)
        assert (status.topic_count, status.appended_message_count, status.sync_count) == (1, 1, 1)
        assert 0 < status.disk_free_bytes <= status.disk_total_bytes
        assert status.recovery.scan_end == "clean end"


async def test_segments_in_pages(tmp_path: Path) -> None:
    """Segments are listed in pages, and a deletion has an outcome for each segment."""
    async with served(tmp_path) as (_, client):
        for _ in range(300):
            await client.append.Append(batch(bytes(1000)))
        found, token = [], ""
        while True:
            page = await client.segments.ListSegments(segment_pb.ListSegmentsRequest(page_size=2, page_token=token))
            found += page.segments
            token = page.next_page_token
            if not token:
                break
        bases = [segment.base_physical_offset for segment in found]
        assert bases == [index * SEGMENT_SIZE for index in range(6)]
        assert found[0].last_store_time.ToMilliseconds() >= found[0].first_store_time.ToMilliseconds() > 0
        delete = segment_pb.DeleteSegmentsRequest(base_physical_offsets=[*bases[:2], bases[-1]])
        refused = await client.segments.DeleteSegments(delete)
        assert [outcome.refusal for outcome in refused.outcomes] == [
            segment_pb.DELETE_REFUSAL_NOT_INDEXED,
            segment_pb.DELETE_REFUSAL_NOT_OLDEST,
            segment_pb.DELETE_REFUSAL_ACTIVE,
        ]
        delete.allow_unindexed = True
        answer = await client.segments.DeleteSegments(delete)
        assert [outcome.is_deleted for outcome in answer.outcomes] == [True, True, False]
        assert answer.min_physical_offset == 2 * SEGMENT_SIZE
        with pytest.raises(grpc.aio.AioRpcError) as trimmed:
            await client.log.StreamRecords(log_pb.StreamRecordsRequest()).read()
        refusal = Refusal(trimmed.value)
        assert (refusal.reason, refusal.metadata["min"]) == ("OFFSET_TRIMMED", str(2 * SEGMENT_SIZE))


async def test_disk_report(tmp_path: Path) -> None:
    """The Janitor's report of a full disk closes the log for appends, and the status has the reason.

    A report of a disk with room opens it again.
    """
    async with served(tmp_path) as (_, client):
        full = await client.segments.ReportDisk(segment_pb.ReportDiskRequest(is_full=True, used_ratio=0.9))
        assert not full.is_writable
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.append.Append(batch(b"x"))
        assert Refusal(refused.value).reason == "STORE_FULL"
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        status = await client.log.GetStatus(log_pb.GetStatusRequest())
        assert (status.is_writable, list(status.refusals)) == (False, ["STORE_FULL"])
        assert (await client.segments.ReportDisk(segment_pb.ReportDiskRequest(used_ratio=0.5))).is_writable
        await client.append.Append(batch(b"x"))


async def test_topics(tmp_path: Path) -> None:
    """Topics are created, changed, listed in pages and deleted."""
    async with served(tmp_path) as (_, client):
        for name in ("b", "a", "c"):
            made = await client.topics.CreateTopic(topic_pb.CreateTopicRequest(name=name, read_queue_count=2))
            assert (made.topic.read_queue_count, made.topic.write_queue_count) == (2, 4)
        changed = await client.topics.UpdateTopic(topic_pb.UpdateTopicRequest(name="b", is_writable=False))
        assert (changed.topic.is_readable, changed.topic.is_writable) == (True, False)
        assert (await client.topics.GetTopic(topic_pb.GetTopicRequest(name="b"))).topic == changed.topic
        first = await client.topics.ListTopics(topic_pb.ListTopicsRequest(page_size=2))
        second = await client.topics.ListTopics(topic_pb.ListTopicsRequest(page_token=first.next_page_token))
        assert [topic.name for page in (first, second) for topic in page.topics] == ["a", "b", "c"]
        assert second.next_page_token == ""
        everything = await client.topics.ListTopics(topic_pb.ListTopicsRequest(include_system=True))
        assert sum(topic.is_system for topic in everything.topics) == 4
        await client.topics.DeleteTopic(topic_pb.DeleteTopicRequest(name="b"))
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await client.topics.GetTopic(topic_pb.GetTopicRequest(name="b"))
        assert Refusal(missing.value).reason == "TOPIC_NOT_FOUND"


async def test_standard_clients(tmp_path: Path) -> None:
    """Health checking and reflection answer as any gRPC tool expects."""
    async with served(tmp_path) as (_, client):
        health = health_pb2_grpc.HealthStub(client.channel)
        for name in ("", "reput.commitlog.v1.AppendService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(client.channel)
        call = reflection.ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        services = {service.name for service in (await call.read()).list_services_response.service}
        call.cancel()
        names = ("Append", "Log", "Replication", "Segment", "Topic")
        assert services >= {f"reput.commitlog.v1.{name}Service" for name in names}


async def test_a_stop_ends_the_streams_in_order(tmp_path: Path) -> None:
    """A stop ends streams with STOPPING, after their outcomes, and acknowledged messages are there afterwards."""
    async with served(tmp_path) as (_, client):
        appending = client.append.AppendStream()
        await appending.write(stream(b"one", durability=LOCAL_DISK))
        assert (await appending.read()).outcomes[0].result.durability == LOCAL_DISK
        following = client.log.Dispatch(log_pb.DispatchRequest())
        await following.read()
    # The channel is closed first, so check the store that is left.
    async with served(tmp_path) as (service, client):
        assert service.commit_log.log.recovery.was_clean_stop
        status = await client.log.GetStatus(log_pb.GetStatusRequest())
        assert status.max_physical_offset > 0


async def test_drain_is_told_as_stopping(tmp_path: Path) -> None:
    """While the server drains, streams of followers and appenders end with STOPPING."""
    async with served(tmp_path) as (service, client):
        appending = client.append.AppendStream()
        await appending.write(stream(b"one"))
        await appending.read()
        following = client.log.Dispatch(log_pb.DispatchRequest())
        await following.read()
        await service.drain()
        for call in (appending, following):
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await read_to_end(call)
            assert Refusal(ended.value).reason == "STOPPING"


async def test_queue_ends_over_the_wire(tmp_path: Path) -> None:
    """A whole stream is a single comparison, with its counts in the answer and in the status.

    Bad pages are refused.
    """

    async def pages(*requests: log_pb.CheckQueueOffsetsRequest) -> AsyncIterator[log_pb.CheckQueueOffsetsRequest]:
        for request in requests:
            yield request

    async with served(tmp_path) as (_, client):
        await client.append.Append(append_pb.AppendRequest(messages=[message(topic="orders")]))
        known = log_pb.QueueEnd(topic="orders", queue_id=0, end_queue_offset=1)
        spent = log_pb.QueueEnd(topic="spent", queue_id=3, end_queue_offset=40, last_physical_offset=0)
        wrong = log_pb.QueueEnd(topic="orders", queue_id=0, end_queue_offset=9)
        answer = await client.log.CheckQueueOffsets(
            pages(
                log_pb.CheckQueueOffsetsRequest(epoch=1, queues=[known, wrong]),
                log_pb.CheckQueueOffsetsRequest(epoch=1, is_complete=True),
            )
        )
        assert (answer.raised_queue_count, answer.contradicting_queue_count) == (0, 1)
        status = await client.log.GetStatus(log_pb.GetStatusRequest())
        assert (status.raised_queue_count, status.contradicting_queue_count) == (0, 1)
        assert status.state == log_pb.LOG_STATE_SERVING
        for bad, reason, field in (
            (log_pb.CheckQueueOffsetsRequest(epoch=9), "BAD_ARGUMENT", "epoch"),
            (log_pb.CheckQueueOffsetsRequest(epoch=1, history_id="other"), "STALE_EPOCH", "history_id"),
            (
                log_pb.CheckQueueOffsetsRequest(epoch=1, queues=[spent, log_pb.QueueEnd()]),
                "BAD_ARGUMENT",
                "queues[1].topic",
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.log.CheckQueueOffsets(pages(bad))
            assert (Refusal(refused.value).reason, Refusal(refused.value).field) == (reason, field)
