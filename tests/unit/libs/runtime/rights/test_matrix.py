# SPDX-License-Identifier: Apache-2.0
"""Each method of the protos × kinds of subjects × own and foreign names, through a real server.

Requests are made from the descriptors: each field that names a topic or a group has the own name, or one of them has a
foreign name. So a method that looks at fewer fields than it has is found here, and so is a new method without an entry.
"""

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.rights.access import RefusedRequest
from libs.runtime.trust.rights.accesses import ACCESSES
from libs.runtime.trust.roles import ROLES, Role
from libs.runtime.watch.telemetry import Telemetry
from tests.support.methods import path_of, proto_methods
from tests.support.patience import LIMIT_S

OWN, FOREIGN = "own-one", "foreign"
NAME_FIELDS = ("topic", "topics", "group", "producer_group", "producer_groups", "key_topic", "deleted_groups", "handle")
"""Fields of requests that name a topic or a group. A `name` is of a topic in TopicService."""
NO_NAMES = ("history_id",)

PRODUCER, CONSUMER, READER, ADMIN, KEEPER = "P", "C", "Q", "A", "K"
"""Subjects with a right for the own names each, and a subject that may query and administer the store itself."""
ALL, LISTED = "*", "~"
"""Every subject may call the method; a list has the own elements alone."""
SUBJECTS = {PRODUCER: "produce", CONSUMER: "consume", READER: "query", ADMIN: "administer"}

EXPECTED = {
    "AppendService/Append": "P",
    "AppendService/AppendStream": "P",
    "LogService/GetStatus": ALL,
    "LogService/ReadRecords": "CQ",
    "BackupService/ReadState": "K",
    "LogService/StreamRecords": "K",
    "ReplicationService/Promote": "K",
    "ReplicationService/Demote": "K",
    "SegmentService/ListSegments": "K",
    "TopicService/CreateTopic": "A",
    "TopicService/UpdateTopic": "A",
    "TopicService/DeleteTopic": "A",
    "TopicService/PurgeTopic": "A",
    "TopicService/GetTopic": "PCQA",
    "TopicService/ListTopics": LISTED,
    "ConsumerOffsetService/CommitConsumerOffset": "C",
    "ConsumerOffsetService/GetConsumerOffset": "PCQA",
    "ConsumerOffsetService/ResetConsumerOffset": "A",
    "ConsumerOffsetService/DeleteConsumerGroup": "A",
    "ConsumerOffsetService/ListConsumerGroups": LISTED,
    "GroupConfigService/StoreGroupConfigs": "A",
    "GroupConfigService/GetGroupConfig": "PCQA",
    "IndexService/GetStatus": ALL,
    "IndexService/WaitIndexed": ALL,
    "IndexService/RemoveQueues": "K",
    "QueryService/QueryByKey": "Q",
    "QueryService/QueryByKeys": "Q",
    "QueryService/QueryByTime": "Q",
    "QueryService/QueryById": "Q",
    "QueueService/Pull": "CQ",
    "QueueService/Subscribe": "CQ",
    "QueueService/GetOffsetByTime": "CQA",
    "QueueService/GetQueueRange": "PCQA",
    "QueueService/MeasureQueues": "PCQA",
    "QueueService/ListQueues": "PCQA",
    "RebuildService/RebuildIndexes": "K",
    "ScanService/PlanScan": "Q",
    "ScanService/Scan": "Q",
    "DeadLetterService/ListDeadLetters": "CQA",
    "DeadLetterService/ReplayDeadLetters": "A",
    "DelayService/ListDelayed": "QA",
    "DelayService/CancelDelayed": "A",
    "DelayService/GetDelayLevels": ALL,
    "DeliveryService/Receive": "C",
    "DeliveryService/Settle": "C",
    "DeliveryService/Consume": "C",
    "GroupService/SetGroup": "A",
    "GroupService/GetGroup": "PCQA",
    "GroupService/GetMessageStates": "PCQA",
    "GroupService/ListGroups": LISTED,
    "GroupService/DeleteGroup": "A",
    "GroupService/ResetGroup": "A",
    "TransactionService/EndTransaction": "P",
    "TransactionService/ReceiveChecks": "P",
    "TransactionService/ListTransactions": LISTED,
    "RetentionService/GetStatus": ALL,
    "RetentionService/GetPolicy": ALL,
    "RetentionService/RunOnce": "K",
    "RetentionService/ListHistory": "K",
    "AuditService/ListLines": "K",
    "ConnectionService/ListConnections": "K",
}
"""The subjects that may call each method with their own names, written by hand beside the table that is tested."""

ONLY_IN_GROUPS = {
    "ConsumerOffsetService/GetConsumerOffset",
    "ConsumerOffsetService/ResetConsumerOffset",
    "ConsumerOffsetService/DeleteConsumerGroup",
    "GroupService/GetMessageStates",
    "GroupService/ResetGroup",
    "TransactionService/ListTransactions",
}
"""Methods of a group that also take a topic of it, or that filter their answer: their topics give no right."""

ONLY_OF_STORE = ("RetentionService/RunOnce",)
"""Methods that need a right for the store itself, whatever topic they name: a run concerns all topics."""

METHODS = proto_methods()


def short(method: MethodDescriptor) -> str:
    return f"{method.containing_service.name}/{method.name}"


def is_name(field: FieldDescriptor) -> bool:
    """Whether a field names a topic or a group."""
    if field.type != FieldDescriptor.TYPE_STRING:
        return False
    holder = field.containing_type.name
    return field.name in NAME_FIELDS or (field.name == "name" and holder.endswith("TopicRequest"))


def places(described: Descriptor, depth: int = 4) -> Iterator[tuple[FieldDescriptor, ...]]:
    """Yield the paths to all fields of a message that name a topic or a group."""
    for field in described.fields:
        if is_name(field):
            yield (field,)
        elif field.message_type is not None and depth and field.message_type.full_name.startswith("reput."):
            for rest in places(field.message_type, depth - 1):
                yield (field, *rest)


def put(message: Message, place: tuple[FieldDescriptor, ...], name: str) -> None:
    """Set the field at a path, or add to it."""
    for field in place[:-1]:
        part = getattr(message, field.name)
        if field.is_repeated:
            part = part[0] if part else part.add()
        message = part
    last = place[-1]
    if last.name == "handle":
        name = handle(name, name)
    if last.is_repeated:
        getattr(message, last.name).append(name)
    else:
        setattr(message, last.name, name)


def handle(group: str, topic: str) -> str:
    """A handle of a delivery, as Delivery makes them."""
    return base64.urlsafe_b64encode(json.dumps([group, topic, 0, 7, 1]).encode()).decode().rstrip("=")


def requests_of(method: MethodDescriptor) -> tuple[list[Message], list[Message]]:
    """Requests with own names alone, and requests with a foreign name in a single field.

    Fields of a `oneof` get a request each: of them a message has only one.
    """
    make = GetMessageClass(method.input_type)
    own, foreign = [], []
    found = list(places(method.input_type))
    steps = {place[0].name for place in found if place[0].containing_oneof is not None}
    for step in steps or {""}:
        these = [place for place in found if not steps or place[0].name == step]
        for odd in (None, *range(len(these))):
            message = make()
            for number, place in enumerate(these):
                put(message, place, FOREIGN if number == odd else OWN)
            (own if odd is None else foreign).append(message)
    return own, foreign


def names_in(message: Message) -> set[str]:
    """All topics and groups that an answer names."""
    found = set()
    for field, value in message.ListFields():
        for one in value if field.is_repeated else (value,):
            if field.message_type is not None and not field.message_type.GetOptions().map_entry:
                found |= names_in(one)
            elif field.name in ("topic", "group", "producer_group", "name") and one:
                found.add(one)
    return found


def answer_of(method: MethodDescriptor, names: tuple[str, ...]) -> Message:
    """An answer that has an element for each name, in its first field with messages."""
    answer = GetMessageClass(method.output_type)()
    for field in method.output_type.fields:
        if field.message_type is None or not field.message_type.full_name.startswith("reput."):
            continue
        named = [one for one in field.message_type.fields if one.name in ("topic", "group", "producer_group", "name")]
        texts = [one for one in named if one.type == FieldDescriptor.TYPE_STRING]
        if texts:
            for name in names if field.is_repeated else names[:1]:
                element = getattr(answer, field.name).add() if field.is_repeated else getattr(answer, field.name)
                for text in texts:
                    setattr(element, text.name, name)
            break
    return answer


def serialized(message: Message) -> bytes:
    return message.SerializeToString()


class Servicer:
    """Answers each method with the names of `names`."""

    def __init__(self, service: ServiceDescriptor) -> None:
        self.names: tuple[str, ...] = (OWN,)
        for method in service.methods:
            setattr(self, method.name, self._behaviour(method))

    def _behaviour(self, method: MethodDescriptor) -> Any:
        async def unary(request: Any, context: object) -> Message:
            if method.client_streaming:
                async for _ in request:
                    pass
            return answer_of(method, self.names)

        async def stream(request: Any, context: object) -> AsyncIterator[Message]:
            if method.client_streaming:
                async for one in request:
                    if isinstance(one, RefusedRequest):
                        raise one.error
            yield answer_of(method, self.names)

        return stream if method.server_streaming else unary


@contextlib.asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[grpc.aio.Channel, list[Servicer]]]:
    """Serve all services of the protos with the subjects of this matrix."""
    lines = []
    for name, action in SUBJECTS.items():
        (tmp_path / name).write_text(f"token-{name}\n")
        lines += [
            f'[[subjects]]\nname = "{name}"\ntoken_file = "{name}"',
            f'[[rules]]\nsubjects = ["{name}"]\nallow = ["{action}"]\ntopics = ["own-*"]\ngroups = ["own-*"]',
        ]
    (tmp_path / KEEPER).write_text(f"token-{KEEPER}\n")
    lines.append(f'[[subjects]]\nname = "{KEEPER}"\ntoken_file = "{KEEPER}"')
    lines.append(f'[[rules]]\nsubjects = ["{KEEPER}"]\nallow = ["query", "administer"]\nstore = true')
    (tmp_path / "rights.toml").write_text("\n".join(lines))
    for name in ("operator", "service"):
        (tmp_path / name).write_text(f"token-{name}\n")
    config = ServerConfig(
        port=0,
        rights_file=tmp_path / "rights.toml",
        operator_token_file=tmp_path / "operator",
        service_token_file=tmp_path / "service",
    )
    server = GrpcServer(config, errors={}, telemetry=Telemetry.off(), request_size_bytes_max=1 << 20)
    servicers = []
    for service in dict.fromkeys(method.containing_service for method in METHODS):
        servicer = Servicer(service)
        servicers.append(servicer)
        raw = ("Append", "AppendState", "AppendStream") if service.name == "AppendService" else ()
        server.add_service(service, servicer, raw=raw, goes_on=[name for name in raw if name == "AppendStream"])
    await server.start()
    server.admit()
    try:
        async with grpc.aio.insecure_channel(f"localhost:{server.port}") as channel:
            yield channel, servicers
    finally:
        await server.stop(0)


def reason_of(error: grpc.aio.AioRpcError) -> ErrorInfo:
    """The reason of a refusal. Asserts that it is one."""
    assert error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED), error
    trailing = dict(error.trailing_metadata() or ())
    status, info = Status.FromString(trailing["grpc-status-details-bin"]), ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


async def outcome(
    channel: grpc.aio.Channel, method: MethodDescriptor, request: Message, subject: str
) -> Message | ErrorInfo:
    """The answer, or the reason of the refusal."""
    kinds = {True: "stream", False: "unary"}
    calls = getattr(channel, f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}")
    call = calls(path_of(method), serialized, GetMessageClass(method.output_type).FromString)
    metadata = (("authorization", f"Bearer token-{subject}"),) if subject else ()
    argument = iter([request]) if method.client_streaming else request
    try:
        answering = call(argument, metadata=metadata, timeout=LIMIT_S)
        if not method.server_streaming:
            return await answering
        return await anext(answering.__aiter__())
    except grpc.aio.AioRpcError as error:
        return reason_of(error)


def test_each_method_of_clients_has_an_access_and_an_expectation() -> None:
    """A new method has to be put into both tables; methods of services are in neither."""
    found = {path_of(method): short(method) for method in METHODS if ROLES[path_of(method)] is not Role.SERVICE}
    assert set(ACCESSES) == set(found)
    assert set(EXPECTED) == set(found.values())


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "foreign"])
async def test_matrix(tmp_path: Path, is_own: bool) -> None:
    """Own names need the right; a foreign name in any field is refused, whatever the right."""
    wrong, count = [], 0
    async with serving(tmp_path) as (channel, servicers):
        for servicer in servicers:
            servicer.names = (OWN,)
        for method in METHODS:
            if ROLES[path_of(method)] is Role.SERVICE:
                continue
            own, foreign = requests_of(method)
            expected = EXPECTED[short(method)]
            has_names = short(method) not in ONLY_OF_STORE and any(True for _ in places(method.input_type))
            for subject in (*SUBJECTS, KEEPER, "", "operator", "service"):
                for request in own if is_own else foreign:
                    if not is_own and short(method) in ONLY_IN_GROUPS and FOREIGN not in _groups_of(request):
                        continue
                    answer = await outcome(channel, method, request, subject)
                    is_permitted = not isinstance(answer, ErrorInfo)
                    count += 1
                    may = expected in (ALL, LISTED) or subject in ("operator", "service")
                    may |= subject != "" and subject in expected and (is_own or not has_names)
                    if is_permitted != may:
                        wrong.append((short(method), subject or "anonymous", str(request)[:200], str(answer)[:200]))
                    elif isinstance(answer, ErrorInfo):
                        assert answer.reason == "NOT_PERMITTED"
                        assert answer.metadata["subject"] == (subject or "anonymous")
                        assert answer.metadata["action"]
                        assert answer.metadata["resource"]
    assert not wrong
    assert count > 150


def _groups_of(request: Message) -> set[str]:
    """The groups that a request names."""
    return {value for field, value in request.ListFields() if field.name in ("group", "producer_group")}


async def test_answers_have_own_elements_alone(tmp_path: Path) -> None:
    """A list lacks foreign elements; a single foreign message is refused."""
    async with serving(tmp_path) as (channel, servicers):
        for method in METHODS:
            access = ACCESSES.get(path_of(method))
            if access is None or access.shown is None:
                continue
            request = GetMessageClass(method.input_type)()
            for servicer in servicers:
                servicer.names = (FOREIGN, OWN)
            trusted = await outcome(channel, method, request, "operator")
            assert not isinstance(trusted, ErrorInfo)
            assert FOREIGN in names_in(trusted), short(method)
            for subject in (READER, ""):
                answer = await outcome(channel, method, request, subject)
                if access.shown.list:
                    assert not isinstance(answer, ErrorInfo)
                    assert names_in(answer) == ({OWN} if subject else set()), short(method)
                else:
                    assert isinstance(answer, ErrorInfo), short(method)
                    assert answer.metadata["resource"] == f"topic {FOREIGN}"


async def test_a_call_of_services_stays_theirs(tmp_path: Path) -> None:
    """No rule makes a subject a service."""
    async with serving(tmp_path) as (channel, _):
        for method in METHODS:
            if ROLES[path_of(method)] is not Role.SERVICE:
                continue
            request = GetMessageClass(method.input_type)()
            for subject, may in ((ADMIN, False), (KEEPER, False), ("operator", False), ("", False), ("service", True)):
                answer = await outcome(channel, method, request, subject)
                assert (not isinstance(answer, ErrorInfo)) is may, (short(method), subject)
