# SPDX-License-Identifier: Apache-2.0
"""The wait of a command: half a minute for a service that is starting, a second for an address without a service."""

from typing import Any

import grpc
import pytest
from reput.indexer.v1 import index_service_pb2, query_service_pb2
from reput_client import UnavailableError

from cli.connection.patience import STARTING_REASONS, LeaderPatience, Patience
from clients.python.tests.support import Unary, fail, serving, status
from tests.support.reput_up import run_here


def waits(patience: Patience, reason: str) -> list[float]:
    """The delays between the attempts until the patience ends."""
    error = UnavailableError("no", code=grpc.StatusCode.UNAVAILABLE, reason=reason, retry_after=0.1)
    delays: list[float] = []
    while (delay_s := patience.delay_s(len(delays), error)) is not None:
        delays.append(delay_s)
    return delays


@pytest.mark.parametrize("reason", sorted(STARTING_REASONS))
def test_a_service_that_is_starting_is_waited_for(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A starting service is waited for half a minute, with any limit for other failures.

    The user gets the reason once.
    """
    patience = Patience()
    assert 12 < sum(waits(patience, reason)) < 60
    waits(patience, reason)
    assert capsys.readouterr().err == f"warning: waiting for the service: {reason}: no\n"


def test_the_time_out_ends_the_waiting() -> None:
    """A producer has no time-out of its own for a message."""
    assert 0 < sum(waits(Patience(timeout_s=3), "RECOVERING")) < 3


@pytest.mark.parametrize("reason", ["", "STOPPING", "STORE_FULL"])
def test_others_are_not_waited_for(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A service that is missing, stopping or full gets a few attempts, and no note is printed."""
    assert len(waits(Patience(), reason)) == 4
    assert len(waits(Patience(retries=6), reason)) == 6
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("reason", ["", "NOT_LEADER", "NOT_ENOUGH_REPLICAS"])
def test_the_next_leader_is_waited_for(reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The next leader is waited for as long as an election takes, and the wait is reported once.

    A missing service at an address gets less time.
    """
    patience = LeaderPatience(retries=6, timeout_s=30)
    assert 8 < sum(waits(patience, reason)) < 30
    waits(patience, reason)
    assert capsys.readouterr().err.count("warning: waiting for a log that leads: ") == 1
    assert len(waits(patience, "STORE_FULL")) == 6


def indexer(calls: list[Any], refusals: int) -> list[Unary]:
    """An Indexer that answers a query after the given number of refusals, and never its status."""

    def query(request: Any, context: Any) -> Any:
        calls.append(request)
        if len(calls) <= refusals:
            fail(context, status(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE", retry_after_s=0.01))
        return query_service_pb2.QueryByKeyResponse(messages=[{"topic": "T", "body": b"found"}])

    def state(request: Any, context: Any) -> Any:
        calls.append(request)
        fail(context, status(grpc.StatusCode.UNAVAILABLE, "RECOVERING", retry_after_s=0.01))

    return [
        Unary("reput.indexer.v1.QueryService", QueryByKey=(query_service_pb2.QueryByKeyRequest, query)),
        Unary("reput.indexer.v1.IndexService", GetStatus=(index_service_pb2.GetStatusRequest, state)),
    ]


def test_a_command_waits() -> None:
    """A query is answered as soon as the service can answer; `status` shows the present state."""
    calls: list[Any] = []
    with serving(*indexer(calls, 6)) as target:
        extra = {"REPUT_CLIENT_INDEXER_TARGET": target}
        found = run_here("query", "key", "T", "k", "--json", extra=extra)
        assert (found.code, [row["body"] for row in found.rows], len(calls)) == (0, ["found"], 7)
        assert found.errors.startswith("warning: waiting for the service: DEPENDENCY_UNAVAILABLE")
        calls.clear()
        told = run_here("status", "--json", extra={**extra, "REPUT_CLIENT_COMMITLOG_TARGET": "127.0.0.1:1"})
        assert (told.code, len(calls)) == (4, 5)
