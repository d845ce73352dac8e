# SPDX-License-Identifier: Apache-2.0
"""`reput replicas` of several logs: who needs care, and why."""

import pytest
from reput.commitlog.v1.log_service_pb2 import (
    FOLLOWING_STATE_CONNECTING,
    FOLLOWING_STATE_FOLLOWING,
    Following,
    FollowingState,
    GetStatusResponse,
)

from cli.commands.lead import member_of
from tests.support.reput_up import run_here


@pytest.mark.parametrize(
    ("state", "reason"), [(FOLLOWING_STATE_CONNECTING, "the leader is away"), (FOLLOWING_STATE_FOLLOWING, "")]
)
def test_an_error_that_is_over_is_no_reason(state: FollowingState.ValueType, reason: str) -> None:
    """A log that follows again keeps its last error, but needs nobody."""
    following = Following(state=state, is_in_sync=True, last_error="the leader is away")
    row = member_of(GetStatusResponse(replica_id="b", following=following), {})
    assert (row["reason"], row["is_in_sync"]) == (reason, True)


def test_logs_that_nobody_answers_for() -> None:
    """In our words, not in gRPC's."""
    result = run_here("--commitlog", "127.0.0.1:1,127.0.0.1:2", "replicas", "--json")
    assert (result.code, [row["reason"] for row in result.rows]) == (4, ["nobody answers"] * 2)
