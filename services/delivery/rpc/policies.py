# SPDX-License-Identifier: Apache-2.0
"""Policies of groups, from and to protobuf."""

from google.protobuf.duration import from_milliseconds
from reput.delivery.v1 import group_service_pb2 as messages

from libs.formats.records.delivery_record import ATTEMPTS_MAX, BACKOFFS_MAX, Policy
from libs.requests import arguments
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument

DELAY_MS_MAX = 12 * 3_600_000


def policy_of(policy: messages.GroupPolicy) -> Policy:
    """Return a policy, with defaults for absent fields. Raises BadArgument."""
    check_range(policy.attempts_max, "policy.attempts_max", most=ATTEMPTS_MAX)
    if len(policy.backoffs) > BACKOFFS_MAX:
        reason = f"must be at most {BACKOFFS_MAX}"
        raise BadArgument(reason, field="policy.backoffs", value=len(policy.backoffs), limit=BACKOFFS_MAX)
    backoffs = tuple(
        check_range(one.seconds * 1000 + one.nanos // 1_000_000, f"policy.backoffs[{index}] in ms", most=DELAY_MS_MAX)
        for index, one in enumerate(policy.backoffs)
    )
    invisible_ms = arguments.duration_ms(policy, "invisible", "policy.", least=1, most=DELAY_MS_MAX)
    default = Policy()
    return Policy(
        attempts_max=policy.attempts_max or default.attempts_max,
        backoffs_ms=backoffs or default.backoffs_ms,
        invisible_ms=default.invisible_ms if invisible_ms is None else invisible_ms,
        is_ordered=policy.is_ordered,
        from_end=policy.from_end,
        is_paused=policy.is_paused,
    )


def message_of(policy: Policy) -> messages.GroupPolicy:
    """Return a policy as the API shows it."""
    return messages.GroupPolicy(
        attempts_max=policy.attempts_max,
        backoffs=map(from_milliseconds, policy.waits_ms),
        invisible=from_milliseconds(policy.invisible_ms),
        is_ordered=policy.is_ordered,
        from_end=policy.from_end,
        is_paused=policy.is_paused,
    )
