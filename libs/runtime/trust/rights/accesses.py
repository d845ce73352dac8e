# SPDX-License-Identifier: Apache-2.0
"""The table of methods: the rights that the requests of each method need, and the part of an answer that callers see.

A method without an entry is not served, as a method without a rule: `service_handler` refuses it at the start.
Methods of services need no entry: only services may call them. A test compares the table with the protos.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from libs.formats.records import record
from libs.kernel.append.request_cy import topics_of
from libs.runtime.trust.rights.rules import ANY, STORE, Action, Asked, Kind, Resource

PRODUCE, CONSUME, QUERY, ADMINISTER = Action.PRODUCE, Action.CONSUME, Action.QUERY, Action.ADMINISTER
READ = CONSUME | QUERY

Finder = Callable[[Any], Iterable[Resource]]
"""Finds the resources of a request. A resource without a name is the whole store."""


class Need(Struct, frozen=True):
    """A need of a method: any of some actions with each of the resources that its requests name."""

    actions: Action
    resources: Finder
    of_store: Action | None = None
    """The actions that a request without a name needs with the store, if they differ."""

    def asked(self, request: Any) -> Iterator[Asked]:
        """Yield the questions of a request."""
        for resource in self.resources(request):
            if resource.name:
                yield Asked(self.actions, resource)
            else:
                yield Asked(self.of_store or self.actions, STORE)


class Shown(Struct, frozen=True):
    """A part of an answer that only callers with a right see.

    A list lacks the elements that the caller may not see; any other answer is refused.
    """

    actions: Action
    list: str
    """The field of the answer with the list. Empty for an answer that is refused."""
    resources: Finder
    """Finds the resources of an element of the list, or of the answer."""


class MethodAccess(Struct, frozen=True):
    """The access of a method. Without needs and parts every subject may call it."""

    needs: tuple[Need, ...] = ()
    shown: Shown | None = None
    field_of: Callable[[Any, Resource], str] | None = None
    """Returns the field of a request that names a resource, for methods whose clients ask for it."""

    def asked(self, request: Any) -> Iterator[Asked]:
        """Yield the questions of a request: all of them need the answer yes."""
        for need in self.needs:
            yield from need.asked(request)


def values(holder: Any, path: str) -> Iterator[str]:
    """Yield the texts at a path of fields, such as `offsets.topic`. Lists on the path are walked."""
    head, _, rest = path.partition(".")
    value = getattr(holder, head)
    for one in (value,) if isinstance(value, str) or hasattr(value, "DESCRIPTOR") else value:
        if rest:
            yield from values(one, rest)
        else:
            yield one


def _topics(*paths: str) -> Finder:
    return lambda holder: (Resource(Kind.TOPIC, name) for path in paths for name in values(holder, path))


def _groups(*paths: str) -> Finder:
    return lambda holder: (Resource(Kind.GROUP, name) for path in paths for name in values(holder, path))


def _given_topics(*paths: str) -> Finder:
    """Return a finder of the topics that are named. It leaves out fields without a name."""
    find = _topics(*paths)
    return lambda holder: (resource for resource in find(holder) if resource.name)


def _store(_: object) -> Iterable[Resource]:
    return (STORE,)


def _raw_topics(request: bytes) -> Iterable[Resource]:
    """Find the topics of the serialized messages of a batch. The service refuses a batch that is malformed."""
    return [Resource(Kind.TOPIC, _text(name)) for name in topics_of(request)]


def _raw_field(request: bytes, resource: Resource) -> str:
    """Return the field of a resource in a batch: a client then takes this message out of the batch."""
    topics = {_text(name): index for name, index in topics_of(request).items()}
    return f"messages[{topics[resource.name]}].topic"


def _text(name: bytes) -> str:
    """Return a topic's name. A name that is none gets a text that no rule allows but a rule for all topics."""
    return name.decode("utf-8", "replace") or "?"


class _Place(msgspec.Struct, array_like=True):
    """The begin of a handle. Delivery's own handles have further fields, so each of them is a place, too."""

    group: str
    topic: str


def resources_of_handle(text: str) -> Iterator[Resource]:
    """Yield group and topic of the handle of a delivery. A text that is no handle is the service's to refuse."""
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        place = msgspec.json.decode(data, type=_Place)
    except (msgspec.DecodeError, UnicodeError, binascii.Error, RecursionError):
        return
    yield Resource(Kind.GROUP, place.group)
    yield Resource(Kind.TOPIC, place.topic)


def _of_handles(path: str) -> Finder:
    return lambda request: (resource for text in values(request, path) for resource in resources_of_handle(text))


def _of_step(request: Any) -> Iterator[Resource]:
    """Find the resources of a step of a Consume stream."""
    if request.HasField("begin"):
        yield Resource(Kind.GROUP, request.begin.group or "?")
        yield from _topics("begin.topics")(request)
    elif request.HasField("settle"):
        yield from _of_handles("settle.entries.handle")(request)


def _of_records(answer: Any) -> Iterator[Resource]:
    """Find the topics of an answer's messages, or of its records."""
    yield from _topics("messages.topic")(answer)
    at = 0
    for size_bytes in answer.record_sizes_bytes if answer.records else ():
        if size_bytes:
            yield Resource(Kind.TOPIC, record.decode(answer.records, at, check_crc=False).topic or "?")
            at += size_bytes


OPEN = MethodAccess()


def _on_topic(actions: Action, path: str = "topic") -> MethodAccess:
    return MethodAccess((Need(actions, _topics(path)),))


def _on_group(actions: Action, path: str = "group") -> MethodAccess:
    return MethodAccess((Need(actions, _groups(path)),))


def _on_store(actions: Action) -> MethodAccess:
    return MethodAccess((Need(actions, _store),))


_COMMITLOG: Mapping[str, MethodAccess] = {
    "AppendService/Append": MethodAccess((Need(PRODUCE, _raw_topics),), field_of=_raw_field),
    "AppendService/AppendStream": MethodAccess((Need(PRODUCE, _raw_topics),), field_of=_raw_field),
    "BackupService/ReadState": _on_store(ADMINISTER),
    "LogService/GetStatus": OPEN,
    "LogService/ReadRecords": MethodAccess(shown=Shown(READ, "", _of_records)),
    "LogService/StreamRecords": _on_store(QUERY),
    "ReplicationService/Promote": _on_store(ADMINISTER),
    "ReplicationService/Demote": _on_store(ADMINISTER),
    "SegmentService/ListSegments": _on_store(QUERY),
    "TopicService/CreateTopic": _on_topic(ADMINISTER, "name"),
    "TopicService/UpdateTopic": _on_topic(ADMINISTER, "name"),
    "TopicService/DeleteTopic": _on_topic(ADMINISTER, "name"),
    "TopicService/PurgeTopic": _on_topic(ADMINISTER, "name"),
    "TopicService/GetTopic": _on_topic(ANY, "name"),
    "TopicService/ListTopics": MethodAccess(shown=Shown(ANY, "topics", _topics("name"))),
}

_INDEXER: Mapping[str, MethodAccess] = {
    "ConsumerOffsetService/CommitConsumerOffset": MethodAccess(
        (Need(CONSUME, _groups("group")), Need(CONSUME, _topics("offsets.topic")))
    ),
    "ConsumerOffsetService/GetConsumerOffset": _on_group(ANY),
    "ConsumerOffsetService/ResetConsumerOffset": _on_group(ADMINISTER),
    "ConsumerOffsetService/DeleteConsumerGroup": _on_group(ADMINISTER),
    "ConsumerOffsetService/ListConsumerGroups": MethodAccess(shown=Shown(ANY, "groups", _groups("group"))),
    "GroupConfigService/StoreGroupConfigs": MethodAccess(
        (Need(ADMINISTER, _groups("configs.group", "deleted_groups")),)
    ),
    "GroupConfigService/GetGroupConfig": _on_group(ANY),
    "IndexService/GetStatus": OPEN,
    "IndexService/WaitIndexed": OPEN,
    "IndexService/RemoveQueues": _on_store(ADMINISTER),
    "QueryService/QueryByKey": _on_topic(QUERY),
    "QueryService/QueryByKeys": _on_topic(QUERY),
    "QueryService/QueryByTime": _on_topic(QUERY),
    "QueryService/QueryById": MethodAccess(
        (Need(QUERY, _given_topics("topic")),), Shown(QUERY, "", _topics("message.topic"))
    ),
    "QueueService/Pull": _on_topic(READ),
    "QueueService/Subscribe": _on_topic(READ),
    "QueueService/GetOffsetByTime": _on_topic(READ | ADMINISTER),
    "QueueService/GetQueueRange": _on_topic(ANY),
    "QueueService/MeasureQueues": MethodAccess((Need(ANY, _topics("parts.topic")),)),
    "QueueService/ListQueues": MethodAccess(
        (Need(ANY, _given_topics("topic")),), Shown(ANY, "queues", _topics("topic"))
    ),
    "RebuildService/RebuildIndexes": _on_store(ADMINISTER),
    "ScanService/PlanScan": MethodAccess((Need(QUERY, _topics("topics", "ranges.topic")),)),
    "ScanService/Scan": MethodAccess(
        (
            Need(QUERY, _topics("partition.ranges.topic")),
            Need(QUERY, _given_topics("partition.key_topic")),
        )
    ),
}

_DELIVERY: Mapping[str, MethodAccess] = {
    "DeadLetterService/ListDeadLetters": _on_group(READ | ADMINISTER),
    "DeadLetterService/ReplayDeadLetters": _on_group(ADMINISTER),
    "DelayService/ListDelayed": MethodAccess(
        (Need(QUERY | ADMINISTER, _given_topics("topic")),), Shown(QUERY | ADMINISTER, "messages", _topics("topic"))
    ),
    "DelayService/CancelDelayed": _on_topic(ADMINISTER),
    "DelayService/GetDelayLevels": OPEN,
    "DeliveryService/Receive": MethodAccess((Need(CONSUME, _groups("group")), Need(CONSUME, _topics("topic")))),
    "DeliveryService/Settle": MethodAccess((Need(CONSUME, _of_handles("entries.handle")),)),
    "DeliveryService/Consume": MethodAccess((Need(CONSUME, _of_step),)),
    "GroupService/SetGroup": _on_group(ADMINISTER),
    "GroupService/GetGroup": _on_group(ANY),
    "GroupService/GetMessageStates": _on_group(ANY),
    "GroupService/ListGroups": MethodAccess(shown=Shown(ANY, "groups", _groups("name"))),
    "GroupService/DeleteGroup": _on_group(ADMINISTER),
    "GroupService/ResetGroup": _on_group(ADMINISTER),
    "TransactionService/EndTransaction": MethodAccess((Need(PRODUCE, _groups("producer_group"), of_store=ADMINISTER),)),
    "TransactionService/ReceiveChecks": _on_group(PRODUCE, "producer_groups"),
    "TransactionService/ListTransactions": MethodAccess(
        shown=Shown(PRODUCE | QUERY | ADMINISTER, "transactions", _groups("producer_group"))
    ),
}

_JANITOR: Mapping[str, MethodAccess] = {
    "RetentionService/GetStatus": OPEN,
    "RetentionService/GetPolicy": OPEN,
    "RetentionService/RunOnce": _on_store(ADMINISTER),
    "RetentionService/ListHistory": _on_store(QUERY),
}

_COMMON: Mapping[str, MethodAccess] = {
    "AuditService/ListLines": _on_store(ADMINISTER),
    "ConnectionService/ListConnections": _on_store(ADMINISTER),
}

ACCESSES: Mapping[str, MethodAccess] = {
    f"/reput.{package}.v1.{method}": access
    for package, methods in (
        ("commitlog", _COMMITLOG),
        ("indexer", _INDEXER),
        ("delivery", _DELIVERY),
        ("janitor", _JANITOR),
        ("common", _COMMON),
    )
    for method, access in methods.items()
}
"""Maps the path of each method for clients and operators to its access."""
