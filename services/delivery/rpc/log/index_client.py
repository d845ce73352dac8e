# SPDX-License-Identifier: Apache-2.0
"""IndexClient: implements the engine's Index by the Indexer, over gRPC."""

import functools
from collections.abc import Mapping, Sequence

from google.protobuf.duration import from_milliseconds, to_milliseconds
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import (
    consumer_offset_service_pb2,
    consumer_offset_service_pb2_grpc,
    group_config_service_pb2,
    group_config_service_pb2_grpc,
    queue_service_pb2,
    queue_service_pb2_grpc,
)

from libs.filters.property_filter import PropertyFilter, parse_where
from libs.filters.tag_expression import parse_tags
from libs.formats.records import properties
from libs.formats.records.delivery_record import ATTEMPTS_MAX, BACKOFFS_MAX, Place, Policy
from libs.formats.state.system_topics import DELIVERY_QUEUE_ID, DELIVERY_TOPIC
from libs.requests.errors import ConsumerOffsetNotFound, TopicNotFound
from libs.runtime.peer.calls import PeerClient
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.timestamps import timestamp
from services.delivery.engine.ports.messages import Found, Measure, Part, Pulled, Stored, Wanted
from services.delivery.rpc.log.errors import CALLERS_ERRORS, ERRORS
from services.delivery.rpc.log.measuring import PART_COUNT_MAX, measure_request, pieces
from services.delivery.rpc.log.stored import INDEXER, found_of, read_of

ALL = Wanted()
JOURNAL_COUNT, JOURNAL_SIZE_BYTES = 1_000, 8 << 20
PAGE_SIZE = 1_000
OFFSET_COUNT_MAX = 1_000
"""Offsets of a commit."""
POLICY_COUNT_MAX = 1_000
"""Policies of a call."""
FILTER_COUNT = 256
"""Parsed filters that are kept."""


class IndexClient:
    """The client of the Indexer. See Index."""

    def __init__(self, connection: Connection) -> None:
        self._indexer = PeerClient(INDEXER, connection, ERRORS)
        self._pulls = PeerClient(INDEXER, connection, CALLERS_ERRORS)
        self._queues = queue_service_pb2_grpc.QueueServiceStub(connection.channel)
        self._configs = group_config_service_pb2_grpc.GroupConfigServiceStub(connection.channel)
        self._offsets = consumer_offset_service_pb2_grpc.ConsumerOffsetServiceStub(connection.channel)

    async def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        wanted: Wanted,
        count: int,
        size_bytes: int,
        wait_s: float,
    ) -> Pulled:
        """See Index."""
        place = topic, queue_id, queue_offset
        answer = await self.read(
            *place, count=count, size_bytes=size_bytes, wait_s=wait_s, wanted=wanted, wants_records=True
        )
        return read_of(answer, found_of(answer))

    async def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count: int,
        size_bytes: int,
        wait_s: float = 0.0,
        wanted: Wanted = ALL,
        wants_records: bool = False,
    ) -> queue_service_pb2.PullResponse:
        """Return messages as they are stored, from a queue offset on. The Indexer waits for the first message.

        With `wants_records` an Indexer that can answers with records.
        """
        request = queue_service_pb2.PullRequest(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            message_count_max=count,
            size_bytes_max=size_bytes,
            tag_expression=wanted.tags,
            where=wanted.where,
            wait=from_milliseconds(round(wait_s * 1000)),
            wants_records=wants_records,
        )
        return await self._pulls.call(self._queues.Pull, request, wait_s=wait_s)

    def passes(self, found: Found, wanted: Wanted) -> bool:
        """See Index."""
        tags, where = _parsed(wanted)
        message: StoredMessage = found.message.message
        if tags and _value(message, b"TAGS") not in tags:
            return False
        return where.passes_all or bool(where.passing([[_value(message, name)] for name in where.names], 1))

    async def journal(self, queue_offset: int, *, wait_s: float) -> tuple[list[Stored], int]:
        """See Index."""
        place = DELIVERY_TOPIC, DELIVERY_QUEUE_ID, queue_offset
        answer = await self.read(*place, count=JOURNAL_COUNT, size_bytes=JOURNAL_SIZE_BYTES, wait_s=wait_s)
        return [Stored(message.queue_offset, message.body) for message in answer.messages], answer.next_queue_offset

    async def queue_end(self, topic: str, queue_id: int, *, wait_s: float) -> int:
        """See Index."""
        return (await self.read(topic, queue_id, 0, count=1, size_bytes=1, wait_s=wait_s)).max_queue_offset

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """See Index."""
        bounds: dict[int, tuple[int, int]] = {}
        request = queue_service_pb2.ListQueuesRequest(topic=topic, page_size=PAGE_SIZE)
        async for page in self._indexer.pages(self._queues.ListQueues, request):
            bounds |= {one.queue_id: (one.min_queue_offset, one.max_queue_offset) for one in page.queues}
        return bounds

    async def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """See Index."""
        request = queue_service_pb2.GetOffsetByTimeRequest(topic=topic, queue_id=queue_id, time=timestamp(time_ms))
        try:
            return (await self._indexer.call(self._queues.GetOffsetByTime, request)).queue_offset
        except TopicNotFound:
            return 0

    async def measures(self, parts: Sequence[Part]) -> Sequence[Measure]:
        """See Index."""
        sizes_bytes, times_ms = [0] * len(parts), list[int | None]([None] * len(parts))
        left = [(index, piece) for index, part in enumerate(parts) for piece in pieces(part)]
        while left:
            request = measure_request([piece for _, piece in left[:PART_COUNT_MAX]])
            answer = await self._indexer.call(self._queues.MeasureQueues, request)
            for (index, _), measure in zip(left, answer.measures, strict=False):
                sizes_bytes[index] += measure.size_bytes
                if measure.HasField("store_time"):
                    times_ms[index] = measure.store_time.ToMilliseconds()
            left = left[max(len(answer.measures), 1) :]
        return list(map(Measure, sizes_bytes, times_ms))

    async def stored_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """See Index."""
        request = consumer_offset_service_pb2.GetConsumerOffsetRequest(group=group, topic=topic, queue_id=queue_id)
        try:
            return (await self._indexer.call(self._offsets.GetConsumerOffset, request)).offset.queue_offset
        except ConsumerOffsetNotFound:
            return None

    async def stored_offsets(self) -> Mapping[Place, int]:
        """See Index."""
        offsets: dict[Place, int] = {}
        request = consumer_offset_service_pb2.ListConsumerGroupsRequest(page_size=PAGE_SIZE)
        async for page in self._indexer.pages(self._offsets.ListConsumerGroups, request):
            for group in page.groups:
                offsets |= {Place(group.group, one.topic, one.queue_id): one.queue_offset for one in group.offsets}
        return offsets

    async def store_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """See Index."""
        all_offsets = [
            consumer_offset_service_pb2.ConsumerOffset(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
            for (topic, queue_id), queue_offset in offsets.items()
        ]
        for start in range(0, len(all_offsets), OFFSET_COUNT_MAX):
            request = consumer_offset_service_pb2.CommitConsumerOffsetRequest(
                group=group, offsets=all_offsets[start : start + OFFSET_COUNT_MAX]
            )
            await self._indexer.call(self._offsets.CommitConsumerOffset, request)

    async def stored_policy(self, group: str) -> Policy | None:
        """See Index."""
        request = group_config_service_pb2.GetGroupConfigRequest(group=group)
        answer = await self._indexer.call(self._configs.GetGroupConfig, request)
        if not answer.HasField("config"):
            return None
        found = answer.config
        return Policy(
            attempts_max=min(found.attempts_max, ATTEMPTS_MAX),
            backoffs_ms=tuple(map(to_milliseconds, found.backoffs))[:BACKOFFS_MAX] or Policy().backoffs_ms,
            is_ordered=found.is_ordered,
            is_paused=found.is_paused,
        )

    async def store_policies(self, policies: Mapping[str, Policy | None]) -> None:
        """See Index."""
        all_policies = list(policies.items())
        for start in range(0, len(all_policies), POLICY_COUNT_MAX):
            some = all_policies[start : start + POLICY_COUNT_MAX]
            request = group_config_service_pb2.StoreGroupConfigsRequest(
                configs=[_config(group, policy) for group, policy in some if policy is not None],
                deleted_groups=[group for group, policy in some if policy is None],
            )
            await self._indexer.call(self._configs.StoreGroupConfigs, request)


def _config(group: str, policy: Policy) -> group_config_service_pb2.GroupConfig:
    return group_config_service_pb2.GroupConfig(
        group=group,
        attempts_max=policy.attempts_max,
        backoffs=map(from_milliseconds, policy.backoffs_ms) if policy.has_own_waits else (),
        is_ordered=policy.is_ordered,
        is_paused=policy.is_paused,
    )


@functools.lru_cache(FILTER_COUNT)
def _parsed(wanted: Wanted) -> tuple[frozenset[bytes], PropertyFilter]:
    tags = parse_tags(wanted.tags, field="tag_expression")
    return frozenset(tag.encode() for tag in tags), parse_where(wanted.where, field="where")


def _value(message: StoredMessage, name: bytes) -> bytes | None:
    """Return the stored bytes of a property's value, also if they are no text."""
    if message.raw_properties:
        return dict(properties.pieces(message.raw_properties)).get(name)
    value = message.properties.get(name.decode())
    return None if value is None else value.encode()
