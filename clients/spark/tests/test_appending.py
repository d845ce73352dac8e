# SPDX-License-Identifier: Apache-2.0
"""Batches on their way to the log: order, windows, broken streams, refusals, replays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from reput.commitlog.v1 import append_service_pb2 as pb
from reput_client import Written
from reput_spark.errors import CallFailed, ReplayChanged
from reput_spark.write.appending import Appender
from reput_spark.write.options import parse_write

DISK = 2


def refusal(reason: str, code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> status_pb2.Status:
    """A status as Reput sends it."""
    status = status_pb2.Status(code=code.value[0], message=f"because of {reason}")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="reput"))
    return status


@dataclass
class FakeLog:
    """Stores batches, once for each number of a writer. `plan` may break a stream or refuse a batch.

    It is called for each request, numbered from 0 over all streams, and returns None, "before" or "after" (the stream
    breaks before or after the batch is stored), a durability, or a status.
    """

    plan: Callable[[int], Any] = lambda _number: None
    bodies: list[bytes] = field(default_factory=list)
    by_writer: dict[tuple[str, int], bytes] = field(default_factory=dict)
    writer_ids: list[str] = field(default_factory=list)
    request_sizes: list[int] = field(default_factory=list)
    stream_count: int = 0
    request_count: int = 0
    endpoint: str = ""

    def append(self, requests: Iterator[bytes], context: Any) -> Iterator[pb.AppendStreamResponse]:
        """AppendStream."""
        self.stream_count += 1
        for raw in requests:
            planned = self.plan(self.request_count)
            self.request_count += 1
            self.request_sizes.append(len(raw))
            if planned == "before":
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            outcome = pb.AppendOutcome()
            if isinstance(planned, status_pb2.Status):
                outcome.error.CopyFrom(planned)
            else:
                self.store(raw, outcome)
                if isinstance(planned, int):
                    outcome.result.durability = planned
            if planned == "after":
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken on purpose")
            yield pb.AppendStreamResponse(outcomes=[outcome])

    def store(self, raw: bytes, outcome: pb.AppendOutcome) -> None:
        """Store a batch, or return the refusal."""
        request = pb.AppendStreamRequest.FromString(raw)
        outcome.result.durability = request.durability
        if request.HasField("writer"):
            key = (request.writer.id, request.writer.sequence)
            self.writer_ids.append(request.writer.id)
            if key in self.by_writer:
                if self.by_writer[key] == raw:
                    outcome.result.is_repeated = True
                else:
                    outcome.error.CopyFrom(refusal("WRITER_CONTENT_DIFFERS"))
                return
            if key[1] > 0 and (key[0], key[1] - 1) not in self.by_writer:
                outcome.error.CopyFrom(refusal("WRITER_SEQUENCE_GAP"))
                return
            self.by_writer[key] = raw
        self.bodies += [message.body for message in request.messages]


@pytest.fixture
def log() -> Iterator[FakeLog]:
    """A log behind a real server."""
    with served() as fake:
        yield fake


@contextlib.contextmanager
def served() -> Iterator[FakeLog]:
    """A log behind a server of its own."""
    fake, server = FakeLog(), grpc.server(ThreadPoolExecutor(4))
    method = grpc.stream_stream_rpc_method_handler(
        fake.append, response_serializer=pb.AppendStreamResponse.SerializeToString
    )
    handlers = grpc.method_handlers_generic_handler("reput.commitlog.v1.AppendService", {"AppendStream": method})
    server.add_generic_rpc_handlers((handlers,))
    fake.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield fake
    finally:
        server.stop(grace=None).wait()


def write(log: FakeLog, bodies: list[bytes], writer_id: str = "job/0", **options: str) -> Written:
    """Append a message for each body, in small batches."""
    fast = {"retryIntervalMs": "0", "batchBytes": "100", "windowBytes": "1k"}
    chosen = parse_write({"commitlog.endpoint": log.endpoint, "topic": "t", **fast, **options})
    with Appender(chosen, writer_id) as appender:
        for body in bodies:
            message = pb.AppendMessage(topic="t", body=body)
            appender.put(pb.AppendRequest(messages=[message]).SerializeToString())
        return appender.finish()


BODIES = [b"%04d" % number for number in range(500)]


def test_everything_is_stored_in_order(log: FakeLog) -> None:
    """In batches of about the wanted size, through a single stream."""
    totals = write(log, BODIES)
    assert log.bodies == BODIES
    assert (totals.message_count, totals.repeated_message_count, log.stream_count) == (500, 0, 1)
    assert max(log.request_sizes) < 100 + 2 * 20 + 20
    assert write(log, []) == Written()


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("number", [0, 1, 7, 40])
def test_a_broken_stream_loses_and_repeats_nothing(log: FakeLog, number: int, how: str) -> None:
    """Whether the batch was stored or not when the stream broke."""
    log.plan = lambda count: how if count in (number, number + 3) else None
    totals = write(log, BODIES)
    assert log.bodies == BODIES
    assert totals.message_count == 500
    assert log.stream_count == 3
    assert (totals.repeated_message_count > 0) == (how == "after")


def test_without_a_writer_nothing_is_lost(log: FakeLog) -> None:
    """Batches without an outcome are sent again, and may be stored twice."""
    log.plan = lambda count: "after" if count == 5 else None
    write(log, BODIES, writer_id="")
    assert sorted(set(log.bodies)) == BODIES
    assert len(log.bodies) > len(BODIES)
    assert not log.writer_ids


@pytest.mark.parametrize("reason", ["STORE_FULL", "WINDOW_FULL", "STOPPING", "RECOVERING", "QUEUE_OFFSETS_UNKNOWN"])
def test_a_refusal_that_passes(log: FakeLog, reason: str) -> None:
    """The batch, and the batches behind it, are sent again, in order."""
    log.plan = lambda count: refusal(reason) if 10 <= count < 13 else None
    write(log, BODIES)
    assert log.bodies == BODIES


def test_a_refusal_that_stays(log: FakeLog) -> None:
    """The task fails with the log's own words, at once."""
    log.plan = lambda count: refusal("MESSAGE_TOO_LARGE") if count == 10 else None
    with pytest.raises(CallFailed, match="MESSAGE_TOO_LARGE: because of MESSAGE_TOO_LARGE"):
        write(log, BODIES)
    log.plan = lambda _count: refusal("STORE_FULL")
    with pytest.raises(CallFailed, match="STORE_FULL"):
        write(log, BODIES, writer_id="job/1", numRetries="2")


def test_a_task_that_runs_again_stores_nothing_twice(log: FakeLog) -> None:
    """The first attempt failed at some point. The second attempt finds the stored batches."""
    log.plan = lambda count: refusal("STORE_SEALED") if count == 20 else None
    with pytest.raises(CallFailed):
        write(log, BODIES)
    log.plan = lambda _count: None
    totals = write(log, BODIES)
    assert log.bodies == BODIES
    assert totals.repeated_message_count > 0
    assert write(log, BODIES).repeated_message_count == 500


def test_a_replay_with_other_rows(log: FakeLog) -> None:
    """From the first batch that differs on, rows are stored under another writer, or the task fails. None is lost."""
    write(log, BODIES[:100])
    changed = [*BODIES[:50], b"new!", *BODIES[51:120]]
    totals = write(log, changed)
    assert set(log.bodies) == {*BODIES[:100], *changed}
    assert totals.message_count == 120
    assert 0 < totals.repeated_message_count <= 50
    assert len(set(log.writer_ids)) == 2
    with pytest.raises(ReplayChanged, match=r"batch \d+ of writer job/0: because of WRITER_CONTENT_DIFFERS"):
        write(log, [b"other", *BODIES[1:]], changedReplay="fail")


def test_a_batch_that_is_not_on_the_disk_yet(log: FakeLog) -> None:
    """A writer sends it again until it is on the disk. Without a writer id the answer is accepted."""
    log.plan = lambda count: 1 if count in (3, 30) else None
    totals = write(log, BODIES)
    assert log.bodies == BODIES
    assert totals.repeated_message_count > 0
    log.bodies.clear()
    assert write(log, BODIES[:60], writer_id="", durability="memory").message_count == 60
    assert log.bodies == BODIES[:60]


def not_leader(leader: str) -> status_pb2.Status:
    """Return the refusal of a log that is a follower."""
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="follows")
    info = error_details_pb2.ErrorInfo(reason="NOT_LEADER", domain="reput", metadata={"leader": leader})
    status.details.add().Pack(info)
    return status


def test_the_leader_of_a_list() -> None:
    """Its address is used, and kept from task to task. The next address is used when the leader is down."""
    with served() as first, served() as second:
        everybody = {"commitlog.endpoint": f"{first.endpoint},{second.endpoint}", "durability": "replicated"}
        first.plan = lambda _number: not_leader(second.endpoint)
        write(second, BODIES[:100], "job/0", **everybody)
        write(second, BODIES[100:200], "job/1", **everybody)
        assert (first.stream_count, second.stream_count, second.bodies) == (1, 2, BODIES[:200])
        second.plan = lambda number: "before" if number % 2 else not_leader(first.endpoint)
        first.plan = lambda _number: None
        write(second, BODIES[200:], "job/2", **everybody)
        assert first.bodies == BODIES[200:]


def test_nobody_listens() -> None:
    """After all retries the error has the address and the reason."""
    nobody = FakeLog(endpoint="127.0.0.1:1")
    with pytest.raises(CallFailed, match=r"AppendStream at 127\.0\.0\.1:1: UNAVAILABLE"):
        write(nobody, BODIES, numRetries="1")
