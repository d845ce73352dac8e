# SPDX-License-Identifier: Apache-2.0
"""Indexes: the records that logs show, by queue and by key, as an Indexer beside each log answers.

A synchronous master takes back no record that it showed, and `promises.py` checks that. So records are read once for
all members, and an index is the end up to which its own log has shown them. Nothing of it is lost, as little as of an
Indexer that keeps up; offsets and policies that groups commit stay with the index that received them.
"""

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf.duration import to_milliseconds
from reput.commitlog.v1 import log_service_pb2
from reput.common.v1.message_pb2 import StoredMessage
from reput.indexer.v1 import consumer_offset_service_pb2 as offsets_pb
from reput.indexer.v1 import group_config_service_pb2 as configs_pb
from reput.indexer.v1 import index_service_pb2 as status_pb
from reput.indexer.v1 import query_service_pb2 as queries_pb
from reput.indexer.v1 import queue_service_pb2 as queues_pb

from libs.formats.state.system_topics import LEVELS_GROUP
from libs.requests.errors import ConsumerOffsetNotFound
from services.commitlog.engine.open_log import OpenLog
from services.indexer.errors import MessageNotFound
from tests.support.calls import log_servicer_of

if TYPE_CHECKING:
    from tests.crash.cluster.node import Node

LOOK_S = 2.0
"""How often it is looked whether there is another log to wait for."""

SERVICES = ("QueueService", "QueryService", "ConsumerOffsetService", "GroupConfigService", "IndexService")


class Shown:
    """All that any member ever showed, decoded once. `hear` is called with each message, in the order of the log."""

    def __init__(self, hear: Callable[[StoredMessage], None]) -> None:
        self._hear = hear
        self.end = 0
        """Physical offset."""
        self.queues: dict[tuple[str, int], list[StoredMessage]] = defaultdict(list)
        self.keys: dict[tuple[str, str], list[StoredMessage]] = defaultdict(list)

    async def read(self, log: OpenLog) -> None:
        """Read the records that a log shows and that no log has shown before."""
        end = log.marks.visible.value
        if end <= self.end:
            return
        request = log_service_pb2.StreamRecordsRequest(
            start_physical_offset=self.end, end_physical_offset=end, view=log_service_pb2.RECORD_VIEW_MESSAGES
        )
        found = [answer async for answer in log_servicer_of(log).StreamRecords(request, None)]
        for answer in found:
            for message in log_service_pb2.StreamRecordsResponse.FromString(answer).messages:
                if message.physical_offset >= self.end:  # another reader may have been faster
                    self._add(message)
        self.end = max(self.end, end)

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of all messages of a topic."""
        return [one.body for (name, _), queue in self.queues.items() if name == topic for one in queue]

    def _add(self, message: StoredMessage) -> None:
        self.queues[message.topic, message.queue_id].append(message)
        properties = message.properties
        for key in {properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")} - {""}:
            self.keys[message.topic, key].append(message)
        self._hear(message)


class LogIndex:
    """Serves the calls that Delivery makes to an Indexer, for a member's log."""

    def __init__(self, node: "Node", shown: Shown) -> None:
        self._node, self._shown = node, shown
        self._end = 0
        self._offsets: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self._configs: dict[str, configs_pb.GroupConfig] = {}
        self._whole: OpenLog | None = None
        """A log that leads and has shown all that it had at its beginning: it shows what it acknowledges."""

    @property
    def servicers(self) -> dict[str, Any]:
        """The services of this index, by name."""
        return {f"reput.indexer.v1.{name}": self for name in SERVICES}

    def level_positions(self) -> dict[int, int]:
        """Return the committed positions of the delay levels, by the ids of their queues."""
        return {queue_id: offset for (_, queue_id), offset in self._offsets[LEVELS_GROUP].items()}

    async def Pull(self, request: queues_pb.PullRequest, _: object) -> queues_pb.PullResponse:
        """Return messages from a queue offset on, waiting for the first message."""
        place, start = (request.topic, request.queue_id), request.queue_offset
        await self._until_more(place, start, to_milliseconds(request.wait) / 1000)
        queue = await self._queue(*place)
        answer = queues_pb.PullResponse(next_queue_offset=min(start, len(queue)), max_queue_offset=len(queue))
        room = request.size_bytes_max
        for message in queue[start : start + request.message_count_max]:
            if answer.messages and message.record_size_bytes > room:
                break
            room -= message.record_size_bytes
            answer.messages.append(message)
        answer.next_queue_offset += len(answer.messages)
        return answer

    async def ListQueues(self, request: queues_pb.ListQueuesRequest, _: object) -> queues_pb.ListQueuesResponse:
        """Return the queues of a topic that have messages, on a single page."""
        answer = queues_pb.ListQueuesResponse()
        for topic, queue_id in sorted(self._shown.queues):
            if topic == request.topic and (queue := await self._queue(topic, queue_id)):
                answer.queues.add(topic=topic, queue_id=queue_id, max_queue_offset=len(queue))
        return answer

    async def GetOffsetByTime(
        self, request: queues_pb.GetOffsetByTimeRequest, _: object
    ) -> queues_pb.GetOffsetByTimeResponse:
        """Return the first queue offset that was stored at or after a time."""
        queue, time_ms = await self._queue(request.topic, request.queue_id), request.time.ToMilliseconds()
        return queues_pb.GetOffsetByTimeResponse(queue_offset=sum(one.store_time_ms < time_ms for one in queue))

    async def MeasureQueues(
        self, request: queues_pb.MeasureQueuesRequest, _: object
    ) -> queues_pb.MeasureQueuesResponse:
        """Return the sizes of records from a queue offset on, and of others, and a time."""
        answer = queues_pb.MeasureQueuesResponse()
        for part in request.parts:
            others, queue = set(part.queue_offsets), await self._queue(part.topic, part.queue_id)
            counted = (at for at in queue if at.queue_offset >= part.start_queue_offset or at.queue_offset in others)
            measure = answer.measures.add(
                max_queue_offset=len(queue), size_bytes=sum(at.record_size_bytes for at in counted)
            )
            if part.time_queue_offset < len(queue):
                measure.store_time.FromMilliseconds(queue[part.time_queue_offset].store_time_ms)
        return answer

    async def QueryByKey(self, request: queries_pb.QueryByKeyRequest, _: object) -> queries_pb.QueryByKeyResponse:
        """Return the messages of a topic with a key, the newest first."""
        await self._follow()
        found = [one for one in self._shown.keys[request.topic, request.key] if one.physical_offset < self._end]
        return queries_pb.QueryByKeyResponse(
            messages=reversed(found[-request.page_size :]), indexed_physical_offset=self._end
        )

    async def QueryById(self, request: queries_pb.QueryByIdRequest, _: object) -> queries_pb.QueryByIdResponse:
        """Find nothing: no message here is asked for by its place."""
        raise MessageNotFound(request.message_id)

    async def GetStatus(self, _: status_pb.GetStatusRequest, __: object) -> status_pb.GetStatusResponse:
        """Tell up to where the log is indexed."""
        await self._follow()
        return status_pb.GetStatusResponse(indexed_physical_offset=self._end)

    async def GetConsumerOffset(
        self, request: offsets_pb.GetConsumerOffsetRequest, _: object
    ) -> offsets_pb.GetConsumerOffsetResponse:
        """Return the offset that a group committed of a queue."""
        topic, queue_id = request.topic, request.queue_id
        offset = self._offsets[request.group].get((topic, queue_id))
        if offset is None:
            raise ConsumerOffsetNotFound(request.group, topic, queue_id)
        found = offsets_pb.ConsumerOffset(topic=topic, queue_id=queue_id, queue_offset=offset)
        return offsets_pb.GetConsumerOffsetResponse(offset=found)

    async def ListConsumerGroups(
        self, _: offsets_pb.ListConsumerGroupsRequest, __: object
    ) -> offsets_pb.ListConsumerGroupsResponse:
        """Return the offsets that all groups committed, on a single page."""
        answer = offsets_pb.ListConsumerGroupsResponse()
        for name, offsets in self._offsets.items():
            group = answer.groups.add(group=name)
            for (topic, queue_id), offset in offsets.items():
                group.offsets.add(topic=topic, queue_id=queue_id, queue_offset=offset)
        return answer

    async def CommitConsumerOffset(
        self, request: offsets_pb.CommitConsumerOffsetRequest, _: object
    ) -> offsets_pb.CommitConsumerOffsetResponse:
        """Keep offsets of a group."""
        await self._follow()
        if request.group == LEVELS_GROUP and self._whole is self._node.log is not None:
            positions = [(self._node.name, one.queue_id, one.queue_offset) for one in request.offsets]
            self._node.world.levels.check_positions(positions)
            self._node.world.count("positions of levels compared", len(positions))
        self._offsets[request.group].update({(one.topic, one.queue_id): one.queue_offset for one in request.offsets})
        return offsets_pb.CommitConsumerOffsetResponse()

    async def GetGroupConfig(
        self, request: configs_pb.GetGroupConfigRequest, _: object
    ) -> configs_pb.GetGroupConfigResponse:
        """Return the policy of a group."""
        return configs_pb.GetGroupConfigResponse(config=self._configs.get(request.group))

    async def StoreGroupConfigs(
        self, request: configs_pb.StoreGroupConfigsRequest, _: object
    ) -> configs_pb.StoreGroupConfigsResponse:
        """Keep policies."""
        self._configs |= {one.group: one for one in request.configs}
        for group in request.deleted_groups:
            self._configs.pop(group, None)
        return configs_pb.StoreGroupConfigsResponse()

    async def _follow(self) -> None:
        if (log := self._node.log) is not None:
            await self._shown.read(log)
            self._end = max(self._end, log.marks.visible.value)
            if log.follower is None and log.marks.visible.value == log.marks.wrote.value:
                self._whole = log

    async def _queue(self, topic: str, queue_id: int) -> list[StoredMessage]:
        """Return a queue as far as its log has shown it."""
        await self._follow()
        queue = self._shown.queues.get((topic, queue_id), [])
        return queue[: bisect_left(queue, self._end, key=lambda one: one.physical_offset)]

    async def _until_more(self, place: tuple[str, int], offset: int, wait_s: float) -> None:
        """Wait for a message at a queue offset, at most so long."""
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + wait_s
        while len(await self._queue(*place)) <= offset and (left_s := until_s - now_s()) > 0:
            log, wait_s = self._node.log, min(left_s, LOOK_S)
            if log is None:
                await asyncio.sleep(wait_s)
                continue
            more = log.marks.visible.reached(self._end + 1)
            try:
                await asyncio.wait([more], timeout=wait_s)
            finally:
                more.cancel()
