# SPDX-License-Identifier: Apache-2.0
"""LogAppender: shared state goes to the log that leads, and the log's refusals keep their meaning."""

from typing import Any, cast

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats.records.state_record import StateRecord
from libs.requests import durable
from libs.requests.errors import DependencyUnavailable
from libs.runtime.errors import ConfigError
from libs.runtime.peer.connection import Connection
from services.commitlog.errors import BatchTooLarge, NotEnoughReplicas, NotLeader, QueueOutOfRange, StoreSealed
from services.commitlog.rpc.error_table import ERROR_TABLE
from services.indexer.errors import AppendRefused
from services.indexer.rpc.log.appender import LogAppender
from tests.support.calls import LocalChannel

RECORD = StateRecord(origin="o" * 32, number=1)


class Log:
    """A log that answers with an error, or with the number of its appends."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.results: list[pb.AppendResult | Exception] = []
        self.requests: list[Any] = []
        self.closed_count = 0

    async def AppendState(self, request: pb.AppendStateRequest, _: object) -> pb.AppendStateResponse:  # noqa: N802 - gRPC's name
        """Take the batch, or refuse it."""
        self.requests.append(request)
        if self.results:
            result = self.results.pop(0)
            if isinstance(result, Exception):
                raise result
            return pb.AppendStateResponse(result=result)
        if self.failure is not None:
            raise self.failure
        return pb.AppendStateResponse(result=pb.AppendResult(end_physical_offset=len(self.requests)))

    def connection(self) -> Connection:
        """Return a connection to the log."""
        channel: Any = LocalChannel(lambda: {"reput.commitlog.v1.AppendService": self}, ERROR_TABLE)
        channel.close = self._close
        return Connection(cast("grpc.aio.Channel", channel), 1.0, tuple)

    async def _close(self) -> None:
        self.closed_count += 1


def appender_of(own: Log, **others: Log) -> LogAppender:
    """Return an appender beside a log, which reaches other logs by their names."""
    return LogAppender(own.connection(), lambda target: others[target].connection())


async def test_the_named_leader_gets_the_batch_and_those_after_it() -> None:
    """The own log is asked once; all batches have the same writer, and numbers without a gap."""
    own, leader = Log(NotLeader("b")), Log()
    appender = appender_of(own, b=leader)
    for _ in range(3):
        await appender.share([RECORD])
    assert (len(own.requests), len(leader.requests)) == (1, 3)
    assert [one.writer.sequence for one in leader.requests] == [0, 1, 2]
    assert len({one.writer.id for one in leader.requests}) == 1
    await appender.close()
    assert (leader.closed_count, own.closed_count) == (1, 0)


async def test_a_leader_that_follows_names_the_next_one() -> None:
    """The connection to the former leader is closed."""
    own, former, leader = Log(NotLeader("b")), Log(), Log()
    appender = appender_of(own, b=former, c=leader)
    await appender.share([RECORD])
    former.failure = NotLeader("c")
    await appender.share([RECORD])
    assert (len(own.requests), len(former.requests), len(leader.requests)) == (1, 2, 1)
    assert former.closed_count == 1


async def test_a_leader_that_fails_is_left() -> None:
    """The own log is asked again, and another writer begins: whether the batch was stored is unknown."""
    own, leader = Log(NotLeader("b")), Log()
    appender = appender_of(own, b=leader)
    await appender.share([RECORD])
    leader.failure = StoreSealed()
    with pytest.raises(DependencyUnavailable, match="FAILED_PRECONDITION: a sync or a write failed"):
        await appender.share([RECORD])
    leader.failure = None
    await appender.share([RECORD])
    assert len(own.requests) == 2
    assert len({one.writer.id for one in leader.requests}) == 2


async def test_a_log_that_knows_no_leader() -> None:
    """The error has the text of the log, with the code."""
    with pytest.raises(DependencyUnavailable, match="UNAVAILABLE: this log does not know which one takes"):
        await appender_of(Log(NotLeader())).share([RECORD])


@pytest.mark.parametrize(
    "failure",
    [
        QueueOutOfRange(field="messages[3].queue_id", topic="orders", value=9, limit=3),
        BatchTooLarge("too large", value=9, limit=3),
    ],
)
async def test_a_refusal_names_the_reason(failure: Exception) -> None:
    """A refused record has the log's reason and text."""
    with pytest.raises(AppendRefused) as refused:
        await appender_of(Log(failure)).share([RECORD])
    assert f"{ERROR_TABLE[type(failure)].reason}: {failure}" in str(refused.value)


async def test_a_leader_that_has_too_few_followers_for_a_moment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays leader: a batch that waits for its durability is sent to it again."""
    monkeypatch.setattr(durable, "AGAIN_S", 0.0)
    own, leader = Log(NotLeader("b")), Log()
    appender = appender_of(own, b=leader)
    await appender.share([RECORD])
    leader.results = [
        pb.AppendResult(is_late=True),
        NotEnoughReplicas(in_sync=1, needed=2),
        pb.AppendResult(end_physical_offset=7, is_repeated=True),
    ]
    await appender.share([RECORD])
    assert (len(own.requests), leader.closed_count, len(leader.requests)) == (1, 0, 4)
    assert len({one.writer.sequence for one in leader.requests[1:]}) == 1


async def test_a_leader_that_can_not_be_connected_to_is_tried_again() -> None:
    """A file of a certificate may be missing for a moment."""
    own, leader = Log(NotLeader("b")), Log()
    failures: list[Exception] = [ConfigError("commitlog_tls_ca_file: no such file")]

    def connect(_: str) -> Connection:
        if failures:
            raise failures.pop()
        return leader.connection()

    appender = LogAppender(own.connection(), connect)
    with pytest.raises(ConfigError):
        await appender.share([RECORD])
    await appender.share([RECORD])
    assert (len(own.requests), len(leader.requests)) == (2, 1)
