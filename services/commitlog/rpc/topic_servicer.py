# SPDX-License-Identifier: Apache-2.0
"""TopicService: protobuf to and from the topic registry."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from reput.commitlog.v1 import topic_service_pb2 as pb

from libs.formats.config.topics_json import TopicConfig
from libs.formats.state.system_topics import is_system_topic
from libs.requests.checks import check_range, size_of_page
from libs.requests.errors import BadArgument, TopicNotFound
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.by_name import named
from libs.runtime.rpc.topic_shares import message_of, share_of
from libs.runtime.trust.audit.change import note
from services.commitlog.engine.durable.topic_changes import TopicChanges
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.topics import check_topic_name

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 1_000
LIST = "topics"
EXPIRED_TOPIC_COUNT_MAX = 10_000


class TopicServicer(Struct, frozen=True, eq=False):
    """The servicer of reput.commitlog.v1.TopicService."""

    _log: Callable[[], OpenLog]

    async def CreateTopic(self, request: pb.CreateTopicRequest, _: object) -> pb.CreateTopicResponse:
        """Create a topic. Answers when it is as durable as an acknowledged append, as the two changes below do."""
        log = self._log()
        topic = _topic(log, await _changes(log).create(request.name, **_given(request)))
        note(after=topic)
        return pb.CreateTopicResponse(topic=topic)

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, _: object) -> pb.UpdateTopicResponse:
        """Change the values that the request names."""
        log = self._log()
        before = _found(log, request.name)
        topic = _topic(log, await _changes(log).update(request.name, **_given(request)))
        _note_difference(before or pb.Topic(), topic)
        return pb.UpdateTopicResponse(topic=topic)

    async def GetTopic(self, request: pb.GetTopicRequest, _: object) -> pb.GetTopicResponse:
        """Return a topic. Only a leader answers that a topic does not exist: other logs may not have it yet."""
        log = self._log()
        try:
            topic = log.topics.get(request.name)
        except TopicNotFound:
            log.gate.check_leads()
            raise
        return pb.GetTopicResponse(topic=_topic(log, topic))

    async def ListTopics(self, request: pb.ListTopicsRequest, _: object) -> pb.ListTopicsResponse:
        """Return a page of topics, by name."""
        log = self._log()
        size = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        token, arguments = request.page_token, tuple[bool, ...]((request.include_system,))
        if request.only_with_retention:
            arguments = *arguments, True
        last_name = decode_token(LIST, arguments, token, str) or ""
        if request.only_with_retention:
            found = [topic for topic in log.topics.with_retention() if topic.name > last_name][: size + 1]
        else:
            found = log.topics.list_after(last_name, size + 1, include_system=request.include_system)
        page = found[:size]
        token = encode_token(LIST, arguments, page[-1].name) if len(found) > size else ""
        return pb.ListTopicsResponse(topics=[_topic(log, topic) for topic in page], next_page_token=token)

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, _: object) -> pb.DeleteTopicResponse:
        """Delete a topic."""
        log = self._log()
        before = _found(log, request.name)
        await _changes(log).delete(request.name)
        note(before=before)
        return pb.DeleteTopicResponse()

    async def PurgeTopic(self, request: pb.PurgeTopicRequest, _: object) -> pb.PurgeTopicResponse:
        """Take a topic's messages away from readers."""
        log = self._log()
        before = log.topics.begins.by_topic.get(request.name, 0)
        begin = await _changes(log).purge(request.name)
        note(before={"begin_physical_offset": before}, after={"begin_physical_offset": begin})
        return pb.PurgeTopicResponse(begin_physical_offset=begin)

    async def ExpireMessages(self, request: pb.ExpireMessagesRequest, _: object) -> pb.ExpireMessagesResponse:
        """Take expired messages of topics away from readers."""
        count = len(request.begins)
        if count > EXPIRED_TOPIC_COUNT_MAX:
            reason = f"must be at most {EXPIRED_TOPIC_COUNT_MAX}"
            raise BadArgument(reason, field="begins", value=count, limit=EXPIRED_TOPIC_COUNT_MAX)
        log, begins = self._log(), {}
        for one in request.begins:
            check_topic_name(one.topic)
            end, field = log.reader.end_physical_offset, "begin_physical_offset"
            begins[one.topic] = check_range(one.begin_physical_offset, field, most=end)
        return pb.ExpireMessagesResponse(changed_topic_count=await _changes(log).expire(begins))


def _changes(log: OpenLog) -> TopicChanges:
    """Return the topic changes of a leader. Raises NotLeader and Stopping."""
    log.gate.check_leads()
    log.gate.check_lease()
    return log.topic_changes


def _topic(log: OpenLog, topic: TopicConfig) -> pb.Topic:
    why = log.topics.set_apart.why(topic.name)
    queue_count = log.topics.queue_count(topic)
    share = None if why or topic.share is None else message_of(topic.share)
    is_system = is_system_topic(topic.name)
    return named(pb.Topic, topic, is_system=is_system, set_apart=why, queue_count=queue_count, share=share)


def _note_difference(before: pb.Topic, after: pb.Topic) -> None:
    """Note both values for the audit line, of a share only the queues that differ: a share can have hundreds."""
    noted = pb.Topic(), pb.Topic()
    same = {queue.SerializeToString() for queue in before.share.queues}
    same &= {queue.SerializeToString() for queue in after.share.queues}
    for copy, topic in zip(noted, (before, after), strict=True):
        copy.CopyFrom(topic)
        if copy.HasField("share"):
            del copy.share.queues[:]
            copy.share.queues.extend(queue for queue in topic.share.queues if queue.SerializeToString() not in same)
    note(before=noted[0], after=noted[1])


def _found(log: OpenLog, name: str) -> pb.Topic | None:
    """Return a topic before a change. None if it does not exist."""
    try:
        return _topic(log, log.topics.get(name))
    except TopicNotFound:
        return None


def _given(request: pb.CreateTopicRequest | pb.UpdateTopicRequest) -> dict[str, Any]:
    """Return the values of a topic that a request names."""
    given = {field.name: value for field, value in request.ListFields() if field.name != "name"}
    return given | {"share": share_of(request.share)} if request.HasField("share") else given
