# SPDX-License-Identifier: Apache-2.0
"""Requests are refused by size and by count before they are parsed; all other requests are parsed."""

import random
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from reput.commitlog.v1 import (
    append_service_pb2,
    log_service_pb2,
    replication_service_pb2,
    segment_service_pb2,
    topic_service_pb2,
)
from reput.indexer.v1 import (
    consumer_offset_service_pb2,
    index_service_pb2,
    query_service_pb2,
    queue_service_pb2,
    rebuild_service_pb2,
    scan_service_pb2,
)
from reput.janitor.v1 import retention_service_pb2

from libs.formats.protobuf_wire import int_field, length_delimited
from libs.requests.errors import MalformedRequest
from libs.runtime.rpc.errors import RequestTooLarge
from libs.runtime.rpc.request_check import DEFAULT_LIMITS, RequestLimits, RequestParser
from services.commitlog.rpc.limits import LIMITS as COMMITLOG_LIMITS
from services.indexer.rpc.limits import LIMITS as INDEXER_LIMITS

COMMITLOG = (
    append_service_pb2,
    log_service_pb2,
    replication_service_pb2,
    segment_service_pb2,
    topic_service_pb2,
)
INDEXER = (
    consumer_offset_service_pb2,
    index_service_pb2,
    query_service_pb2,
    queue_service_pb2,
    rebuild_service_pb2,
    scan_service_pb2,
)
JANITOR = (retention_service_pb2,)
LIMITS = {**COMMITLOG_LIMITS, **INDEXER_LIMITS}
WIDE = RequestLimits(size_bytes_max=1 << 20, value_count_max=10_000)


def methods(modules: tuple[object, ...]) -> Iterator[MethodDescriptor]:
    for module in modules:
        services: dict[str, ServiceDescriptor] = module.DESCRIPTOR.services_by_name  # type: ignore[attr-defined]
        for service in services.values():
            yield from service.methods


ALL_METHODS = list(methods((*COMMITLOG, *INDEXER, *JANITOR)))


def parser_of(name: str) -> RequestParser:
    """The parser of a method as the service has it."""
    (method,) = (method for method in ALL_METHODS if method.name == name)
    return RequestParser(method.input_type, LIMITS.get(name, DEFAULT_LIMITS))


def filled(message_class: type[Message], chance: random.Random) -> Message:
    """A message with something in every field."""
    message = message_class()
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        values = [some_value(field, chance) for _ in range(chance.randrange(3) if field.is_repeated else 1)]
        if field.message_type is not None:
            for value in values:
                assert isinstance(value, Message)
                target = getattr(message, field.name)
                (target.add() if field.is_repeated else target).CopyFrom(value)
        elif field.is_repeated:
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, values[0])
    return message


def some_value(field: FieldDescriptor, chance: random.Random) -> object:
    if field.message_type is not None:
        return filled(GetMessageClass(field.message_type), chance)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = "wörter"[: chance.randrange(7)]
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return 0.5
    return 1


@pytest.mark.parametrize("method", ALL_METHODS, ids=lambda method: method.full_name)
def test_every_request_that_a_stub_makes_is_parsed(method: MethodDescriptor) -> None:
    """A request with all fields, with fields of a newer client, in any order, is parsed; a wrong type is refused."""
    chance = random.Random(method.full_name)
    message_class = GetMessageClass(method.input_type)
    parser = RequestParser(method.input_type, WIDE)
    for _ in range(20):
        message = filled(message_class, chance)
        assert parser.parse(message.SerializeToString()) == message
        newer = int_field(500, 5) + message.SerializeToString() + length_delimited(501, b"text")
        assert parser.parse(newer) == message_class.FromString(newer)
    for field in message_class.DESCRIPTOR.fields:
        with pytest.raises(MalformedRequest):
            parser.parse(int_field(field.number, 1)[:-1] + b"\x80")
        is_number = field.message_type is None and field.cpp_type != FieldDescriptor.CPPTYPE_STRING
        if not field.is_repeated:
            misfit = length_delimited(field.number, b"") if is_number else int_field(field.number, 1)
            with pytest.raises(MalformedRequest):
                parser.parse(misfit)


def test_limits_are_of_methods_that_exist() -> None:
    """Each name in the limits is a method; with a wrong name the method would have the default limit."""
    assert set(COMMITLOG_LIMITS) <= {method.name for method in methods(COMMITLOG)}
    assert set(INDEXER_LIMITS) <= {method.name for method in methods(INDEXER)}


LONG_TOPIC = "t" * 127
LARGEST: dict[str, Message] = {
    "ReadRecords": log_service_pb2.ReadRecordsRequest(
        physical_offsets=[2**62] * 4_096, record_sizes_bytes=[2**31 - 1] * 4_096
    ),
    "CheckQueueOffsets": log_service_pb2.CheckQueueOffsetsRequest(
        queues=[
            log_service_pb2.QueueEnd(
                topic="t" * 255, queue_id=2**31 - 1, end_queue_offset=2**62, last_physical_offset=2**62
            )
        ]
        * 4_096,
        epoch=2**31 - 1,
        history_id="h" * 100,
        is_complete=True,
    ),
    "Replicate": replication_service_pb2.ReplicateRequest(
        hello=replication_service_pb2.ReplicaHello(
            replica_id="r" * 255,
            epochs=[log_service_pb2.Epoch(number=2**31 - 1, start_physical_offset=2**62)] * 4_096,
            max_physical_offset=2**62,
            history_id="h" * 100,
            flushed_physical_offset=2**62,
            segment_size_bytes=2**31,
            needs_queue_offsets=True,
            window_bytes=2**28,
            protocol_version=1,
        )
    ),
    "DeleteSegments": segment_service_pb2.DeleteSegmentsRequest(base_physical_offsets=[2**62] * 1_000),
    "CommitConsumerOffset": consumer_offset_service_pb2.CommitConsumerOffsetRequest(
        group="g" * 255,
        offsets=[
            consumer_offset_service_pb2.ConsumerOffset(topic="t" * 255, queue_id=2**31 - 1, queue_offset=2**62, lag=9)
        ]
        * 1_000,
    ),
    "PlanScan": scan_service_pb2.PlanScanRequest(
        topics=[LONG_TOPIC] * 1_000,
        queue_ids=range(65_535),
        ranges=[
            scan_service_pb2.ScanRange(topic="t" * 63, queue_id=9, start_queue_offset=2**40, end_queue_offset=2**62)
        ]
        * 65_536,
        filter=scan_service_pb2.ScanFilter(keys=["k" * 32] * 10_000),
    ),
    "Pull": queue_service_pb2.PullRequest(topic=LONG_TOPIC, tag_expression="||".join(["t" * 30] * 1_000)),
    "QueryByKey": query_service_pb2.QueryByKeyRequest(topic=LONG_TOPIC, key="k" * 32_767, page_token="p" * 1_024),
}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_request_of_a_method_is_parsed(name: str) -> None:
    """A request whose lists are as long as the comments in the proto allow is parsed."""
    assert parser_of(name).parse(LARGEST[name].SerializeToString()) == LARGEST[name]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("CommitConsumerOffset", length_delimited(2, b"")),
        ("PlanScan", length_delimited(2, b"\x01" * 1_000)),
        ("ReadRecords", length_delimited(1, b"\x01" * 1_000)),
        ("CheckQueueOffsets", length_delimited(2, b"")),
        ("ListTopics", int_field(15, 1)),
        ("ListTopics", int_field(1, 1)),
    ],
)
def test_too_many_values_are_refused_before_anything_is_made_of_them(name: str, part: bytes) -> None:
    """The bytes behind the excess value are no message at all, and the error is the same."""
    parser = parser_of(name)
    limit = LIMITS.get(name, DEFAULT_LIMITS).value_count_max
    room_bytes = LIMITS.get(name, DEFAULT_LIMITS).size_bytes_max
    request = part * min(limit + 1, room_bytes // len(part) - 1) + b"\xff"
    with pytest.raises(RequestTooLarge, match="values") as caught:
        parser.parse(request)
    assert (caught.value.value, caught.value.limit) == (limit + 1, limit)


def test_too_many_bytes_are_refused_before_they_are_looked_at() -> None:
    """A request above the size limit is refused before its bytes are read."""
    with pytest.raises(RequestTooLarge, match="bytes"):
        parser_of("ListTopics").parse(b"\xff" * (DEFAULT_LIMITS.size_bytes_max + 1))
