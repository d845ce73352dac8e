# SPDX-License-Identifier: Apache-2.0
"""Why a message can't be recalled."""

import pytest

from libs.requests.errors import PeerError
from services.gateway.engine import recall
from services.gateway.rpc.statuses import status_of
from services.gateway.rpc.wire import messaging_pb2 as wire


@pytest.mark.parametrize(
    ("reason", "deliver_ms", "code"),
    [
        ("DELAYED_NOT_FOUND", 1_000, wire.CODE_ILLEGAL_DELIVERY_TIME),
        ("DELAYED_NOT_FOUND", 1_001, wire.CODE_MESSAGE_NOT_FOUND),
        ("DELAYED_TOO_LATE", 1_001, wire.CODE_ILLEGAL_DELIVERY_TIME),
    ],
)
def test_a_time_that_is_over_is_too_late(reason: str, deliver_ms: int, code: int) -> None:
    """A recall after the delivery time is too late, also of a message that never waited."""
    handle = recall.RecallHandle("t", "reput", deliver_ms, "id")
    error = recall.refused(handle, PeerError("delivery", reason, "no"), 1_000)
    assert status_of(error).code == code
