# SPDX-License-Identifier: Apache-2.0
"""What `reput status` shows of a service."""

from reput.commitlog.v1 import log_service_pb2 as pb

from cli.commands.operate import RECOVERING_FIELDS, _known
from cli.output import plain


def test_a_log_that_recovers_shows_how_far_it_is() -> None:
    """Numbers that it does not know yet are left out instead of shown as zeros."""
    status = pb.GetStatusResponse(
        state=pb.LOG_STATE_RECOVERING, recovery_progress=pb.RecoveryProgress(scanned_bytes=5, target_bytes=9)
    )
    shown = _known(plain(status))
    assert tuple(shown) == RECOVERING_FIELDS
    assert shown["state"] == "RECOVERING"
    assert shown["recovery_progress"] == {
        "scanned_bytes": 5,
        "target_bytes": 9,
        "segment_number": 0,
        "segment_count": 0,
    }


def test_a_log_that_serves_shows_all() -> None:
    """Every field of the answer."""
    shown = _known(plain(pb.GetStatusResponse(state=pb.LOG_STATE_SERVING)))
    assert set(shown) == set(pb.GetStatusResponse.DESCRIPTOR.fields_by_name)
