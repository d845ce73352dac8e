# SPDX-License-Identifier: Apache-2.0
"""Bad requests to every RPC of the CommitLog: each gets its code, reason and field, and none leaves a trace.

A single server takes the whole table. Afterwards every file of the store has the same bytes as before, and the server
still serves.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import segment_service_pb2 as segment_pb
from reput.commitlog.v1 import topic_service_pb2 as topic_pb
from reput.common.v1 import message_pb2

from libs.formats.protobuf_wire import FIXED64, int_field, length_delimited, tag
from libs.requests.page_token import encode_token
from tests.support.commitlog import SEGMENT_SIZE, message
from tests.support.served_commitlog import Client, served
from tests.support.service_process import Refusal, digest

INVALID, RANGE, MISSING, EXISTS, DENIED, ABORTED, FAILED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.FAILED_PRECONDITION,
)
BODY_MAX, REQUEST_MAX = 8_192, 1 << 20
FAR = 1 << 50
SYSTEM, LIGHT = "SCHEDULE_TOPIC_XXXX", "%LMQ%a"
PATHS = ("../x", "..", "/etc/passwd", "a/b", "a\\b", "a.b", "x\0", "a b")


@dataclass(frozen=True)
class Case:
    """A bad request. `request` is a message or raw bytes."""

    rpc: str
    name: str
    request: Message | bytes
    code: grpc.StatusCode
    reason: str
    field: str = ""


def append(name: str, reason: str, field: str, *messages: append_pb.AppendMessage, durability: int = 0) -> Case:
    """Return a case of a bad batch."""
    request = append_pb.AppendRequest(messages=messages, durability=durability)
    return Case("AppendService/Append", name, request, INVALID, reason, field)


def bad_messages() -> list[Case]:
    """Cases with a single bad field of a message each."""
    long_string = b"k\x01" + b"v" * 32_767 + b"\x02"
    host = message_pb2.Host
    return [
        append("no message", "BATCH_EMPTY", "messages"),
        append("empty topic", "BAD_TOPIC_NAME", "messages[0].topic", message(topic="")),
        append("long topic", "BAD_TOPIC_NAME", "messages[1].topic", message(), message(topic="t" * 128)),
        append("topic beyond ASCII", "BAD_TOPIC_NAME", "messages[0].topic", message(topic="数据")),
        *(append(f"topic {p!r}", "BAD_TOPIC_NAME", "messages[0].topic", message(topic=p)) for p in PATHS),
        append("queue -1", "QUEUE_OUT_OF_RANGE", "messages[0].queue_id", message(queue_id=-1)),
        append("queue 4", "QUEUE_OUT_OF_RANGE", "messages[0].queue_id", message(queue_id=4)),
        append(
            "queue of a new topic", "QUEUE_OUT_OF_RANGE", "messages[0].queue_id", message(topic="fresh", queue_id=4)
        ),
        append("large body", "MESSAGE_TOO_LARGE", "messages[0].body", message(bytes(BODY_MAX + 1))),
        append("too many bytes", "BATCH_TOO_LARGE", "messages", *[message(bytes(BODY_MAX))] * 9),
        append("too many messages", "BATCH_TOO_LARGE", "messages", *[message(b"")] * 32_769),
        append("oversize", "BATCH_TOO_LARGE", "messages", *[message(bytes(BODY_MAX))] * 130),
        append("empty name", "BAD_PROPERTIES", "messages[0].properties", message(properties={"": "v"})),
        append("empty value", "BAD_PROPERTIES", "messages[0].properties", message(properties={"k": ""})),
        append("separator in name", "BAD_PROPERTIES", "messages[0].properties", message(properties={"a\x02": "v"})),
        append("no pair", "BAD_PROPERTIES", "messages[0].property_string", message(property_string=b"abc")),
        append("no text", "BAD_PROPERTIES", "messages[0].property_string", message(property_string=b"k\x01\xff\x02")),
        append(
            "both forms",
            "BAD_PROPERTIES",
            "messages[0].property_string",
            message(properties={"a": "b"}, property_string=b"k\x01v\x02"),
        ),
        append(
            "long properties",
            "PROPERTIES_TOO_LARGE",
            "messages[0].property_string",
            message(property_string=long_string),
        ),
        append("delay", "BAD_PROPERTIES", "messages[0].properties", message(properties={"DELAY": "soon"})),
        append(
            "timer", "DELAY_NOT_SUPPORTED", "messages[0].properties", message(properties={"TIMER_DELAY_SEC": "soon"})
        ),
        append("sys flag", "BAD_ARGUMENT", "messages[0].sys_flag", message(sys_flag=0x40)),
        append("born time", "BAD_ARGUMENT", "messages[0].born_time_ms", message(born_time_ms=-1)),
        append("host size", "BAD_ARGUMENT", "messages[0].born_host", message(born_host=host(address=b"12345", port=1))),
        append("host port", "BAD_ARGUMENT", "messages[0].born_host", message(born_host=host(address=b"1234", port=-1))),
        append("reconsume", "BAD_ARGUMENT", "messages[0].reconsume_times", message(reconsume_times=-1)),
        append(
            "prepared",
            "BAD_ARGUMENT",
            "messages[0].prepared_transaction_offset",
            message(prepared_transaction_offset=-1),
        ),
        append("durability", "BAD_ARGUMENT", "durability", message(), durability=4),
        Case(
            "AppendService/Append",
            "system topic",
            append_pb.AppendRequest(messages=[message(topic=SYSTEM)]),
            DENIED,
            "TOPIC_FORBIDDEN",
            "messages[0].topic",
        ),
        *(
            Case(
                "AppendService/Append", what, append_pb.AppendRequest(messages=[one]), FAILED, "TOPIC_SET_APART", field
            )
            for what, one, field in (
                ("light queue", message(topic=LIGHT), "messages[0].topic"),
                ("for light queues", message(properties={"INNER_MULTI_DISPATCH": LIGHT}), "messages[0].properties"),
            )
        ),
    ]


def malformed() -> list[Case]:
    """Return cases of bytes that are not a request, for every RPC."""
    rpcs = (
        "AppendService/Append",
        "LogService/ReadRecords",
        "LogService/StreamRecords",
        "LogService/Dispatch",
        "LogService/ReportProgress",
        "SegmentService/ListSegments",
        "SegmentService/DeleteSegments",
        "SegmentService/ReportDisk",
        "TopicService/CreateTopic",
        "TopicService/UpdateTopic",
        "TopicService/GetTopic",
        "TopicService/ListTopics",
        "TopicService/DeleteTopic",
        "TopicService/PurgeTopic",
    )
    truncated = b"\x0a\x7fabc"
    unended = b"\x08\xff\xff"
    cases = [Case(rpc, "truncated", truncated, INVALID, "MALFORMED_REQUEST") for rpc in rpcs]
    cases += [Case(rpc, "endless varint", unended, INVALID, "MALFORMED_REQUEST") for rpc in rpcs]
    wrong_type = tag(1, FIXED64) + bytes(7) + b"\x01"
    wrong = {
        "LogService/ReadRecords": int_field(3, 1).replace(b"\x18", b"\x19") + bytes(7),
        "SegmentService/DeleteSegments": wrong_type,
        "TopicService/CreateTopic": wrong_type,
    }
    cases += [
        Case(rpc, "wrong wire type", wrong.get(rpc, wrong_type), INVALID, "MALFORMED_REQUEST")
        for rpc in rpcs
        if rpc != "LogService/ReadRecords"
    ]
    not_utf8 = length_delimited(1, b"\xff\xfe")
    cases += [
        Case(f"TopicService/{name}Topic", "name is no text", not_utf8, INVALID, "MALFORMED_REQUEST")
        for name in ("Create", "Get", "Delete")
    ]
    return cases


def bad_log_requests() -> list[Case]:
    """Requests to LogService."""

    def read(name: str, code: grpc.StatusCode, reason: str, field: str, **fields: Any) -> Case:
        return Case("LogService/ReadRecords", name, log_pb.ReadRecordsRequest(**fields), code, reason, field)

    def stream(name: str, code: grpc.StatusCode, reason: str, field: str, **fields: Any) -> Case:
        return Case("LogService/StreamRecords", name, log_pb.StreamRecordsRequest(**fields), code, reason, field)

    def dispatch(name: str, reason: str, field: str, **fields: Any) -> Case:
        return Case("LogService/Dispatch", name, log_pb.DispatchRequest(**fields), INVALID, reason, field)

    def epochs(*found: tuple[int, int]) -> list[log_pb.Epoch]:
        return [log_pb.Epoch(number=number, start_physical_offset=start) for number, start in found]

    def progress(name: str, code: grpc.StatusCode, reason: str, field: str, **fields: Any) -> Case:
        request = log_pb.ReportProgressRequest(**{"epoch": 1, **fields})
        return Case("LogService/ReportProgress", name, request, code, reason, field)

    first = "physical_offsets[0]"
    return [
        read("nothing", INVALID, "BAD_ARGUMENT", "physical_offsets"),
        read("too many", INVALID, "BAD_ARGUMENT", "physical_offsets", physical_offsets=[0] * 4_097),
        read("negative", INVALID, "BAD_ARGUMENT", first, physical_offsets=[-1]),
        read("beyond the end", RANGE, "OFFSET_BEYOND_END", first, physical_offsets=[FAR]),
        read("inside a record", INVALID, "NOT_A_RECORD", first, physical_offsets=[1]),
        read("other size", INVALID, "NOT_A_RECORD", first, physical_offsets=[0], record_sizes_bytes=[1]),
        read("size 0", INVALID, "BAD_ARGUMENT", "record_sizes_bytes[0]", physical_offsets=[0], record_sizes_bytes=[0]),
        read(
            "sizes missing",
            INVALID,
            "BAD_ARGUMENT",
            "record_sizes_bytes",
            physical_offsets=[0, 1],
            record_sizes_bytes=[1],
        ),
        read("view", INVALID, "BAD_ARGUMENT", "view", physical_offsets=[0], view=7),
        stream("negative start", INVALID, "BAD_ARGUMENT", "start_physical_offset", start_physical_offset=-1),
        stream("negative end", INVALID, "BAD_ARGUMENT", "end_physical_offset", end_physical_offset=-1),
        stream("start beyond", RANGE, "OFFSET_BEYOND_END", "start_physical_offset", start_physical_offset=FAR),
        stream("end beyond", RANGE, "OFFSET_BEYOND_END", "end_physical_offset", end_physical_offset=FAR),
        stream("inside a record", INVALID, "NOT_A_RECORD", "start_physical_offset", start_physical_offset=1),
        stream(
            "end before start",
            INVALID,
            "BAD_ARGUMENT",
            "end_physical_offset",
            start_physical_offset=100,
            end_physical_offset=1,
        ),
        stream("view", INVALID, "BAD_ARGUMENT", "view", view=3),
        stream("negative size", INVALID, "BAD_ARGUMENT", "response_size_bytes_max", response_size_bytes_max=-1),
        dispatch("negative start", "BAD_ARGUMENT", "start_physical_offset", start_physical_offset=-1),
        dispatch("inside a record", "NOT_A_RECORD", "start_physical_offset", start_physical_offset=1, epoch=1),
        dispatch("negative epoch", "BAD_ARGUMENT", "epoch", epoch=-1),
        dispatch("negative count", "BAD_ARGUMENT", "record_count_max", record_count_max=-1),
        dispatch("too many epochs", "BAD_ARGUMENT", "epochs", epochs=epochs(*((1 + at, 0) for at in range(4_097)))),
        dispatch("epoch below 0", "BAD_ARGUMENT", "epochs[0].number", epochs=epochs((-1, 0))),
        dispatch("epochs descend", "BAD_ARGUMENT", "epochs[1].number", epochs=epochs((2, 0), (1, 5))),
        dispatch("epochs overlap", "BAD_ARGUMENT", "epochs[1].start_physical_offset", epochs=epochs((1, 7), (2, 5))),
        progress("negative", INVALID, "BAD_ARGUMENT", "indexed_physical_offset", indexed_physical_offset=-1),
        progress("beyond", RANGE, "OFFSET_BEYOND_END", "indexed_physical_offset", indexed_physical_offset=FAR),
        progress(
            "flushed above indexed", INVALID, "BAD_ARGUMENT", "flushed_physical_offset", flushed_physical_offset=1
        ),
        progress("negative time", INVALID, "BAD_ARGUMENT", "queue_flushed_time_ms", queue_flushed_time_ms=-1),
        progress("no epoch", INVALID, "BAD_ARGUMENT", "epoch", epoch=0),
        progress("future epoch", INVALID, "BAD_ARGUMENT", "epoch", epoch=9),
    ]


def bad_segment_requests() -> list[Case]:
    """Requests to SegmentService."""

    def delete(name: str, field: str, bases: list[int]) -> Case:
        request = segment_pb.DeleteSegmentsRequest(base_physical_offsets=bases)
        return Case("SegmentService/DeleteSegments", name, request, INVALID, "BAD_ARGUMENT", field)

    def listing(name: str, reason: str, field: str, **fields: Any) -> Case:
        request = segment_pb.ListSegmentsRequest(**fields)
        return Case("SegmentService/ListSegments", name, request, INVALID, reason, field)

    ratios = {"negative": -0.1, "above one": 1.5, "not a number": float("nan")}
    return [
        listing("negative page", "BAD_ARGUMENT", "page_size", page_size=-1),
        listing("plain token", "BAD_PAGE_TOKEN", "page_token", page_token="0"),
        listing("foreign token", "BAD_PAGE_TOKEN", "page_token", page_token=encode_token("topics", (), 0)),
        listing("made-up token", "BAD_PAGE_TOKEN", "page_token", page_token=encode_token("segments", (), "x")),
        delete("negative", "base_physical_offsets[0]", [-SEGMENT_SIZE]),
        delete("descending", "base_physical_offsets[1]", [SEGMENT_SIZE, 0]),
        delete("twice", "base_physical_offsets[1]", [0, 0]),
        delete("too many", "base_physical_offsets", [index * SEGMENT_SIZE for index in range(1_001)]),
        *(
            Case(
                "SegmentService/ReportDisk",
                f"ratio {name}",
                segment_pb.ReportDiskRequest(used_ratio=ratio, is_full=True),
                INVALID,
                "BAD_ARGUMENT",
                "used_ratio",
            )
            for name, ratio in ratios.items()
        ),
    ]


def bad_topic_requests() -> list[Case]:
    """Requests to TopicService."""

    def create(what: str, code: grpc.StatusCode, reason: str, field: str, **fields: Any) -> Case:
        request = topic_pb.CreateTopicRequest(**{"name": "fresh", **fields})
        return Case("TopicService/CreateTopic", what, request, code, reason, field)

    def update(what: str, code: grpc.StatusCode, reason: str, field: str, **fields: Any) -> Case:
        request = topic_pb.UpdateTopicRequest(**{"name": "orders", **fields})
        return Case("TopicService/UpdateTopic", what, request, code, reason, field)

    cases = [
        create("queues -1", INVALID, "BAD_ARGUMENT", "read_queue_count", read_queue_count=-1),
        create("queues 65536", INVALID, "BAD_ARGUMENT", "write_queue_count", write_queue_count=65_536),
        create("exists", EXISTS, "TOPIC_EXISTS", "name", name="orders"),
        create("system", EXISTS, "TOPIC_EXISTS", "name", name=SYSTEM),
        create("light queue", FAILED, "TOPIC_SET_APART", "name", name=LIGHT),
        create("long name", INVALID, "BAD_TOPIC_NAME", "name", name="t" * 128),
        create("empty name", INVALID, "BAD_TOPIC_NAME", "name", name=""),
        update("queues 0", INVALID, "BAD_ARGUMENT", "read_queue_count", read_queue_count=0),
        update("queues -1", INVALID, "BAD_ARGUMENT", "write_queue_count", write_queue_count=-1),
        update("unknown", MISSING, "TOPIC_NOT_FOUND", "name", name="unknown"),
        update("system", DENIED, "TOPIC_FORBIDDEN", "name", name=SYSTEM, is_readable=False),
    ]
    requests = {
        "CreateTopic": topic_pb.CreateTopicRequest,
        "UpdateTopic": topic_pb.UpdateTopicRequest,
        "GetTopic": topic_pb.GetTopicRequest,
        "DeleteTopic": topic_pb.DeleteTopicRequest,
        "PurgeTopic": topic_pb.PurgeTopicRequest,
    }
    for rpc, kind in requests.items():
        cases += [
            Case(f"TopicService/{rpc}", f"name {path!r}", kind(name=path), INVALID, "BAD_TOPIC_NAME", "name")
            for path in PATHS
        ]
    token = encode_token("topics", (True,), "a")
    return [
        *cases,
        Case("TopicService/GetTopic", "unknown", topic_pb.GetTopicRequest(name="u"), MISSING, "TOPIC_NOT_FOUND"),
        Case("TopicService/DeleteTopic", "unknown", topic_pb.DeleteTopicRequest(name="u"), MISSING, "TOPIC_NOT_FOUND"),
        Case("TopicService/PurgeTopic", "unknown", topic_pb.PurgeTopicRequest(name="u"), MISSING, "TOPIC_NOT_FOUND"),
        Case("TopicService/PurgeTopic", "system", topic_pb.PurgeTopicRequest(name=SYSTEM), DENIED, "TOPIC_FORBIDDEN"),
        Case("TopicService/DeleteTopic", "system", topic_pb.DeleteTopicRequest(name=SYSTEM), DENIED, "TOPIC_FORBIDDEN"),
        Case(
            "TopicService/ListTopics",
            "negative page",
            topic_pb.ListTopicsRequest(page_size=-5),
            INVALID,
            "BAD_ARGUMENT",
            "page_size",
        ),
        Case(
            "TopicService/ListTopics",
            "token of other arguments",
            topic_pb.ListTopicsRequest(page_token=token),
            INVALID,
            "BAD_PAGE_TOKEN",
            "page_token",
        ),
    ]


CASES = [*bad_messages(), *malformed(), *bad_log_requests(), *bad_segment_requests(), *bad_topic_requests()]


async def refusal(client: Client, case: Case) -> Refusal:
    """Send a bad request as raw bytes, to a unary or a streaming RPC, and take its refusal apart."""
    path = f"/reput.commitlog.v1.{case.rpc}"
    raw = case.request if isinstance(case.request, bytes) else case.request.SerializeToString()
    try:
        if case.rpc in ("LogService/StreamRecords", "LogService/Dispatch"):
            answer: Any = [step async for step in client.channel.unary_stream(path)(raw)]
        else:
            answer = await client.channel.unary_unary(path)(raw)
    except grpc.aio.AioRpcError as error:
        return Refusal(error)
    raise AssertionError(f"{case.rpc} took {case.name}: {answer!r}")


async def stream_refusals(client: Client, cases: list[Case]) -> list[Refusal]:
    """Send bad batches through the same AppendStream."""

    async def send() -> AsyncIterator[bytes]:
        for case in cases:
            yield case.request if isinstance(case.request, bytes) else case.request.SerializeToString()

    call = client.channel.stream_stream("/reput.commitlog.v1.AppendService/AppendStream")(send())
    outcomes = [outcome async for raw in call for outcome in append_pb.AppendStreamResponse.FromString(raw).outcomes]
    return [Refusal(outcome.error) for outcome in outcomes]


def check(found: Refusal, case: Case) -> str:
    """Return the difference between a refusal and its case, empty if there is none."""
    expected = (case.code, case.reason, case.field or found.field)
    actual = (found.code, found.reason, found.field)
    return "" if actual == expected else f"{case.rpc} {case.name}: {actual} instead of {expected}"


async def test_bad_requests_leave_no_trace(tmp_path: Path) -> None:
    """Every bad request gets its code, reason and field.

    The store's bytes stay the same, and the server still serves.
    """
    limits = {"message_size_bytes_max": BODY_MAX, "append_request_size_bytes_max": REQUEST_MAX}
    async with served(tmp_path, **limits) as (service, client):
        good = append_pb.AppendRequest(messages=[message(), message()], durability=2)
        await client.append.Append(good)
        await service.commit_log.log.checkpoint.save()
        before = digest(tmp_path)
        wrong = [check(await refusal(client, case), case) for case in CASES]
        batches = [case for case in CASES if case.rpc == "AppendService/Append"]
        found = await stream_refusals(client, batches)
        wrong += [check(one, case) for one, case in zip(found, batches, strict=True)]
        assert [line for line in wrong if line] == []
        assert digest(tmp_path) == before
        health = await health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        result = (await client.append.Append(good)).result
        assert list(result.queue_offsets) == [2, 3]
        assert (await client.log.GetStatus(log_pb.GetStatusRequest())).topic_count == 1


async def test_unknown_topic_where_none_may_be_made(tmp_path: Path) -> None:
    """With auto_create_topics off a batch for an unknown topic is refused with TOPIC_NOT_FOUND."""
    async with served(tmp_path, auto_create_topics=False) as (_, client):
        request = append_pb.AppendRequest(messages=[message(topic="unknown")])
        case = Case("AppendService/Append", "unknown", request, MISSING, "TOPIC_NOT_FOUND", "messages[0].topic")
        assert check(await refusal(client, case), case) == ""


async def test_late_report_of_an_old_epoch(tmp_path: Path) -> None:
    """A report from before an unclean stop is refused with the epoch to follow."""
    async with served(tmp_path) as (_, client):
        await client.append.Append(append_pb.AppendRequest(messages=[message()]))
    (tmp_path / "abort").write_bytes(b"1")
    async with served(tmp_path) as (_, client):
        request = log_pb.ReportProgressRequest(epoch=1)
        case = Case("LogService/ReportProgress", "old epoch", request, ABORTED, "STALE_EPOCH", "epoch")
        found = await refusal(client, case)
        assert check(found, case) == ""
        assert found.metadata["epoch"] == "2"


def test_the_table_is_large_enough() -> None:
    """Every RPC with a request has bad requests in the table."""
    assert len(CASES) >= 40
    assert {case.rpc for case in CASES} >= {
        *(f"LogService/{name}" for name in ("ReadRecords", "StreamRecords", "Dispatch", "ReportProgress")),
        *(f"SegmentService/{name}" for name in ("ListSegments", "DeleteSegments", "ReportDisk")),
        *(f"TopicService/{name}Topic" for name in ("Create", "Update", "Get", "Delete")),
        "TopicService/ListTopics",
        "AppendService/Append",
    }
