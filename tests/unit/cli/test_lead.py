# SPDX-License-Identifier: Apache-2.0
"""`reput replicas` of several logs: the logs that need care, and the reason."""

from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import log_service_pb2, replication_service_pb2
from reput.commitlog.v1.log_service_pb2 import (
    FOLLOWING_STATE_CONNECTING,
    FOLLOWING_STATE_FOLLOWING,
    LOG_STATE_RECOVERING,
    LOG_STATE_SERVING,
    ROLE_SYNC_MASTER,
    Election,
    Following,
    FollowingState,
    GetStatusResponse,
)

from cli.commands.lead import member_of
from clients.python.tests.support import Unary, fail, serving, status
from libs.members import leads
from tests.support.reput_up import run_here


@pytest.mark.parametrize(
    ("state", "reason"), [(FOLLOWING_STATE_CONNECTING, "the leader is away"), (FOLLOWING_STATE_FOLLOWING, "")]
)
def test_an_error_that_is_over_is_no_reason(state: FollowingState.ValueType, reason: str) -> None:
    """A log that follows again keeps its last error, but needs no care."""
    following = Following(state=state, is_in_sync=True, last_error="the leader is away")
    row = member_of(GetStatusResponse(replica_id="b", following=following), {})
    assert (row["reason"], row["is_in_sync"]) == (reason, True)


def test_logs_that_nobody_answers_for() -> None:
    """A log without an answer is reported in the command's words, not in gRPC's."""
    result = run_here("--commitlog", "127.0.0.1:1,127.0.0.1:2", "replicas", "--json")
    assert (result.code, [row["reason"] for row in result.rows]) == (4, ["nobody answers"] * 2)


@pytest.mark.parametrize(
    ("state", "is_leader", "shown"),
    [
        (GetStatusResponse(state=LOG_STATE_SERVING, is_writable=True), True, "LEADING"),
        (GetStatusResponse(state=LOG_STATE_SERVING, refusals=["DISK_FULL"]), True, "LEADING"),
        (GetStatusResponse(state=LOG_STATE_SERVING, refusals=["NOT_LEADER"]), False, "NOT_LEADING"),
        (GetStatusResponse(state=LOG_STATE_SERVING, election=Election(lease_left_ms=3_000)), True, "LEADING"),
        (GetStatusResponse(state=LOG_STATE_SERVING, election=Election(decision="it was elected")), False,
         "NOT_LEADING"),
        (GetStatusResponse(state=LOG_STATE_RECOVERING), False, "RECOVERING"),
        (GetStatusResponse(state=LOG_STATE_SERVING, following=Following(state=FOLLOWING_STATE_FOLLOWING)), False,
         "FOLLOWING"),
    ],
)  # fmt: skip
def test_who_leads(state: GetStatusResponse, is_leader: bool, shown: str) -> None:
    """A log without its lease refuses appends: another log may lead already, and no log leads for certain."""
    row = member_of(state, {})
    assert (leads(state), row["state"], row["is_in_sync"]) == (is_leader, shown, is_leader)
    assert ("takes no appends" in str(row["reason"])) == (shown == "NOT_LEADING")


def _log(**answers: Any) -> Any:
    """Serve a log with these answers."""
    kinds = {"Demote": replication_service_pb2.DemoteRequest, "Promote": replication_service_pb2.PromoteRequest}
    state = GetStatusResponse(replica_id="b", state=LOG_STATE_SERVING)
    states = {"GetStatus": (log_service_pb2.GetStatusRequest, lambda *_: state)}
    changes = {name: (kinds[name], answer) for name, answer in answers.items()}
    return serving(
        Unary("reput.commitlog.v1.LogService", **states), Unary("reput.commitlog.v1.ReplicationService", **changes)
    )


def test_a_next_leader_that_is_down_is_told_apart_from_the_leader() -> None:
    """A next leader that is down is named alone, because the leader and its TLS are in order.

    The error tells that nothing was changed.
    """
    with _log() as leader:
        result = run_here("--commitlog", leader, "handover", "127.0.0.1:1")
    assert result.code == 4
    assert "nobody answers at 127.0.0.1:1; nothing was changed, and the leader goes on" in result.errors
    assert leader not in result.errors


def test_a_next_leader_that_dies_in_the_middle_is_told() -> None:
    """If the next leader dies during the handover, the error tells that the old leader already follows it."""

    def die(_request: Any, context: Any) -> Any:
        fail(context, status(grpc.StatusCode.UNAVAILABLE, "STOPPING"))

    demoted = replication_service_pb2.DemoteResponse(former_role=ROLE_SYNC_MASTER, epoch=1)
    with _log(Promote=die) as following, _log(Demote=lambda *_: demoted) as leader:
        result = run_here("--commitlog", leader, "handover", following)
    assert result.code != 0
    assert f"the old leader follows {following} by now, which does not lead" in result.errors


def test_an_answer_of_the_leader_that_is_lost_is_told() -> None:
    """After a lost answer the error tells that the handover of the leader is not known."""

    def lose(_request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")

    with _log() as following, _log(Demote=lose) as leader:
        result = run_here("--commitlog", leader, "handover", following)
    assert result.code == 4
    assert f"whether {leader} has handed over is not known: Socket closed" in result.errors
