# SPDX-License-Identifier: Apache-2.0
"""The Janitor's API over a real channel, with owners in another server: answers, refusals and bad input."""

# ruff: noqa: N802 - gRPC methods carry the names of the protos
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from reput.commitlog.v1 import (
    log_service_pb2,
    log_service_pb2_grpc,
    segment_service_pb2,
    segment_service_pb2_grpc,
    topic_service_pb2,
    topic_service_pb2_grpc,
)
from reput.common.v1 import consumer_pb2
from reput.indexer.v1 import index_service_pb2, index_service_pb2_grpc
from reput.janitor.v1 import retention_service_pb2 as messages
from reput.janitor.v1 import retention_service_pb2_grpc

from libs.runtime import process
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.janitor.bootstrap import Service, Settings, local_time_zone_name
from services.janitor.config import JanitorConfig
from tests.support.trusted import trusted

SIZE = 4096


class FakeCommitLog(
    segment_service_pb2_grpc.SegmentServiceServicer,
    log_service_pb2_grpc.LogServiceServicer,
    topic_service_pb2_grpc.TopicServiceServicer,
):
    """A log of old segments and an active segment; pages of two."""

    def __init__(self, segment_count: int) -> None:
        self.bases = [number * SIZE for number in range(segment_count)]
        self.refusal = segment_service_pb2.DELETE_REFUSAL_UNSPECIFIED
        self.deleting = asyncio.Event()
        self.may_delete = asyncio.Event()
        self.may_delete.set()
        self.topics: list[topic_service_pb2.Topic] = []
        self.expired: dict[str, int] = {}

    async def ListSegments(self, request, context):
        first = int(request.page_token or 0)
        segments = [
            segment_service_pb2.Segment(
                base_physical_offset=base,
                size_bytes=SIZE,
                is_active=base == self.bases[-1],
                is_indexed=True,
                last_store_time={"seconds": round(time.time()) if base == self.bases[-1] else 1_000_000_000},
            )
            for base in self.bases
        ]
        token = str(first + 2) if first + 2 < len(segments) else ""
        return segment_service_pb2.ListSegmentsResponse(segments=segments[first : first + 2], next_page_token=token)

    async def ListTopics(self, request, context):
        assert request.only_with_retention
        return topic_service_pb2.ListTopicsResponse(topics=self.topics)

    async def ExpireMessages(self, request, context):
        self.expired |= {one.topic: one.begin_physical_offset for one in request.begins}
        return topic_service_pb2.ExpireMessagesResponse()

    async def DeleteSegments(self, request, context):
        self.deleting.set()
        await self.may_delete.wait()
        (base,) = request.base_physical_offsets
        is_deleted = not self.refusal
        outcome = segment_service_pb2.DeleteOutcome(
            base_physical_offset=base, is_deleted=is_deleted, refusal=self.refusal, freed_bytes=SIZE * is_deleted
        )
        if is_deleted:
            self.bases.remove(base)
        return segment_service_pb2.DeleteSegmentsResponse(outcomes=[outcome])

    async def GetStatus(self, request, context):
        return log_service_pb2.GetStatusResponse(
            state=log_service_pb2.LOG_STATE_SERVING,
            replicated_physical_offset=1 << 40,
            log_directories=[
                log_service_pb2.LogDirectory(
                    path=path, disk_total_bytes=1000, disk_free_bytes=free, disk_used_percent=used, is_read_only=old
                )
                for path, free, used, old in (("/a", 300, 70, False), ("/b", 200, 80, False), ("/c", 900, 10, True))
            ],
        )

    async def ReportDisk(self, request, context):
        return segment_service_pb2.ReportDiskResponse()


class FakeIndexer(index_service_pb2_grpc.IndexServiceServicer):
    """An Indexer that has indexed all records."""

    def __init__(self) -> None:
        self.trimmed = 0

    async def GetStatus(self, request, context):
        return index_service_pb2.GetStatusResponse(flushed_physical_offset=1 << 40)

    async def GetTopicExpiry(self, request, context):
        self.asked = request
        return index_service_pb2.GetTopicExpiryResponse(
            begin_physical_offset=700, expired_message_count=4, kept_message_count=6, kept_bytes=60
        )

    async def TrimTo(self, request, context):
        below = consumer_pb2.ConsumerBelow(group="billing", topic="orders", queue_offset=3, min_queue_offset=8)
        if request.dry_run:
            return index_service_pb2.TrimToResponse(consumers=[below], consumer_count=1)
        self.trimmed = request.min_physical_offset
        return index_service_pb2.TrimToResponse(freed_bytes=1, consumers=[below], consumer_count=1)


@dataclass
class Room:
    """A served Janitor and its fake owners."""

    commitlog: FakeCommitLog
    indexer: FakeIndexer
    owners: grpc.aio.Server
    channel: grpc.aio.Channel
    stub: "retention_service_pb2_grpc.RetentionServiceAsyncStub"


@asynccontextmanager
async def janitor(directory: Path, segment_count: int = 4) -> AsyncIterator[Room]:
    owners = grpc.aio.server()
    commitlog, indexer = FakeCommitLog(segment_count), FakeIndexer()
    segment_service_pb2_grpc.add_SegmentServiceServicer_to_server(commitlog, owners)
    log_service_pb2_grpc.add_LogServiceServicer_to_server(commitlog, owners)
    topic_service_pb2_grpc.add_TopicServiceServicer_to_server(commitlog, owners)
    index_service_pb2_grpc.add_IndexServiceServicer_to_server(indexer, owners)
    target = f"127.0.0.1:{owners.add_insecure_port('127.0.0.1:0')}"
    await owners.start()
    settings = Settings(
        engine=JanitorConfig(
            data_dir=directory,
            delete_when="04;23",
            time_zone="Europe/Berlin",
            delete_interval_ms=0,
        ),
        commitlog=PeerConfig(target=target),
        indexer=PeerConfig(target=target),
        server=ServerConfig(port=0),
        telemetry=TelemetryConfig(metrics_port=0),
    )
    async with (
        process.running(Service, settings) as service,
        trusted(grpc.aio.insecure_channel(f"127.0.0.1:{service.server.port}")) as channel,
    ):
        yield Room(commitlog, indexer, owners, channel, retention_service_pb2_grpc.RetentionServiceStub(channel))
    await owners.stop(None)


def files(directory: Path) -> list[Path]:
    """All files below a directory."""
    return sorted(directory.rglob("*"))


def details(error: grpc.aio.AioRpcError) -> tuple[str, str, dict[str, str], list[str]]:
    """Code, reason, metadata and fields at fault of a failed call."""
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        detail.Unpack(info)
        detail.Unpack(request)
    fields = [violation.field for violation in request.field_violations]
    return error.code().name, info.reason, dict(info.metadata), fields


async def test_run_and_history(tmp_path: Path) -> None:
    """A dry run changes nothing; a run deletes old segments; the history has it after a restart."""
    async with janitor(tmp_path) as room:
        dry = (await room.stub.RunOnce(messages.RunOnceRequest(dry_run=True))).run
        assert [decision.reason for decision in dry.decisions] == ["EXPIRED", "EXPIRED", "EXPIRED", "ACTIVE"]
        assert [decision.action for decision in dry.decisions] == [messages.ACTION_DELETE] * 3 + [messages.ACTION_KEEP]
        below = consumer_pb2.ConsumerBelow(group="billing", topic="orders", queue_offset=3, min_queue_offset=8)
        assert (list(dry.consumers), dry.consumer_count) == ([below], 1)
        assert (dry.is_dry_run, len(room.commitlog.bases), room.indexer.trimmed) == (True, 4, 0)
        run = (await room.stub.RunOnce(messages.RunOnceRequest())).run
        assert (run.deleted_segment_count, run.freed_bytes, run.trigger) == (3, 3 * SIZE + 1, "MANUAL")
        assert (room.commitlog.bases, room.indexer.trimmed) == ([3 * SIZE], 3 * SIZE)
        status = await room.stub.GetStatus(messages.GetStatusRequest())
        assert (status.is_running, status.deleted_segment_count, status.freed_bytes) == (False, 3, 3 * SIZE + 1)
        assert [(one.service, one.path, one.used_percent, one.free_bytes) for one in status.disks] == [
            ("commitlog", "/a", 70, 300),
            ("commitlog", "/b", 80, 200),
            ("indexer", "", 0, 0),
        ]
        assert status.HasField("next_check_time")
        assert not status.HasField("last_check_time")
    async with janitor(tmp_path) as room:
        history = await room.stub.ListHistory(messages.ListHistoryRequest())
        assert list(history.runs) == [run]
        assert history.next_page_token == ""


async def test_policy(tmp_path: Path) -> None:
    """The policy equals the configuration."""
    async with janitor(tmp_path) as room:
        policy = await room.stub.GetPolicy(messages.GetPolicyRequest())
        assert (policy.retention_hours, list(policy.delete_hours), policy.time_zone) == (72, [4, 23], "Europe/Berlin")
        assert (policy.delete_batch_count_max, policy.delete_interval_ms, policy.check_interval_ms) == (10, 0, 10_000)


async def test_history_pages(tmp_path: Path) -> None:
    """Pages follow each other without overlap, newest first."""
    async with janitor(tmp_path, segment_count=1) as room:
        for number in range(1, 4):
            room.commitlog.bases = [0, SIZE * number]
            await room.stub.RunOnce(messages.RunOnceRequest())
        times, token = [], ""
        for _ in range(3):
            page = await room.stub.ListHistory(messages.ListHistoryRequest(page_size=1, page_token=token))
            times += [run.time.ToMilliseconds() for run in page.runs]
            token = page.next_page_token
        assert (len(times), token) == (3, "")
        assert times == sorted(set(times), reverse=True)


async def test_refusal_ends_a_run(tmp_path: Path) -> None:
    """A refusal of an owner is in the run's error, with its reason."""
    async with janitor(tmp_path) as room:
        room.commitlog.refusal = segment_service_pb2.DELETE_REFUSAL_IN_USE
        run = (await room.stub.RunOnce(messages.RunOnceRequest())).run
        assert run.error == f"commitlog refused: IN_USE: segment {0:020d} stays"
        assert run.deleted_segment_count == 0


async def test_owner_away(tmp_path: Path) -> None:
    """Without the owners a run is refused as a passing failure, and the service continues."""
    async with janitor(tmp_path) as room:
        await room.owners.stop(None)
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await room.stub.RunOnce(messages.RunOnceRequest())
        assert details(failed.value)[:3] == ("UNAVAILABLE", "DEPENDENCY_UNAVAILABLE", {"service": "commitlog"})
        status = await room.stub.GetStatus(messages.GetStatusRequest())
        assert status.last_error.startswith("commitlog is not available: UNAVAILABLE")


async def test_one_run_at_a_time(tmp_path: Path) -> None:
    """A run is refused during another run, a dry run, too."""
    async with janitor(tmp_path) as room:
        room.commitlog.may_delete.clear()
        first = asyncio.ensure_future(room.stub.RunOnce(messages.RunOnceRequest()))
        await room.commitlog.deleting.wait()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await room.stub.RunOnce(messages.RunOnceRequest(dry_run=True))
        code, reason, metadata, _ = details(refused.value)
        assert (code, reason) == ("FAILED_PRECONDITION", "RUN_IN_PROGRESS")
        assert int(metadata["started"]) > 0
        room.commitlog.may_delete.set()
        assert (await first).run.deleted_segment_count == 3


# method, request bytes, code, reason, field
BAD_REQUESTS = [
    ("ListHistory", messages.ListHistoryRequest(page_size=-1), "INVALID_ARGUMENT", "BAD_ARGUMENT", "page_size"),
    ("ListHistory", messages.ListHistoryRequest(page_size=-(1 << 31)), "INVALID_ARGUMENT", "BAD_ARGUMENT", "page_size"),
    ("ListHistory", messages.ListHistoryRequest(page_token="x"), "INVALID_ARGUMENT", "BAD_PAGE_TOKEN", "page_token"),
    (
        "ListHistory",
        messages.ListHistoryRequest(page_token="before-"),
        "INVALID_ARGUMENT",
        "BAD_PAGE_TOKEN",
        "page_token",
    ),
    (
        "ListHistory",
        messages.ListHistoryRequest(page_token="before--1"),
        "INVALID_ARGUMENT",
        "BAD_PAGE_TOKEN",
        "page_token",
    ),
    (
        "ListHistory",
        messages.ListHistoryRequest(page_token="before-1e3"),
        "INVALID_ARGUMENT",
        "BAD_PAGE_TOKEN",
        "page_token",
    ),
    (
        "ListHistory",
        messages.ListHistoryRequest(page_token="before-٣"),
        "INVALID_ARGUMENT",
        "BAD_PAGE_TOKEN",
        "page_token",
    ),
    (
        "ListHistory",
        messages.ListHistoryRequest(page_token="before-" + "9" * 999),
        "INVALID_ARGUMENT",
        "BAD_PAGE_TOKEN",
        "page_token",
    ),
    ("ListHistory", messages.ListHistoryRequest(page_token="../x"), "INVALID_ARGUMENT", "BAD_PAGE_TOKEN", "page_token"),
    ("ListHistory", b"\x12\x05ab", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("ListHistory", b"\x12\x01\xff", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("ListHistory", b"\x08", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("RunOnce", b"\x08", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("RunOnce", b"\xff" * 40, "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("RunOnce", b"\x0b", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("GetStatus", b"\x0a\x7f", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("GetStatus", b"\x00\x00", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
    ("GetPolicy", b"\x0a\x7f", "INVALID_ARGUMENT", "MALFORMED_REQUEST", None),
]


@pytest.mark.parametrize(("method", "request_", "code", "reason", "field"), BAD_REQUESTS)
async def test_bad_requests(
    tmp_path: Path, method: str, request_: object, code: str, reason: str, field: str | None
) -> None:
    """A bad request gets its code, reason and field; nothing is written and the server continues."""
    data = request_ if isinstance(request_, bytes) else request_.SerializeToString()
    async with janitor(tmp_path) as room:
        before = files(tmp_path)
        call = room.channel.unary_unary(f"/reput.janitor.v1.RetentionService/{method}")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(data)
        got_code, got_reason, metadata, fields = details(refused.value)
        assert (got_code, got_reason) == (code, reason)
        assert fields == ([field] if field else [])
        assert metadata.get("field") == field
        assert files(tmp_path) == before
        assert room.commitlog.bases == [0, SIZE, 2 * SIZE, 3 * SIZE]
        assert (await room.stub.GetStatus(messages.GetStatusRequest())).version


@pytest.mark.parametrize(
    "changes",
    [
        {"disk_full_percent": 80},
        {"disk_max_used_percent": 86},
        {"delete_when": ""},
        {"delete_when": "4"},
        {"delete_when": "24"},
        {"delete_when": "04,05"},
        {"delete_when": "04;"},
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../../etc/passwd"},
    ],
)
def test_bad_configuration(changes: dict[str, object]) -> None:
    """An impossible setting is refused at the start, by its name."""
    with pytest.raises(ValueError, match=next(iter(changes))):
        JanitorConfig(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "name"), [("Asia/Kolkata", "Asia/Kolkata"), (":UTC", "UTC"), ("CET-1CEST", "")])
def test_local_time_zone_name(value: str, name: str) -> None:
    """The name of the machine's zone is read from TZ if TZ is a name."""
    assert local_time_zone_name(value) == name


async def test_rules_of_topics(tmp_path: Path) -> None:
    """A run asks the Indexer by each topic's rule, expires at the CommitLog, and a dry run may have other limits."""
    async with janitor(tmp_path) as room:
        room.commitlog.topics = [topic_service_pb2.Topic(name="audit", retention_hours=200, retention_bytes=60)]
        run = (await room.stub.RunOnce(messages.RunOnceRequest(dry_run=True))).run
        (shown,) = run.topics
        assert (shown.topic, shown.expired_message_count, shown.kept_message_count, shown.is_longer) == (
            "audit",
            4,
            6,
            True,
        )
        assert [decision.reason for decision in run.decisions] == ["TOPIC_KEPT"] * 3 + ["ACTIVE"]
        assert (room.commitlog.expired, room.indexer.asked.size_bytes_max) == ({}, 60)
        tried = messages.RunOnceRequest(dry_run=True, topic="audit", retention_hours=5)
        run = (await room.stub.RunOnce(tried)).run
        assert (run.topics[0].retention_hours, run.topics[0].retention_bytes) == (5, 60)
        assert [decision.reason for decision in run.decisions] == ["EXPIRED"] * 3 + ["ACTIVE"]
        tried = messages.RunOnceRequest(dry_run=True, retention_hours=800_000)
        assert {one.reason for one in (await room.stub.RunOnce(tried)).run.decisions} == {"NOT_EXPIRED", "ACTIVE"}
        run = (await room.stub.RunOnce(messages.RunOnceRequest())).run
        assert (run.deleted_segment_count, room.commitlog.expired) == (0, {"audit": 700})
        status = await room.stub.GetStatus(messages.GetStatusRequest())
        assert (status.topic_count, status.expired_message_count) == (1, 4)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (messages.RunOnceRequest(retention_hours=1), "retention_hours"),
        (messages.RunOnceRequest(retention_bytes=1), "retention_bytes"),
        (messages.RunOnceRequest(topic="audit"), "topic"),
        (messages.RunOnceRequest(dry_run=True, retention_hours=-1), "retention_hours"),
        (messages.RunOnceRequest(dry_run=True, retention_hours=876_001), "retention_hours"),
        (messages.RunOnceRequest(dry_run=True, retention_bytes=-1), "retention_bytes"),
    ],
)
async def test_bad_limits(tmp_path: Path, request_: messages.RunOnceRequest, field: str) -> None:
    """Other limits are for a dry run, and within their bounds."""
    async with janitor(tmp_path) as room:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await room.stub.RunOnce(request_)
        code, reason, _, fields = details(caught.value)
        assert (code, reason, fields) == ("INVALID_ARGUMENT", "BAD_ARGUMENT", [field])
        assert len(room.commitlog.bases) == 4
