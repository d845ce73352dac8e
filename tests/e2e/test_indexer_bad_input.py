# SPDX-License-Identifier: Apache-2.0
"""Bad requests to every RPC of the Indexer: each gets its code, reason and field, and none leaves a trace.

A single server takes the whole table. Afterwards every file of the indexes has the same bytes as before, and the
server still serves.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.indexer.v1 import query_service_pb2 as query_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb
from reput.indexer.v1 import scan_service_pb2 as scan_pb

from libs.formats.protobuf_wire import FIXED64, int_field, length_delimited, tag
from tests.support.commitlog import message
from tests.support.patience import LIMIT_S
from tests.support.served_commitlog import served as served_log
from tests.support.served_indexer import Client, served
from tests.support.service_process import Refusal, digest

INVALID, RANGE, MISSING = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.NOT_FOUND,
)
TOPICS = ("", "../x", "..", ".", "/etc/passwd", "a/b", "a\\b", "a b", "x\0", "数据", "t@g", "t" * 256)
STREAMS = ("QueueService/Subscribe", "ScanService/Scan")
NANOS = Timestamp(seconds=1, nanos=10**9)
FAR = Timestamp(seconds=2**40)
TOPIC = "TopicTest"
RANGE_OK = scan_pb.ScanRange(topic=TOPIC, start_queue_offset=0, end_queue_offset=1)


@dataclass(frozen=True)
class Case:
    """A bad request. `request` is a message or raw bytes."""

    rpc: str
    name: str
    request: Message | bytes
    code: grpc.StatusCode
    reason: str
    field: str = ""


def bad(rpc: str, request: Message, field: str, reason: str = "BAD_ARGUMENT") -> Case:
    """A request with a bad field."""
    return Case(rpc, str(request)[:60].replace("\n", " "), request, INVALID, reason, field)


def topic_requests() -> dict[str, Any]:
    """Return, for every RPC that takes a topic, a request with the topic and the field that has it."""
    offset, ids = offset_pb.ConsumerOffset, {"group": "g"}
    return {
        "QueueService/Pull": lambda t: (queue_pb.PullRequest(topic=t), "topic"),
        "QueueService/Subscribe": lambda t: (queue_pb.SubscribeRequest(topic=t), "topic"),
        "QueueService/GetOffsetByTime": lambda t: (queue_pb.GetOffsetByTimeRequest(topic=t, time=Timestamp()), "topic"),
        "QueueService/GetQueueRange": lambda t: (queue_pb.GetQueueRangeRequest(topic=t), "topic"),
        "QueueService/ListQueues": lambda t: (queue_pb.ListQueuesRequest(topic=t), "topic"),
        "QueueService/MeasureQueues": lambda t: (
            queue_pb.MeasureQueuesRequest(parts=[queue_pb.QueuePart(topic="ok"), queue_pb.QueuePart(topic=t)]),
            "parts[1].topic",
        ),
        "QueryService/QueryByKey": lambda t: (query_pb.QueryByKeyRequest(topic=t, key="k"), "topic"),
        "QueryService/QueryByTime": lambda t: (query_pb.QueryByTimeRequest(topic=t), "topic"),
        "QueryService/QueryById": lambda t: (query_pb.QueryByIdRequest(topic=t, message_id="U"), "topic"),
        "ScanService/PlanScan": lambda t: (scan_pb.PlanScanRequest(topics=["ok", t]), "topics[1]"),
        "ScanService/Scan": lambda t: (
            scan_pb.ScanRequest(partition=scan_pb.ScanPartition(key_topic=t, keys=["k"])), "partition.key_topic"
        ),
        "ConsumerOffsetService/CommitConsumerOffset": lambda t: (
            offset_pb.CommitConsumerOffsetRequest(offsets=[offset(topic="ok"), offset(topic=t)], **ids),
            "offsets[1].topic",
        ),
        "ConsumerOffsetService/GetConsumerOffset": lambda t: (
            offset_pb.GetConsumerOffsetRequest(topic=t, **ids), "topic"
        ),
        "ConsumerOffsetService/ResetConsumerOffset": lambda t: (
            offset_pb.ResetConsumerOffsetRequest(topic=t, latest=True, **ids), "topic"
        ),
        "ConsumerOffsetService/DeleteConsumerGroup": lambda t: (
            offset_pb.DeleteConsumerGroupRequest(topic=t, **ids), "topic"
        ),
    }  # fmt: skip


def bad_topics() -> list[Case]:
    """Return cases of every RPC that takes a topic, with every invalid name."""
    optional = {"QueueService/ListQueues", "QueryService/QueryById", "ConsumerOffsetService/DeleteConsumerGroup"}
    return [
        Case(rpc, f"topic {name[:20]!r}", *_split(make(name)))
        for rpc, make in topic_requests().items()
        for name in TOPICS
        if name or rpc not in optional
    ]


def topics_set_apart() -> list[Case]:
    """Every RPC that reads a topic, or commits offsets of it, with a topic that only RocketMQ uses."""
    refused = (grpc.StatusCode.FAILED_PRECONDITION, "TOPIC_SET_APART")
    offset_only = {"ConsumerOffsetService/GetConsumerOffset", "ConsumerOffsetService/DeleteConsumerGroup"}
    cases = [
        Case(rpc, "set apart", request, *refused, field)
        for rpc, make in topic_requests().items()
        for request, field in (make("%LMQ%a"),)
        if rpc not in offset_only
    ]
    ranges = scan_pb.ScanPartition(ranges=[RANGE_OK, scan_pb.ScanRange(topic="%LMQ%a", end_queue_offset=1)])
    scan = scan_pb.ScanRequest(partition=ranges)
    return [*cases, Case("ScanService/Scan", "range set apart", scan, *refused, "partition.ranges[1].topic")]


def _split(made: tuple[Message, str]) -> tuple[Message, grpc.StatusCode, str, str]:
    return made[0], INVALID, "BAD_TOPIC_NAME", made[1]


def bad_queue_requests() -> list[Case]:
    """Return bad requests to QueueService."""
    pull, subscribe, by_time = "QueueService/Pull", "QueueService/Subscribe", "QueueService/GetOffsetByTime"
    make, sub, at = queue_pb.PullRequest, queue_pb.SubscribeRequest, queue_pb.GetOffsetByTimeRequest
    measure, some, part = "QueueService/MeasureQueues", queue_pb.MeasureQueuesRequest, queue_pb.QueuePart
    return [
        bad(pull, make(topic=TOPIC, queue_id=-1), "queue_id"),
        bad(pull, make(topic=TOPIC, queue_offset=-1), "queue_offset"),
        bad(pull, make(topic=TOPIC, message_count_max=-1), "message_count_max"),
        bad(pull, make(topic=TOPIC, size_bytes_max=-5), "size_bytes_max"),
        bad(pull, make(topic=TOPIC, tag_expression="||"), "tag_expression"),
        bad(pull, make(topic=TOPIC, tag_expression="a||" * 1001), "tag_expression"),
        bad(pull, make(topic=TOPIC, tag_expression="t" * 32_768), "tag_expression"),
        bad(subscribe, sub(topic=TOPIC, tag_expression="t" * 32_768), "tag_expression"),
        Case(pull, "a megabyte", make(topic=TOPIC, tag_expression="t" * (1 << 20)), INVALID, "REQUEST_TOO_LARGE"),
        Case(pull, "unknown fields", int_field(99, 1) * 100_000, INVALID, "REQUEST_TOO_LARGE"),
        bad(pull, make(topic=TOPIC, where="price >"), "where"),
        bad(pull, make(topic=TOPIC, where="a = " + "'" * 32_767), "where"),
        bad(subscribe, sub(topic=TOPIC, where="(" * 32_767), "where"),
        bad(pull, make(topic=TOPIC, wait=Duration(seconds=-1)), "wait"),
        bad(pull, make(topic=TOPIC, wait=Duration(nanos=10**9)), "wait"),
        bad(subscribe, sub(topic=TOPIC, queue_id=-1), "queue_id"),
        bad(subscribe, sub(topic=TOPIC, queue_offset=-(2**63)), "queue_offset"),
        bad(subscribe, sub(topic=TOPIC, message_count_max=-1), "message_count_max"),
        bad(subscribe, sub(topic=TOPIC, size_bytes_max=-1), "size_bytes_max"),
        bad(subscribe, sub(topic=TOPIC, tag_expression=" || "), "tag_expression"),
        bad(by_time, at(topic=TOPIC), "time"),
        bad(by_time, at(topic=TOPIC, queue_id=-1, time=Timestamp()), "queue_id"),
        bad(by_time, at(topic=TOPIC, time=NANOS), "time"),
        bad(by_time, at(topic=TOPIC, time=FAR), "time"),
        bad(by_time, at(topic=TOPIC, time=Timestamp(), boundary=77), "boundary"),
        Case(by_time, "unknown topic", at(topic="u", time=Timestamp()), MISSING, "QUEUE_NOT_FOUND"),
        Case(by_time, "unknown queue", at(topic=TOPIC, queue_id=9, time=Timestamp()), MISSING, "QUEUE_NOT_FOUND"),
        bad("QueueService/GetQueueRange", queue_pb.GetQueueRangeRequest(topic=TOPIC, queue_id=-1), "queue_id"),
        bad(
            "QueueService/GetQueueRange",
            queue_pb.GetQueueRangeRequest(topic=TOPIC, size_start_queue_offset=-1),
            "size_start_queue_offset",
        ),
        bad(
            "QueueService/GetQueueRange",
            queue_pb.GetQueueRangeRequest(topic=TOPIC, size_start_queue_offset=0, size_queue_offsets=[1] * 10_001),
            "size_queue_offsets",
        ),
        Case(
            "QueueService/GetQueueRange",
            "unknown",
            queue_pb.GetQueueRangeRequest(topic="u"),
            MISSING,
            "QUEUE_NOT_FOUND",
        ),
        bad(measure, some(parts=[part(topic=TOPIC, queue_id=-1)]), "parts[0].queue_id"),
        bad(measure, some(parts=[part(topic=TOPIC, start_queue_offset=-1)]), "parts[0].start_queue_offset"),
        bad(measure, some(parts=[part(topic=TOPIC)] * 1_001), "parts"),
        bad(measure, some(parts=[part(topic=TOPIC, queue_offsets=[1] * 5_001)] * 2), "parts.queue_offsets"),
        bad("QueueService/ListQueues", queue_pb.ListQueuesRequest(page_size=-1), "page_size"),
        bad("QueueService/ListQueues", queue_pb.ListQueuesRequest(page_token="AAAA"), "page_token", "BAD_PAGE_TOKEN"),
    ]


def bad_query_requests() -> list[Case]:
    """Return bad requests to QueryService."""
    by_key, by_time, by_id = "QueryService/QueryByKey", "QueryService/QueryByTime", "QueryService/QueryById"
    make, at, one = query_pb.QueryByKeyRequest, query_pb.QueryByTimeRequest, query_pb.QueryByIdRequest
    late, early = Timestamp(seconds=9), Timestamp(seconds=8)
    return [
        bad(by_key, make(topic=TOPIC), "key"),
        bad(by_key, make(topic=TOPIC, key="a b"), "key"),
        bad(by_key, make(topic=TOPIC, key="k" * 32_768), "key"),
        bad(by_id, one(topic=TOPIC, message_id="k" * 32_768), "message_id"),
        bad(by_key, make(topic=TOPIC, key="k", page_size=-1), "page_size"),
        bad(by_key, make(topic=TOPIC, key="k", start_time=NANOS), "start_time"),
        bad(by_key, make(topic=TOPIC, key="k", end_time=FAR), "end_time"),
        bad(by_key, make(topic=TOPIC, key="k", start_time=late, end_time=early), "end_time"),
        bad(by_key, make(topic=TOPIC, key="k", where="NULL = NULL"), "where"),
        bad(by_time, at(topic=TOPIC, where="a IN (1)"), "where"),
        bad(by_key, make(topic=TOPIC, key="k", page_token="x" * 5000), "page_token", "BAD_PAGE_TOKEN"),
        bad(by_key, make(topic=TOPIC, key="k", page_token="nonsense"), "page_token", "BAD_PAGE_TOKEN"),
        bad(by_time, at(topic=TOPIC, queue_id=-1), "queue_id"),
        bad(by_time, at(topic=TOPIC, page_size=-9), "page_size"),
        bad(by_time, at(topic=TOPIC, start_time=late, end_time=early), "end_time"),
        bad(by_time, at(topic=TOPIC, start_time=Timestamp(nanos=-1)), "start_time"),
        bad(by_time, at(topic=TOPIC, page_token="%%"), "page_token", "BAD_PAGE_TOKEN"),
        bad(by_id, one(), "message_id"),
        bad(by_id, one(message_id="0A00000500002A9F"), "message_id"),
        bad(by_id, one(message_id="Z" * 32), "message_id"),
        bad(by_id, one(message_id="F" * 56), "message_id"),
        bad(by_id, one(topic=TOPIC), "message_id"),
        bad(by_id, one(topic=TOPIC, message_id="a b"), "message_id"),
        Case(by_id, "unknown unique id", one(topic=TOPIC, message_id="u"), MISSING, "MESSAGE_NOT_FOUND"),
        Case(
            by_id,
            "beyond the end",
            one(message_id="7F000001" + "0" * 9 + "7FFFFFFFFFFFFFF"),
            MISSING,
            "MESSAGE_NOT_FOUND",
        ),
    ]


def bad_scan_requests() -> list[Case]:
    """Return bad requests to ScanService."""
    plan, scan = "ScanService/PlanScan", "ScanService/Scan"
    make, part, cut, sieve = scan_pb.PlanScanRequest, scan_pb.ScanPartition, scan_pb.ScanRange, scan_pb.ScanFilter

    def read(partition: scan_pb.ScanPartition | None = None, **fields: Any) -> scan_pb.ScanRequest:
        return scan_pb.ScanRequest(partition=partition or part(ranges=[RANGE_OK]), **fields)

    def wrong(**fields: Any) -> list[scan_pb.ScanRange]:
        return [RANGE_OK, cut(**{"topic": TOPIC, **fields})]

    return [
        bad(plan, make(), "topics"),
        bad(plan, make(topics=[f"t{index}" for index in range(1001)]), "topics"),
        bad(plan, make(topics=[TOPIC], queue_ids=[0, -1]), "queue_ids[1]"),
        bad(plan, make(topics=[TOPIC], queue_ids=[0] * 65_536), "queue_ids"),
        Case(plan, "too many", make(topics=[TOPIC], queue_ids=[0] * 2_000_000), INVALID, "REQUEST_TOO_LARGE"),
        Case(plan, "empty parts", length_delimited(4, b"") * 2_000_000, INVALID, "REQUEST_TOO_LARGE"),
        bad(plan, make(topics=[TOPIC], filter=sieve(keys=["k" * 32_768])), "filter.keys[0]"),
        bad(plan, make(topics=[TOPIC] * 1_000, filter=sieve(keys=["k" * 300] * 200)), "filter.keys"),
        bad(plan, make(topics=[TOPIC], ranges=[RANGE_OK] * 65_537), "ranges"),
        bad(plan, make(topics=[TOPIC], partition_count_min=-1), "partition_count_min"),
        bad(plan, make(topics=[TOPIC], partition_row_count_max=-1), "partition_row_count_max"),
        bad(plan, make(topics=[TOPIC], partition_size_bytes_max=-1), "partition_size_bytes_max"),
        bad(plan, make(topics=[TOPIC], filter=sieve(tag_expression="||")), "filter.tag_expression"),
        bad(plan, make(topics=[TOPIC], filter=sieve(where="a ==")), "filter.where"),
        bad(plan, make(topics=[TOPIC], filter=sieve(keys=["k", ""])), "filter.keys[1]"),
        bad(plan, make(topics=[TOPIC], filter=sieve(keys=["k"] * 10_001)), "filter.keys"),
        bad(plan, make(topics=[TOPIC], ranges=wrong(start_queue_offset=-1)), "ranges[1].start_queue_offset"),
        bad(plan, make(topics=[TOPIC], ranges=wrong(start_queue_offset=5)), "ranges[1].end_queue_offset"),
        bad(plan, make(topics=[TOPIC], ranges=wrong(queue_id=-1)), "ranges[1].queue_id"),
        bad(plan, make(topics=[TOPIC], ranges=wrong(topic="other")), "ranges[1].topic"),
        bad(plan, make(topics=[TOPIC], ranges=wrong(topic="../x")), "ranges[1].topic", "BAD_TOPIC_NAME"),
        bad(scan, scan_pb.ScanRequest(), "partition"),
        bad(scan, read(part(ranges=wrong(end_queue_offset=-1))), "partition.ranges[1].end_queue_offset"),
        bad(scan, read(part(ranges=[RANGE_OK], key_topic=TOPIC)), "partition.key_topic"),
        bad(scan, read(part(ranges=wrong(topic="o"), key_topic=TOPIC, keys=["k"])), "partition.ranges[1].topic"),
        bad(scan, read(filter=sieve(keys=["k"])), "filter.keys"),
        bad(scan, read(columns=["offset", "nothing"]), "columns[1]"),
        bad(scan, read(columns=["offset", "offset"]), "columns[1]"),
        bad(scan, read(compression="gzip"), "compression"),
        bad(scan, read(frame_size_bytes=-1), "frame_size_bytes"),
        bad(scan, read(filter=sieve(start_time=NANOS)), "filter.start_time"),
        Case(
            scan, "beyond the end", read(part(ranges=[cut(topic=TOPIC, end_queue_offset=99)])), RANGE,
            "OFFSET_BEYOND_END", "partition.ranges",
        ),
    ]  # fmt: skip


def bad_offset_requests() -> list[Case]:
    """Return bad requests to ConsumerOffsetService and IndexService."""
    name, row = "ConsumerOffsetService/", "offsets[1].queue_id"
    verbs = ("CommitConsumerOffset", "ResetConsumerOffset", "ListConsumerGroups", "DeleteConsumerGroup")
    commit_name, reset_name, list_name, delete_name = (f"{name}{verb}" for verb in verbs)
    commit, get, reset = (
        offset_pb.CommitConsumerOffsetRequest,
        offset_pb.GetConsumerOffsetRequest,
        offset_pb.ResetConsumerOffsetRequest,
    )
    one = offset_pb.ConsumerOffset
    groups = ("", "../g", "a@b", "g" * 256, "a b", "g\n")
    good = one(topic=TOPIC)
    return [
        *(bad(commit_name, commit(group=group, offsets=[good]), "group") for group in groups),
        *(bad(f"{name}GetConsumerOffset", get(group=group, topic=TOPIC), "group") for group in groups),
        *(bad(reset_name, reset(group=group, topic=TOPIC, latest=True), "group") for group in groups),
        *(bad(delete_name, offset_pb.DeleteConsumerGroupRequest(group=group), "group") for group in groups),
        bad(commit_name, commit(group="g"), "offsets"),
        bad(commit_name, commit(group="g", offsets=[good] * 1001), "offsets"),
        Case(commit_name, "empty parts", length_delimited(2, b"") * 200_000, INVALID, "REQUEST_TOO_LARGE"),
        bad(commit_name, commit(group="g", offsets=[good, one(topic=TOPIC, queue_id=-1)]), row),
        bad(commit_name, commit(group="g", offsets=[one(topic=TOPIC, queue_offset=-1)]), "offsets[0].queue_offset"),
        bad(f"{name}GetConsumerOffset", get(group="g", topic=TOPIC, queue_id=-1), "queue_id"),
        Case(f"{name}GetConsumerOffset", "none", get(group="g", topic=TOPIC), MISSING, "CONSUMER_OFFSET_NOT_FOUND"),
        bad(reset_name, reset(group="g", topic=TOPIC), "to"),
        bad(reset_name, reset(group="g", topic=TOPIC, earliest=False), "earliest"),
        bad(reset_name, reset(group="g", topic=TOPIC, time=NANOS), "time"),
        Case(reset_name, "unknown", reset(group="g", topic="u", latest=True), MISSING, "TOPIC_NOT_FOUND"),
        bad(list_name, offset_pb.ListConsumerGroupsRequest(page_size=-1), "page_size"),
        bad(list_name, offset_pb.ListConsumerGroupsRequest(page_token="x"), "page_token", "BAD_PAGE_TOKEN"),
        bad("IndexService/TrimTo", index_pb.TrimToRequest(min_physical_offset=-1), "min_physical_offset"),
        Case(
            "IndexService/TrimTo", "beyond the end", index_pb.TrimToRequest(min_physical_offset=2**60), RANGE,
            "OFFSET_BEYOND_END", "min_physical_offset",
        ),
        bad("IndexService/RemoveQueues", index_pb.RemoveQueuesRequest(), "selection"),
        bad("IndexService/RemoveQueues", index_pb.RemoveQueuesRequest(selection=9), "selection"),  # type: ignore[arg-type]
    ]  # fmt: skip


def malformed() -> list[Case]:
    """Return cases of bytes that are not a message of the RPC's type."""
    requests: dict[str, Message] = {
        "QueueService/Pull": queue_pb.PullRequest(topic=TOPIC, queue_id=3),
        "QueueService/Subscribe": queue_pb.SubscribeRequest(topic=TOPIC, queue_id=3),
        "QueueService/GetOffsetByTime": queue_pb.GetOffsetByTimeRequest(topic=TOPIC, time=Timestamp(seconds=1)),
        "QueueService/GetQueueRange": queue_pb.GetQueueRangeRequest(topic=TOPIC),
        "QueueService/ListQueues": queue_pb.ListQueuesRequest(topic=TOPIC),
        "QueueService/MeasureQueues": queue_pb.MeasureQueuesRequest(parts=[queue_pb.QueuePart(topic=TOPIC)]),
        "QueryService/QueryByKey": query_pb.QueryByKeyRequest(topic=TOPIC, key="k"),
        "QueryService/QueryByTime": query_pb.QueryByTimeRequest(topic=TOPIC),
        "QueryService/QueryById": query_pb.QueryByIdRequest(message_id="x"),
        "ScanService/PlanScan": scan_pb.PlanScanRequest(topics=[TOPIC]),
        "ScanService/Scan": scan_pb.ScanRequest(partition=scan_pb.ScanPartition(ranges=[RANGE_OK])),
        "ConsumerOffsetService/CommitConsumerOffset": offset_pb.CommitConsumerOffsetRequest(group="g"),
        "ConsumerOffsetService/GetConsumerOffset": offset_pb.GetConsumerOffsetRequest(group="g"),
        "ConsumerOffsetService/ResetConsumerOffset": offset_pb.ResetConsumerOffsetRequest(group="g"),
        "ConsumerOffsetService/DeleteConsumerGroup": offset_pb.DeleteConsumerGroupRequest(group="g"),
        "ConsumerOffsetService/ListConsumerGroups": offset_pb.ListConsumerGroupsRequest(page_size=300),
        "IndexService/TrimTo": index_pb.TrimToRequest(min_physical_offset=300),
        "IndexService/RemoveQueues": index_pb.RemoveQueuesRequest(
            selection=index_pb.QUEUE_SELECTION_EXPIRED, dry_run=True
        ),
    }
    cases = []
    for rpc, request in requests.items():
        raw = request.SerializeToString()
        cases += [
            Case(rpc, "truncated", raw[:-1], INVALID, "MALFORMED_REQUEST"),
            Case(rpc, "wrong wire type", raw + tag(1, FIXED64) + bytes(8), INVALID, "MALFORMED_REQUEST"),
            Case(rpc, "group", raw + b"\x0b", INVALID, "MALFORMED_REQUEST"),
            Case(rpc, "endless varint", raw + b"\xff" * 11, INVALID, "MALFORMED_REQUEST"),
        ]
    inner = length_delimited(1, length_delimited(1, int_field(1, 5)))
    return [
        *cases,
        Case("QueueService/Pull", "not UTF-8", length_delimited(1, b"\xff\xfe"), INVALID, "MALFORMED_REQUEST"),
        Case("IndexService/GetStatus", "truncated", b"\x0a", INVALID, "MALFORMED_REQUEST"),
        Case("ScanService/Scan", "wrong wire type within", inner, INVALID, "MALFORMED_REQUEST"),
    ]


CASES = [
    *bad_topics(), *topics_set_apart(), *bad_queue_requests(), *bad_query_requests(), *bad_scan_requests(),
    *bad_offset_requests(), *malformed(),
]  # fmt: skip


async def refusal(client: Client, case: Case) -> Refusal:
    """Send a bad request as raw bytes, to a unary or a streaming RPC, and take its refusal apart."""
    path = f"/reput.indexer.v1.{case.rpc}"
    raw = case.request if isinstance(case.request, bytes) else case.request.SerializeToString()
    try:
        if case.rpc in STREAMS:
            answer: Any = [step async for step in client.channel.unary_stream(path)(raw, timeout=LIMIT_S)]
        else:
            answer = await client.channel.unary_unary(path)(raw, timeout=LIMIT_S)
    except grpc.aio.AioRpcError as error:
        return Refusal(error)
    raise AssertionError(f"{case.rpc} took {case.name}: {answer!r}")


def check(found: Refusal, case: Case) -> str:
    """Return the difference between a refusal and its case, empty if there is none."""
    expected = (case.code, case.reason, case.field or found.field)
    actual = (found.code, found.reason, found.field)
    return "" if actual == expected else f"{case.rpc} {case.name}: {actual} instead of {expected}"


async def test_bad_requests_leave_no_trace(tmp_path: Path) -> None:
    """Every bad request gets its code, reason and field.

    The indexes' bytes stay the same, and the server still serves.
    """
    async with served_log(tmp_path / "log") as (log_service, log):
        target = f"127.0.0.1:{log_service.server.port}"
        hour_ms = 3_600_000  # entries are written by themselves, whenever that is due
        intervals = {"flush_interval_ms": hour_ms, "flush_thorough_interval_ms": hour_ms}
        async with served(tmp_path / "index", target, **intervals) as (_, client):
            good = append_pb.AppendRequest(messages=[message(topic=TOPIC, queue_id=0, properties={"KEYS": "k"})] * 3)
            result = (await log.append.Append(good)).result
            await client.wait_indexed(result.physical_offsets[-1] + 1)
            before = digest(tmp_path / "index")
            wrong = [check(await refusal(client, case), case) for case in CASES]
            assert [line for line in wrong if line] == []
            assert digest(tmp_path / "index") == before
            health = await health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            found = await client.queries.QueryByKey(query_pb.QueryByKeyRequest(topic=TOPIC, key="k"))
            assert len(found.messages) == 3
    assert {Path(path).parts[0] for path in digest(tmp_path)} == {"log", "index"}


async def test_tokens_of_other_queries(tmp_path: Path) -> None:
    """A page token is valid only for the query that returned it."""
    async with served_log(tmp_path / "log") as (log_service, log):
        target = f"127.0.0.1:{log_service.server.port}"
        async with served(tmp_path / "index", target) as (_, client):
            batch = [message(topic=TOPIC, queue_id=0, properties={"KEYS": "k l"})] * 5
            result = (await log.append.Append(append_pb.AppendRequest(messages=batch))).result
            await client.wait_indexed(result.physical_offsets[-1] + 1)
            by_key = query_pb.QueryByKeyRequest(topic=TOPIC, key="k", page_size=2)
            first = await client.queries.QueryByKey(by_key)
            by_key.page_token = first.next_page_token
            second = await client.queries.QueryByKey(by_key)
            assert [len(page.messages) for page in (first, second)] == [2, 2]
            by_key.key = "l"
            by_time = query_pb.QueryByTimeRequest(topic=TOPIC, page_token=first.next_page_token)
            for rpc, request in (("QueryByKey", by_key), ("QueryByTime", by_time)):
                case = bad(f"QueryService/{rpc}", request, "page_token", "BAD_PAGE_TOKEN")
                assert check(await refusal(client, case), case) == ""


@pytest.mark.parametrize("rpc", sorted({case.rpc for case in CASES}))
def test_every_rpc_has_its_bad_requests(rpc: str) -> None:
    """The table has bad requests for every RPC with a request."""
    assert len(CASES) >= 40
    assert sum(case.rpc == rpc for case in CASES) >= (1 if rpc == "IndexService/GetStatus" else 4)
