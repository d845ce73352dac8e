# SPDX-License-Identifier: Apache-2.0
"""The owners of files over gRPC: the protocols of engine/owners.py.

Every call has a deadline. A failed call becomes DependencyUnavailable with the owner's error text. The clients do not
retry, because the loop looks again soon.
"""

from collections.abc import Iterable, Mapping

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

from libs.requests.errors import DependencyUnavailable
from libs.runtime.peer.calls import PeerClient
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.timestamps import timestamp
from services.janitor.engine.facts import (
    INDEX_OWNER,
    LOG_OWNER,
    ConsumerBelow,
    Disk,
    Expiry,
    IndexFacts,
    LogFacts,
    SegmentFacts,
    TopicRule,
    Trimmed,
)
from services.janitor.errors import OwnerRefused

PAGE_SIZE = 1000


class CommitLogClient:
    """LogOwner over the CommitLog's SegmentService and LogService."""

    def __init__(self, connection: Connection) -> None:
        self._stub = segment_service_pb2_grpc.SegmentServiceStub(connection.channel)
        self._log = log_service_pb2_grpc.LogServiceStub(connection.channel)
        self._topics = topic_service_pb2_grpc.TopicServiceStub(connection.channel)
        self._owner = PeerClient(LOG_OWNER, connection, {})

    async def log_facts(self) -> LogFacts:
        """See LogOwner."""
        status = await self._owner.call(self._log.GetStatus, log_service_pb2.GetStatusRequest())
        if status.state != log_service_pb2.LOG_STATE_SERVING:
            raise DependencyUnavailable(LOG_OWNER, "it is recovering")
        disks = [
            _disk(LOG_OWNER, one, one.path, own_bytes=one.segment_count * status.segment_size_bytes)
            for one in status.log_directories
            if not one.is_read_only
        ]
        is_follower = status.role == log_service_pb2.ROLE_SLAVE
        return LogFacts(await self._segments(), status.replicated_physical_offset, disks, is_follower)

    async def topic_rules(self) -> list[TopicRule]:
        """See LogOwner."""
        rules: list[TopicRule] = []
        request = topic_service_pb2.ListTopicsRequest(page_size=PAGE_SIZE, only_with_retention=True)
        async for page in self._owner.pages(self._topics.ListTopics, request):
            rules += [TopicRule(one.name, one.retention_hours, one.retention_bytes) for one in page.topics]
        return [
            rule for rule in rules if rule.retention_hours or rule.retention_bytes
        ]  # an older log ignores the filter

    async def expire(self, begins: Mapping[str, int]) -> None:
        """See LogOwner."""
        wanted = [topic_service_pb2.TopicBegin(topic=one, begin_physical_offset=at) for one, at in begins.items()]
        for first in range(0, len(wanted), PAGE_SIZE):
            request = topic_service_pb2.ExpireMessagesRequest(begins=wanted[first : first + PAGE_SIZE])
            await self._owner.call(self._topics.ExpireMessages, request)

    async def report_disk(self, *, is_full: bool, used_percent: int) -> None:
        """See LogOwner."""
        request = segment_service_pb2.ReportDiskRequest(is_full=is_full, used_ratio=min(used_percent, 100) / 100)
        await self._owner.call(self._stub.ReportDisk, request)

    async def _segments(self) -> list[SegmentFacts]:
        segments: list[SegmentFacts] = []
        request = segment_service_pb2.ListSegmentsRequest(page_size=PAGE_SIZE)
        async for page in self._owner.pages(self._stub.ListSegments, request):
            segments.extend(map(segment_facts, page.segments))
        return segments

    async def delete_segment(self, base_physical_offset: int, *, allow_unindexed: bool) -> int:
        """See LogOwner."""
        request = segment_service_pb2.DeleteSegmentsRequest(
            base_physical_offsets=[base_physical_offset], allow_unindexed=allow_unindexed
        )
        outcomes = (await self._owner.call(self._stub.DeleteSegments, request)).outcomes
        if len(outcomes) == 1 and outcomes[0].is_deleted:
            return outcomes[0].freed_bytes
        refusal = outcomes[0].refusal if outcomes else segment_service_pb2.DELETE_REFUSAL_UNSPECIFIED
        name = segment_service_pb2.DeleteRefusal.Name(refusal).removeprefix("DELETE_REFUSAL_")
        raise OwnerRefused(service=LOG_OWNER, refusal=name, text=f"segment {base_physical_offset:020d} stays")


class IndexerClient:
    """IndexOwner over the Indexer's IndexService."""

    def __init__(self, connection: Connection) -> None:
        self._stub = index_service_pb2_grpc.IndexServiceStub(connection.channel)
        self._owner = PeerClient(INDEX_OWNER, connection, {})

    async def index_facts(self) -> IndexFacts:
        """See IndexOwner."""
        status = await self._owner.call(self._stub.GetStatus, index_service_pb2.GetStatusRequest())
        return IndexFacts(status.flushed_physical_offset, _disk(INDEX_OWNER, status))

    async def expiry(self, rule: TopicRule, min_store_time_ms: int | None, *, with_consumers: bool = False) -> Expiry:
        """See IndexOwner."""
        request = index_service_pb2.GetTopicExpiryRequest(
            topic=rule.topic,
            min_store_time=timestamp(min_store_time_ms),
            size_bytes_max=rule.retention_bytes,
            with_consumers=with_consumers,
        )
        told = await self._owner.call(self._stub.GetTopicExpiry, request)
        first_ms = told.first_store_time.ToMilliseconds() if told.HasField("first_store_time") else None
        return Expiry(
            told.begin_physical_offset,
            told.expired_message_count,
            told.kept_message_count,
            told.kept_bytes,
            first_ms,
            told.shown_physical_offset,
            _consumers(told.consumers),
            told.consumer_count,
        )

    async def trim_to(self, min_physical_offset: int, *, is_dry_run: bool) -> Trimmed:
        """See IndexOwner."""
        request = index_service_pb2.TrimToRequest(min_physical_offset=min_physical_offset, dry_run=is_dry_run)
        told = await self._owner.call(self._stub.TrimTo, request)
        return Trimmed(told.freed_bytes, _consumers(told.consumers), told.consumer_count, told.own_bytes)


def _consumers(told: Iterable[consumer_pb2.ConsumerBelow]) -> list[ConsumerBelow]:
    return [ConsumerBelow(one.group, one.topic, one.queue_id, one.queue_offset, one.min_queue_offset) for one in told]


def segment_facts(segment: segment_service_pb2.Segment) -> SegmentFacts:
    """Return the facts of a segment that the policy needs."""
    last = segment.last_store_time
    return SegmentFacts(
        base_physical_offset=segment.base_physical_offset,
        size_bytes=segment.size_bytes,
        last_store_time_ms=last.ToMilliseconds() if segment.HasField("last_store_time") else None,
        is_active=segment.is_active,
        is_indexed=segment.is_indexed,
        first_store_time_ms=segment.first_store_time.ToMilliseconds() if segment.HasField("first_store_time") else None,
    )


def _disk(
    service: str,
    told: log_service_pb2.LogDirectory | index_service_pb2.GetStatusResponse,
    path: str = "",
    own_bytes: int | None = None,
) -> Disk:
    """Return the disk of an owner from the owner's answer. A total of 0 bytes means that the disk is unknown."""
    used_percent = told.disk_used_percent if told.disk_total_bytes > 0 else None
    return Disk(service, used_percent, told.disk_total_bytes, told.disk_free_bytes, path, own_bytes)
