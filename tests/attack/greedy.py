# SPDX-License-Identifier: Apache-2.0
"""The greedy clients, each a process of its own: `python -m tests.attack.greedy NAME SECONDS TARGETS SEED`.

TARGETS is JSON: addresses by service. A client does its worst for about SECONDS and prints its counts as JSON. It has
no part in the verdict: a client that is refused or whose connection is closed goes on to its next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from reput.commitlog.v1 import append_service_pb2, log_service_pb2, topic_service_pb2
from reput.indexer.v1 import consumer_offset_service_pb2, query_service_pb2, queue_service_pb2, scan_service_pb2

from libs.formats.protobuf_wire import length_delimited
from tests.attack import frames, hostile, http2, pages, sharing
from tests.attack.caller import AGAIN_S, BURST_COUNT, BURST_PAUSE_S, Caller, Counts, Targets, hold
from tests.attack.store import COLLISION_COUNT, COLLISIONS, LARGE, LARGE_COUNT, MIB, colliding_key

APPEND = "/reput.commitlog.v1.AppendService/Append"
APPEND_STREAM = "/reput.commitlog.v1.AppendService/AppendStream"
CONNECTIONS = "/reput.common.v1.ConnectionService/ListConnections"
LOG_STATUS = "/reput.commitlog.v1.LogService/GetStatus"
READ_RECORDS = "/reput.commitlog.v1.LogService/ReadRecords"
STREAM_RECORDS = "/reput.commitlog.v1.LogService/StreamRecords"
CHECK_OFFSETS = "/reput.commitlog.v1.LogService/CheckQueueOffsets"
CREATE_TOPIC = "/reput.commitlog.v1.TopicService/CreateTopic"
DELETE_TOPIC = "/reput.commitlog.v1.TopicService/DeleteTopic"
PULL = "/reput.indexer.v1.QueueService/Pull"
SUBSCRIBE = "/reput.indexer.v1.QueueService/Subscribe"
INDEX_STATUS = "/reput.indexer.v1.IndexService/GetStatus"
BY_ID = "/reput.indexer.v1.QueryService/QueryById"
BY_KEY = "/reput.indexer.v1.QueryService/QueryByKey"
SCAN = "/reput.indexer.v1.ScanService/Scan"
PLAN_SCAN = "/reput.indexer.v1.ScanService/PlanScan"
COMMIT_OFFSET = "/reput.indexer.v1.ConsumerOffsetService/CommitConsumerOffset"
WATCH = "/grpc.health.v1.Health/Watch"

REQUEST_BYTES = 16 * MIB
UNKNOWN_FIELD = 900
UNKNOWN_NUMBER = bytes([0xA0, 0x38, 1])
"""The field 900 with a number."""
FLOOD_CONNECTIONS = 2
LATE_RESET_CONNECTIONS, LATE_RESET_COUNT, LATE_RESET_S = 8, 15, 0.1
"""Each connection stays within its limit of 200 resets a second; all together are far above that of a connection."""
ANSWER_BYTES = 8 * MIB
SCAN_COUNT = 64

NEW_QUEUE_COUNT = 1_000
SILENT_COUNT = 1_500
"""At each of two services."""

FRAME_THREADS, FRAME_PART = 8, 200


def unread_answers(targets: Targets, seconds: float) -> Counts:
    """Asks for 8 MiB again and again, with a window of nothing."""
    connection = http2.Connection(targets["indexer"], window_bytes=0)
    request = queue_service_pb2.PullRequest(topic=LARGE, message_count_max=4_096, size_bytes_max=ANSWER_BYTES)
    raw = request.SerializeToString()
    count = 100
    for _ in range(count):
        connection.call(PULL, raw)
    time.sleep(seconds)
    return {"calls": count}


def half_requests(targets: Targets, seconds: float) -> Counts:
    """Sends all of large batches but the last byte."""
    connections = [http2.Connection(targets["commitlog"]) for _ in range(12)]
    sent = 0
    end_s = time.monotonic() + seconds
    try:
        for connection in connections * 5:
            stream = connection.begin(APPEND)
            head = b"\0" + REQUEST_BYTES.to_bytes(4, "big")
            connection.socket.sendall(http2.frame(http2.DATA, 0, stream, head))
            sent += connection.send(stream, REQUEST_BYTES - 1, end_s)
    except OSError:
        pass
    time.sleep(max(0.0, end_s - time.monotonic()))
    return {"bytes": sent}


def refused_requests(targets: Targets, seconds: float) -> Counts:
    """Large requests that break a rule, in turn: sizes that gRPC takes, and sizes that it does not take."""
    group = length_delimited(1, b"not a group!")
    calls: list[tuple[str, Message | bytes]] = []
    for size_bytes in (REQUEST_BYTES, 2 * REQUEST_BYTES):
        unknown = length_delimited(UNKNOWN_FIELD, bytes(size_bytes - 64))
        calls += [
            (COMMIT_OFFSET, group + unknown),
            (BY_KEY, query_service_pb2.QueryByKeyRequest(topic="no topic!", key="k" * (size_bytes - 64))),
            (PLAN_SCAN, scan_service_pb2.PlanScanRequest(topics=["no topic!"], queue_ids=range(size_bytes // 5))),
        ]
    return Caller(targets["indexer"], seconds).repeat(*calls)


def empty_parts(targets: Targets, seconds: float) -> Counts:
    """Millions of empty parts in a single request, to a method of each service that takes parts."""
    log, index = Caller(targets["commitlog"], seconds), Caller(targets["indexer"], seconds)
    while log.has_time:
        log.call(APPEND, b"\x0a\x00" * (REQUEST_BYTES // 2 - 32))
        index.call(PLAN_SCAN, b"\x0a\x00" * (REQUEST_BYTES // 2 - 32))
        index.call(COMMIT_OFFSET, length_delimited(1, b"group") + b"\x12\x00" * (REQUEST_BYTES // 2 - 32))
    for code, count in log.counts.items():
        index.count(code, count)
    return index.counts


def readers_that_do_not_read(targets: Targets, seconds: float) -> Counts:
    """Opens streams of records and takes nothing."""
    connection = http2.Connection(targets["commitlog"], window_bytes=0)
    request = log_service_pb2.StreamRecordsRequest(view="RECORD_VIEW_RAW", response_size_bytes_max=ANSWER_BYTES)
    count = 300
    for _ in range(count):
        connection.call(STREAM_RECORDS, request.SerializeToString())
    time.sleep(seconds)
    return {"streams": count}


def scans_that_do_not_read(targets: Targets, seconds: float) -> Counts:
    """Opens subscriptions and scans and takes nothing."""
    connection = http2.Connection(targets["indexer"], window_bytes=0)
    subscribe = queue_service_pb2.SubscribeRequest(topic=LARGE, message_count_max=4_096, size_bytes_max=ANSWER_BYTES)
    count = 300
    for _ in range(count):
        connection.call(SUBSCRIBE, subscribe.SerializeToString())
    ranges = [scan_service_pb2.ScanRange(topic=LARGE, queue_id=0, end_queue_offset=LARGE_COUNT)]
    partition = scan_service_pb2.ScanPartition(ranges=ranges)
    scan = scan_service_pb2.ScanRequest(partition=partition, frame_size_bytes=ANSWER_BYTES)
    for _ in range(SCAN_COUNT):
        connection.call(SCAN, scan.SerializeToString())
    time.sleep(seconds)
    return {"streams": count + SCAN_COUNT}


def long_polls(targets: Targets, seconds: float) -> Counts:
    """Waits for messages that do not come, thousands of times."""
    connections = [http2.Connection(targets["indexer"], window_bytes=0) for _ in range(4)]
    raw = queue_service_pb2.PullRequest(topic=LARGE, queue_offset=LARGE_COUNT, size_bytes_max=ANSWER_BYTES)
    raw.wait.seconds = 30
    for connection in connections:
        for number in range(2_000):
            connection.call(PULL, raw.SerializeToString())
            time.sleep(BURST_PAUSE_S if number % BURST_COUNT == 0 else 0)
    time.sleep(seconds)
    return {"polls": 8_000}


def continuation_flood(targets: Targets, seconds: float) -> Counts:
    """Headers that never end."""
    connections = [http2.Connection(targets["commitlog"]) for _ in range(FLOOD_CONNECTIONS)]
    block = b"".join(http2.literal(f"x-{index:04d}", "v" * 100) for index in range(120))
    sent = 0
    for connection in connections:
        connection.socket.sendall(http2.frame(http2.HEADERS, 0, 1, http2.call_headers(APPEND)))
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s and connections:
        for connection in list(connections):
            try:
                connection.socket.sendall(http2.frame(http2.CONTINUATION, 0, 1, block))
                sent += len(block)
            except OSError:
                connections.remove(connection)
    return {"bytes": sent}


def rapid_reset(targets: Targets, seconds: float) -> Counts:
    """Begins calls and takes them back at once."""
    end_s = time.monotonic() + seconds
    count = 0
    with ThreadPoolExecutor(FLOOD_CONNECTIONS) as pool:
        for part in pool.map(lambda _: _reset_until(targets["commitlog"], end_s), range(FLOOD_CONNECTIONS)):
            count += part
    return {"resets": count}


def _reset_until(target: str, end_s: float) -> int:
    count = 0
    while time.monotonic() < end_s:
        connection = http2.Connection(target)
        try:
            for stream in range(1, 1 << 18, 2):
                headers = http2.frame(http2.HEADERS, http2.END_HEADERS, stream, http2.call_headers(APPEND))
                connection.socket.sendall(
                    headers + http2.frame(http2.RESET, 0, stream, http2.CANCEL.to_bytes(4, "big"))
                )
                count += 1
                if time.monotonic() > end_s:
                    break
        except OSError:
            pass
        connection.close()
    return count


def door_readers(targets: Targets, seconds: float) -> Counts:
    """Opens streams and asks for large answers through the door on several connections, and takes nothing."""
    behind = dict.fromkeys(targets, targets["gateway"])
    with ThreadPoolExecutor() as pool:
        clients = (readers_that_do_not_read, scans_that_do_not_read, unread_answers)
        found = list(pool.map(lambda client: client(behind, seconds), clients))
    return dict(sum(map(Counter, found), Counter[str]()))


def door_requests(targets: Targets, seconds: float) -> Counts:
    """Sends all of large batches but the last byte through the door."""
    return half_requests({"commitlog": targets["gateway"]}, seconds)


def door_resets(targets: Targets, seconds: float) -> Counts:
    """Begins streams that reach a service, and takes them back a moment later, within the limit of each connection."""
    end_s = time.monotonic() + seconds
    with ThreadPoolExecutor(LATE_RESET_CONNECTIONS) as pool:
        parts = pool.map(lambda _: _reset_late(targets["gateway"], end_s), range(LATE_RESET_CONNECTIONS))
        return {"resets": sum(parts)}


def _reset_late(target: str, end_s: float) -> int:
    connection, count = http2.Connection(target), 0
    while time.monotonic() < end_s:
        first = 1 + 2 * count
        streams = range(first, first + 2 * LATE_RESET_COUNT, 2)
        head = http2.call_headers(APPEND_STREAM)
        connection.socket.sendall(b"".join(http2.frame(http2.HEADERS, http2.END_HEADERS, one, head) for one in streams))
        time.sleep(LATE_RESET_S)
        cancel = http2.CANCEL.to_bytes(4, "big")
        connection.socket.sendall(b"".join(http2.frame(http2.RESET, 0, one, cancel) for one in streams))
        count += LATE_RESET_COUNT
    connection.close()
    return count


def door_heads(targets: Targets, seconds: float) -> Counts:
    """Calls with metadata of any size, forged identities, and methods and services that do not exist."""
    caller, number = Caller(targets["gateway"], seconds), 0
    while caller.has_time:
        number += 1
        said = {"reput-door": "x" * 60, "reput-door-peer": f"ipv4:1.2.3.4:{number}", "a": "b" * (number * 97 % 15_000)}
        said["reput-service"] = ("commitlog", "nothing", "x" * 500)[number % 3]
        method = (APPEND, CONNECTIONS, "/reput.commitlog.v1.No/No", "/x/" + "y" * 900)[number % 4]
        caller.call(method, b"", *said.items())
    return caller.counts


def unknown_fields(targets: Targets, seconds: float) -> Counts:
    """Requests of nothing but unknown fields, to each service."""
    log = Caller(targets["commitlog"], seconds)
    index = Caller(targets["indexer"], seconds)
    while log.has_time:
        log.call(LOG_STATUS, UNKNOWN_NUMBER * (REQUEST_BYTES // 3 - 64))
        index.call(INDEX_STATUS, UNKNOWN_NUMBER * (REQUEST_BYTES // 3 - 64))
    return log.counts


def unknown_fields_of_append(targets: Targets, seconds: float) -> Counts:
    """Batches that name a new topic, beside unknown fields."""
    caller = Caller(targets["commitlog"], seconds)
    unknown = UNKNOWN_NUMBER * (REQUEST_BYTES // 3 - 64)
    while caller.has_time:
        topic = f"new-{sum(caller.counts.values())}"
        batch = append_service_pb2.AppendRequest(messages=[append_service_pb2.AppendMessage(topic=topic, body=b"x")])
        caller.call(APPEND, batch.SerializeToString() + unknown)
    return caller.counts


def colliding_ids(targets: Targets, seconds: float) -> Counts:
    """Asks for an id whose hash all others have."""
    key = colliding_key(COLLISION_COUNT)
    return Caller(targets["indexer"], seconds).repeat(
        (BY_ID, query_service_pb2.QueryByIdRequest(topic=COLLISIONS, message_id=key))
    )


def colliding_scan(targets: Targets, seconds: float) -> Counts:
    """Scans for keys whose hash all other keys have. Checks whether the scan ends when the caller leaves."""
    caller = Caller(targets["indexer"], seconds)
    partition = scan_service_pb2.ScanPartition(key_topic=COLLISIONS, keys=["a", colliding_key(COLLISION_COUNT)])
    raw = scan_service_pb2.ScanRequest(partition=partition).SerializeToString()
    while caller.has_time:
        connection = http2.Connection(targets["indexer"])
        connection.call(SCAN, raw)
        time.sleep(1)
        connection.close()
        caller.count("scans")
    return caller.counts


def long_texts(targets: Targets, seconds: float) -> Counts:
    """Keys and tag expressions as large as a request may be."""
    text = "x" * (REQUEST_BYTES - 64)
    return Caller(targets["indexer"], seconds).repeat(
        (BY_KEY, query_service_pb2.QueryByKeyRequest(topic=LARGE, key=text)),
        (PULL, queue_service_pb2.PullRequest(topic=LARGE, tag_expression=text)),
        (PULL, queue_service_pb2.PullRequest(topic=LARGE, tag_expression="a||" * (REQUEST_BYTES // 3 - 64))),
        (BY_ID, query_service_pb2.QueryByIdRequest(topic=LARGE, message_id=text)),
    )


def wide_plans(targets: Targets, seconds: float) -> Counts:
    """Plans of two million queues, and of a hundred thousand ranges."""
    one = scan_service_pb2.ScanRange(topic=LARGE, queue_id=0, end_queue_offset=1)
    return Caller(targets["indexer"], seconds).repeat(
        (PLAN_SCAN, scan_service_pb2.PlanScanRequest(topics=[LARGE], queue_ids=range(2_000_000))),
        (PLAN_SCAN, scan_service_pb2.PlanScanRequest(topics=[LARGE], ranges=[one] * 100_000)),
    )


def idle_append_streams(targets: Targets, seconds: float) -> Counts:
    """Holds as many silent streams as it gets, and opens them again when they end."""
    return asyncio.run(hold(targets["commitlog"], seconds, 1_200, lambda one: one.stream_stream(APPEND_STREAM)()))


def junk_consumer_offsets(targets: Targets, seconds: float) -> Counts:
    """Commits offsets of groups that do not exist, as many as it can."""
    caller = Caller(targets["indexer"], seconds)
    offset = consumer_offset_service_pb2.ConsumerOffset
    while caller.has_time:
        caller.call(
            COMMIT_OFFSET,
            consumer_offset_service_pb2.CommitConsumerOffsetRequest(
                group=f"junk-{sum(caller.counts.values())}",
                offsets=[offset(topic=f"junk-{index}", queue_id=1) for index in range(1_000)],
            ),
        )
    return caller.counts


def wide_topics(targets: Targets, seconds: float) -> Counts:
    """Makes topics of as many queues as a topic may have, and deletes them."""
    caller = Caller(targets["commitlog"], seconds)
    for index in range(300):
        name = f"wide-{index}"
        topic = topic_service_pb2.CreateTopicRequest(name=name, read_queue_count=65_535, write_queue_count=65_535)
        caller.call(CREATE_TOPIC, topic)
        caller.call(DELETE_TOPIC, topic_service_pb2.DeleteTopicRequest(name=name))
        if not caller.has_time:
            break
    return caller.counts


def new_queues(targets: Targets, seconds: float) -> Counts:
    """Begins about as many queues with each batch as allowed, and sends a refused batch again at once."""
    caller = Caller(targets["commitlog"], seconds)
    begun = _begin_queues(caller)
    if not caller.counts.get("resource_exhausted"):
        caller.count("unreached")
    return caller.counts | {"queues": begun}


def few_files(targets: Targets, seconds: float) -> Counts:
    """Holds more silent connections than the services may have files, and begins more queues than that."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sockets = [socket.socket() for _ in range(2 * SILENT_COUNT)]
    for number, one in enumerate(sockets):
        host, port = targets[("commitlog", "indexer")[number % 2]].rsplit(":", 1)
        one.setblocking(False)
        one.connect_ex((host, int(port)))
    caller = Caller(targets["commitlog"], seconds)
    begun = _begin_queues(caller)
    if begun < SILENT_COUNT:
        caller.count("unreached")
    return caller.counts | {"queues": begun, "connections": len(sockets)}


def _begin_queues(caller: Caller) -> int:
    """Begin queues until the time is over; how many."""
    begun = 0
    while caller.has_time:
        name = f"new-{begun}"
        create = topic_service_pb2.CreateTopicRequest(
            name=name, read_queue_count=NEW_QUEUE_COUNT, write_queue_count=NEW_QUEUE_COUNT
        )
        while not caller.call(CREATE_TOPIC, create) and caller.has_time:
            if caller.counts.get("already_exists"):  # the answer before was lost
                break
            time.sleep(AGAIN_S)
        messages = [
            append_service_pb2.AppendMessage(topic=name, queue_id=queue_id, body=b"x")
            for queue_id in range(NEW_QUEUE_COUNT)
        ]
        raw = append_service_pb2.AppendRequest(messages=messages).SerializeToString()
        while not caller.call(APPEND, raw):
            if not caller.has_time:
                return begun
        begun += NEW_QUEUE_COUNT
    return begun


def health_watchers(targets: Targets, seconds: float) -> Counts:
    """Watches the health of the service, without a token, as often as calls are allowed."""
    raw = health_pb2.HealthCheckRequest().SerializeToString()
    holding = hold(targets["commitlog"], seconds, 16_600, lambda one: one.unary_stream(WATCH)(raw), again_s=seconds)
    return asyncio.run(holding)


def metrics_connections(targets: Targets, seconds: float) -> Counts:
    """Half a request on each of many connections to the metrics."""
    host, port = targets["commitlog-metrics"].rsplit(":", 1)
    sockets = [socket.socket() for _ in range(600)]
    for one in sockets:
        one.setblocking(False)
        one.connect_ex((host, int(port)))
    end_s = time.monotonic() + seconds
    sent = 0
    while time.monotonic() < end_s:
        for one in sockets:
            with contextlib.suppress(OSError):
                sent += one.send(b"GET /metrics HTTP/1.1\r\nx: y\r\n")
        time.sleep(1)
    return {"connections": len(sockets), "bytes": sent}


def broken_frames(targets: Targets, seconds: float, seed: int) -> Counts:
    """Breaks HTTP/2 in every way. The seed decides the bytes. The connections come eight at a time."""
    attack = partial(frames.attack, targets["commitlog"], [one.path for one in hostile.targets()], seed)
    counts, end_s = Counter[str](), time.monotonic() + seconds
    with ThreadPoolExecutor(FRAME_THREADS) as threads:
        for start in itertools.count(0, FRAME_PART):
            if time.monotonic() >= end_s:
                break
            for found in threads.map(attack, range(start, start + FRAME_PART)):
                counts += found
    return dict(counts)


CLIENTS: dict[str, Callable[[Targets, float], Counts]] = {
    client.__name__: client
    for client in (
        unread_answers, half_requests, refused_requests, empty_parts, readers_that_do_not_read,
        scans_that_do_not_read, long_polls,
        continuation_flood, rapid_reset, unknown_fields, unknown_fields_of_append, colliding_ids, colliding_scan,
        long_texts, wide_plans, idle_append_streams, junk_consumer_offsets, wide_topics, new_queues,
        few_files, health_watchers,
        metrics_connections, sharing.receives_that_do_not_read, sharing.groups_read_ahead, sharing.junk_groups,
        sharing.idle_members, sharing.clients_do_not_read, sharing.junk_clients, sharing.client_streams, sharing.quota,
        door_readers, door_requests, door_resets, door_heads, sharing.quota_kept,
        pages.bodies_that_nobody_reads, pages.tails_that_nobody_reads, pages.silent_readers,
        pages.floods_of_pages, pages.forged_requests,
    )
}  # fmt: skip


def main() -> int:
    """Run a client."""
    name, seconds, targets, seed = sys.argv[1:]
    clients = CLIENTS | {"broken_frames": partial(broken_frames, seed=int(seed))}
    print(json.dumps(clients[name](json.loads(targets), float(seconds))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
