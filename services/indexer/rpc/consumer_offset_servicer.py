# SPDX-License-Identifier: Apache-2.0
"""ConsumerOffsetService over the engine's consumer offsets."""

import asyncio

from reput.indexer.v1 import consumer_offset_service_pb2 as messages

from libs.formats.state.system_topics import DELIVERY_TOPIC, TIMER_TOPIC
from libs.machine.loop import in_steps
from libs.requests import arguments
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument, ConsumerOffsetNotFound, TopicNotFound
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.connection_servicer import note_group
from libs.runtime.trust.audit.change import note
from services.indexer.engine.answer.answers import Answers
from services.indexer.engine.answer.time_search import first_at_or_after
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets
from services.indexer.engine.groups.pages import GroupPosition, page_of_groups
from services.indexer.engine.groups.timer_wheel import TimerWheel
from services.indexer.engine.indexer import Follow
from services.indexer.engine.tables.queues import STEP_QUEUE_COUNT

OFFSET_COUNT_MAX = 1_000
PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
PAGE_OFFSET_COUNT_MAX = 1_000
NOTED_QUEUE_COUNT_MAX = 64
"""Maximum number of queues whose offsets the audit line of a reset has."""
COMMIT_STEP_COUNT = 250


class ConsumerOffsetServicer:
    """Serves reput.indexer.v1.ConsumerOffsetService."""

    def __init__(self, groups: ConsumerOffsets, answers: Answers, follow: Follow, timer_wheel: TimerWheel) -> None:
        self._groups = groups
        self._timer_wheel = timer_wheel
        self._answers = answers
        self._queues = answers.indexes.queues
        self._completeness = follow.completeness
        self._shared_state = follow.shared_state

    async def CommitConsumerOffset(
        self, request: messages.CommitConsumerOffsetRequest, context: object
    ) -> messages.CommitConsumerOffsetResponse:
        """Store offsets of a group. If a queue is named twice, its last offset is stored."""
        group = arguments.group(request.group)
        note_group(context, group)
        count = len(request.offsets)
        if not 1 <= count <= OFFSET_COUNT_MAX:
            reason = f"must be 1 to {OFFSET_COUNT_MAX}"
            raise BadArgument(reason, field="offsets", value=count, limit=OFFSET_COUNT_MAX if count else 1)
        offsets: dict[tuple[str, int], int] = {}
        async for step in in_steps(enumerate(request.offsets), count=COMMIT_STEP_COUNT):
            for index, offset in step:
                path = f"offsets[{index}]"
                topic = self._answers.served(arguments.topic(offset.topic, f"{path}.topic"), f"{path}.topic")
                queue_id = arguments.queue_id(offset.queue_id, f"{path}.queue_id")
                offsets[topic, queue_id] = check_range(offset.queue_offset, f"{path}.queue_offset")
        self._shared_state.check_room()
        self._groups.commit(group, offsets)
        if group == DELIVERY_TOPIC and (begin := offsets.get((TIMER_TOPIC, 0))) is not None:
            await asyncio.to_thread(self._timer_wheel.begin_at, begin)
        return messages.CommitConsumerOffsetResponse()

    async def GetConsumerOffset(
        self, request: messages.GetConsumerOffsetRequest, _: object
    ) -> messages.GetConsumerOffsetResponse:
        """Return the offset of a group in a queue."""
        group, topic = arguments.group(request.group), arguments.topic(request.topic)
        queue_id = arguments.queue_id(request.queue_id)
        self._shared_state.check_known()
        queue_offset = self._groups.find(group, topic, queue_id)
        if queue_offset is None:
            raise ConsumerOffsetNotFound(group, topic, queue_id)
        return messages.GetConsumerOffsetResponse(offset=self._offset(topic, queue_id, queue_offset))

    async def ResetConsumerOffset(
        self, request: messages.ResetConsumerOffsetRequest, _: object
    ) -> messages.ResetConsumerOffsetResponse:
        """Move a group in all queues of a topic. Synced, and in the log, before the answer."""
        group, topic = arguments.group(request.group), self._answers.served(arguments.topic(request.topic))
        to = request.WhichOneof("to")
        if to is None:
            raise BadArgument("one of earliest, latest and time must be set", field="to")
        if to != "time" and not getattr(request, to):
            raise BadArgument("must be true or absent", field=to, value=False, limit=True)
        time_ms = arguments.time_ms(request, "time")
        self._shared_state.check_room()
        offsets: dict[tuple[str, int], int] = {}
        with self._completeness.answering():
            for index, queue_id in enumerate(self._queues.queue_ids(topic)):
                if index % STEP_QUEUE_COUNT == 0:
                    await asyncio.sleep(0)
                queue = self._queues.find(topic, queue_id)
                if queue is None:  # it was removed meanwhile
                    continue
                if time_ms is not None:
                    offsets[topic, queue_id] = await first_at_or_after(queue, self._answers.records, time_ms)
                else:
                    offsets[topic, queue_id] = queue.min_queue_offset if to == "earliest" else queue.max_queue_offset
        if not offsets:
            raise TopicNotFound(topic, is_empty=True)
        former = {place: self._groups.find(group, *place) for place in list(offsets)[:NOTED_QUEUE_COUNT_MAX]}
        self._groups.commit(group, offsets)
        await self._groups.save()
        await self._shared_state.send()
        note(
            before={str(queue_id): offset for (_, queue_id), offset in former.items() if offset is not None},
            after={str(queue_id): offsets[topic, queue_id] for _, queue_id in former},
        )
        response = messages.ResetConsumerOffsetResponse()
        async for step in in_steps(sorted(offsets.items()), count=STEP_QUEUE_COUNT):
            response.offsets.extend(self._offset(topic, queue_id, value) for (_, queue_id), value in step)
        return response

    async def DeleteConsumerGroup(
        self, request: messages.DeleteConsumerGroupRequest, _: object
    ) -> messages.DeleteConsumerGroupResponse:
        """Delete a group, or its offsets of a topic. Synced, and in the log, before the answer."""
        group = arguments.group(request.group)
        topic = arguments.topic(request.topic) if request.topic else None
        self._shared_state.check_room()
        count = await self._groups.delete(group, topic)
        await self._groups.save()
        await self._shared_state.send()
        note(after={"deleted_offset_count": count})
        return messages.DeleteConsumerGroupResponse(deleted_offset_count=count)

    async def ListConsumerGroups(
        self, request: messages.ListConsumerGroupsRequest, _: object
    ) -> messages.ListConsumerGroupsResponse:
        """Return a page of groups. The token is the last group of the page before, or the last queue of a part."""
        self._shared_state.check_known()
        page_size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        position = decode_token("groups", (), request.page_token, GroupPosition) or GroupPosition()
        page = await page_of_groups(
            self._groups, position, group_count_max=page_size, offset_count_max=PAGE_OFFSET_COUNT_MAX
        )
        groups: list[messages.ConsumerGroup] = []
        for group, offsets in page.groups:
            groups.append(messages.ConsumerGroup(group=group))
            async for step in in_steps(offsets, count=STEP_QUEUE_COUNT):
                groups[-1].offsets.extend(self._offset(*one[1:]) for one in step)
        token = "" if page.position is None else encode_token("groups", (), page.position)
        return messages.ListConsumerGroupsResponse(groups=groups, next_page_token=token)

    def _offset(self, topic: str, queue_id: int, queue_offset: int) -> messages.ConsumerOffset:
        queue = self._queues.find(topic, queue_id)
        first, end = (0, 0) if queue is None else (queue.min_queue_offset, queue.max_queue_offset)
        lag = max(0, end - max(queue_offset, first))
        return messages.ConsumerOffset(topic=topic, queue_id=queue_id, queue_offset=queue_offset, lag=lag)
