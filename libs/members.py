# SPDX-License-Identifier: Apache-2.0
"""Members of a replicated log: which one leads, how each stands, and how late a follower is. Pure: states in."""

from reput.commitlog.v1.log_service_pb2 import (
    FOLLOWING_STATE_FOLLOWING,
    LOG_STATE_SERVING,
    FollowingState,
    GetStatusResponse,
    LogState,
    Replica,
)

NO_LEASE = "its lease is over, so it takes no appends until it is renewed, or another log leads"
NO_APPENDS = "it hands over, or has no lease: it takes no appends"
LEADING, NOT_LEADING = "LEADING", "NOT_LEADING"


def leads(state: GetStatusResponse) -> bool:
    """Return whether a log accepts appends as the leader. An elected log leads as long as it has a lease."""
    return _has_led(state) and "NOT_LEADER" not in state.refusals and not _is_lease_over(state)


def standing_of(state: GetStatusResponse) -> tuple[str, str]:
    """Return a word for how a log stands, and the reason of a trouble.

    The last error of a log that follows again is left out. A log that has led and may not lead any more is NOT_LEADING:
    it refuses appends, and another log may lead already.
    """
    election, following = state.election, state.following
    if _has_led(state) and not leads(state):
        why = NO_LEASE if _is_lease_over(state) else NO_APPENDS
        return NOT_LEADING, f"{why}; {election.last_error}" if election.last_error else why
    trouble = "" if following.state == FOLLOWING_STATE_FOLLOWING else following.last_error
    reason = election.last_error or trouble or election.decision
    if leads(state):
        return LEADING, reason
    if state.HasField("following"):
        return FollowingState.Name(following.state).removeprefix("FOLLOWING_STATE_"), reason
    return LogState.Name(state.state).removeprefix("LOG_STATE_"), reason


def replica_lag_s(replica: Replica, end_physical_offset: int) -> float:
    """Return how late a follower is, 0 for a follower that has all."""
    if replica.flushed_physical_offset >= end_physical_offset:
        return 0.0
    return max(replica.heard_time.ToMilliseconds() - replica.had_all_time.ToMilliseconds(), 0) / 1000


def _has_led(state: GetStatusResponse) -> bool:
    return state.state == LOG_STATE_SERVING and not state.HasField("following")


def _is_lease_over(state: GetStatusResponse) -> bool:
    return state.HasField("election") and not state.election.lease_left_ms
