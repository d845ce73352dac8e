# SPDX-License-Identifier: Apache-2.0
"""GroupServicer: the gRPC service GroupService of this process."""

from bisect import bisect_right

from google.protobuf.duration import from_milliseconds
from reput.delivery.v1 import group_service_pb2 as messages

from libs.formats.config.topic_share import CHANGE_QUEUE_COUNT_MAX
from libs.formats.records.delivery_record import Place, Policy
from libs.requests import arguments
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.timestamps import timestamp
from libs.runtime.trust.audit.change import note
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.own.lags import QueueLag
from services.delivery.engine.own.message_states import MessageState
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.log import Log
from services.delivery.rpc.names import group_name
from services.delivery.rpc.policies import message_of, policy_of

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "delivery groups"
MESSAGE_COUNT_MAX = 100
"""Maximum number of messages whose states a call asks for."""
NOTED_QUEUE_COUNT_MAX = 64
"""Maximum number of queues whose moves the audit line has."""


class GroupServicer:
    """Sets, shows, lists, deletes and moves groups."""

    def __init__(self, owner: JournalOwner, log: Log, index: Index) -> None:
        self._owner, self._log, self._index = owner, log, index

    async def SetGroup(self, request: messages.SetGroupRequest, _: object) -> messages.SetGroupResponse:
        """Give a group a policy."""
        group, policy = group_name(request.group), policy_of(request.policy)
        engine = await self._owner.engine()
        former = message_of(engine.groups.policy(group)) if engine.groups.is_known(group) else None
        await engine.set_policy(group, policy)
        note(before=former, after=message_of(policy))
        return messages.SetGroupResponse(group=_group(group, policy))

    async def GetGroup(self, request: messages.GetGroupRequest, _: object) -> messages.GetGroupResponse:
        """Return a group's policy, lags, filters and number of dead letters."""
        engine, group = await self._owner.engine(), group_name(request.group)
        found = _group(group, engine.groups.policy(group), await engine.lags.of(group))
        found.filters.extend(
            messages.GroupFilter(topic=filters.topic, tag_expression=wanted.tags, where=wanted.where)
            for filters in engine.subscriptions.filters.of_group(group)
            for wanted in filters.live
        )
        found.dead_letter_count = await engine.dead_letters.count(group)
        return messages.GetGroupResponse(group=found)

    async def GetMessageStates(
        self, request: messages.GetMessageStatesRequest, _: object
    ) -> messages.GetMessageStatesResponse:
        """Return the states of messages at a group, in the order of the request."""
        engine, group = await self._owner.engine(), group_name(request.group)
        places = _places(request)
        return messages.GetMessageStatesResponse(
            states=[_state(engine.message_states.of(group, *place)) for place in places]
        )

    async def GetSealedQueues(
        self, request: messages.GetSealedQueuesRequest, _: object
    ) -> messages.GetSealedQueuesResponse:
        """Return how far a group is in sealed queues."""
        engine, group, topic = await self._owner.engine(), group_name(request.group), arguments.topic(request.topic)
        count = len(request.queue_ids)
        if not 1 <= count <= CHANGE_QUEUE_COUNT_MAX:
            limit = CHANGE_QUEUE_COUNT_MAX if count else 1
            raise BadArgument(f"must be 1 to {CHANGE_QUEUE_COUNT_MAX}", field="queue_ids", value=count, limit=limit)
        ids = [arguments.queue_id(one, f"queue_ids[{index}]") for index, one in enumerate(request.queue_ids)]
        return messages.GetSealedQueuesResponse(
            queues=[
                messages.SealedQueue(
                    queue_id=queue.queue_id,
                    stage=messages.SealedStage.Value(f"SEALED_STAGE_{queue.stage}"),
                    unsettled_count=queue.unsettled_count,
                )
                for queue in await engine.sealed_queues.of(group, topic, ids)
            ]
        )

    async def ListGroups(self, request: messages.ListGroupsRequest, _: object) -> messages.ListGroupsResponse:
        """Return a page of groups. The token is the last group of the page before."""
        groups = (await self._owner.engine()).groups
        count = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        names = groups.names()
        start = bisect_right(names, decode_token(LIST, (), request.page_token, str) or "")
        page = names[start : start + count]
        token = encode_token(LIST, (), page[-1]) if start + count < len(names) else ""
        found = [_group(name, groups.policy(name)) for name in page]
        return messages.ListGroupsResponse(groups=found, next_page_token=token)

    async def DeleteGroup(self, request: messages.DeleteGroupRequest, _: object) -> messages.DeleteGroupResponse:
        """Delete a group. Has no effect on an unknown group."""
        engine, group = await self._owner.engine(), group_name(request.group)
        if engine.groups.is_known(group):
            former = message_of(engine.groups.policy(group))
            await engine.set_policy(group, None)
            note(before=former)
        return messages.DeleteGroupResponse()

    async def ResetGroup(self, request: messages.ResetGroupRequest, _: object) -> messages.ResetGroupResponse:
        """Move a group to other queue offsets, or only return the moves in a dry run."""
        engine = await self._owner.engine()
        group, topic = group_name(request.group), arguments.topic(request.topic)
        positions = await self._positions(request, topic)
        moves: list[messages.QueueMove] = []
        for queue_id, position in positions.items():
            queue = engine.groups.find(Place(group, topic, queue_id))
            moves.append(
                messages.QueueMove(
                    queue_id=queue_id,
                    from_queue_offset=0 if queue is None else queue.committed,
                    to_queue_offset=position,
                    settled_count=0 if queue is None else queue.open_count,
                )
            )
        if not request.dry_run:
            await engine.move(group, topic, positions)
            note(
                before={str(move.queue_id): move.from_queue_offset for move in moves[:NOTED_QUEUE_COUNT_MAX]},
                after={str(move.queue_id): move.to_queue_offset for move in moves[:NOTED_QUEUE_COUNT_MAX]},
            )
        return messages.ResetGroupResponse(moves=moves)

    async def _positions(self, request: messages.ResetGroupRequest, topic: str) -> dict[int, int]:
        """Return the requested queue offset of each queue of the topic."""
        to = request.WhichOneof("to")
        if to is None:
            raise BadArgument("one of earliest, latest and time must be set", field="to")
        if to != "time" and not getattr(request, to):
            raise BadArgument("must be true or absent", field=to, value=False, limit=True)
        time_ms = arguments.time_ms(request, "time")
        bounds = await self._index.bounds(topic)
        positions: dict[int, int] = {}
        for queue_id in (await self._log.topic_queues(topic)).ids:
            least, most = bounds.get(queue_id, (0, 0))
            if time_ms is None:
                positions[queue_id] = least if to == "earliest" else most
            else:
                positions[queue_id] = await self._index.offset_at(topic, queue_id, time_ms)
        return positions


def _group(name: str, policy: Policy, lags: list[QueueLag] | None = None) -> messages.Group:
    return messages.Group(name=name, policy=message_of(policy), queues=map(_queue, lags or ()))


def _places(request: messages.GetMessageStatesRequest) -> list[tuple[str, int, int]]:
    """Return topic, queue and queue offset of each message of a request. Raises BadArgument."""
    count = len(request.messages)
    if not 1 <= count <= MESSAGE_COUNT_MAX:
        reason, limit = f"must be 1 to {MESSAGE_COUNT_MAX}", MESSAGE_COUNT_MAX if count else 1
        raise BadArgument(reason, field="messages", value=count, limit=limit)
    return [
        (
            arguments.topic(place.topic, f"messages[{index}].topic"),
            arguments.queue_id(place.queue_id, f"messages[{index}].queue_id"),
            check_range(place.queue_offset, f"messages[{index}].queue_offset"),
        )
        for index, place in enumerate(request.messages)
    ]


def _state(state: MessageState) -> messages.MessageState:
    return messages.MessageState(
        stage=messages.MessageStage.Value(f"MESSAGE_STAGE_{state.stage}"),
        attempt=state.attempt,
        since=None if state.since_ms is None else timestamp(state.since_ms),
        until=None if state.until_ms is None else timestamp(state.until_ms),
        connection_number=state.connection_number,
        before_count=state.before_count,
        behind_queue_offset=state.behind_queue_offset,
    )


def _queue(lag: QueueLag) -> messages.GroupQueue:
    return messages.GroupQueue(
        topic=lag.place.topic,
        queue_id=lag.place.queue_id,
        committed_queue_offset=lag.committed,
        next_queue_offset=lag.next,
        max_queue_offset=lag.max_queue_offset,
        lag=lag.unsettled_count,
        in_flight_count=lag.flight_count,
        held_count=lag.held_count,
        lag_time=None if lag.lag_ms is None else from_milliseconds(lag.lag_ms),
        lag_bytes=lag.lag_bytes,
        waiting_count=lag.waiting_count,
        is_asked=lag.is_asked,
        next_attempt=None if lag.next_attempt_ms is None else timestamp(lag.next_attempt_ms),
        waits_for=[
            messages.OlderQueue(queue_id=queue_id, end_queue_offset=end) for queue_id, end in lag.waits_for.items()
        ],
        standstills=[
            messages.Standstill(
                reason=messages.StandstillReason.Value(f"STANDSTILL_REASON_{one.reason}"),
                text=one.text,
                queue_offset=one.queue_offset,
            )
            for one in lag.standstills
        ],
    )
