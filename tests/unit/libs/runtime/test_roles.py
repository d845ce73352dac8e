# SPDX-License-Identifier: Apache-2.0
"""The table of roles has each method of the protos, and no other."""

import pytest
from reput.commitlog.v1 import log_service_pb2

from libs.runtime.rpc import handlers as grpc_handlers
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.telemetry import Telemetry
from libs.runtime.trust import roles
from tests.support.methods import path_of, proto_methods


def test_every_method_has_a_rule() -> None:
    """A new RPC without a rule fails here, and could not be served."""
    assert sorted(roles.ROLES) == sorted(map(path_of, proto_methods()))


def test_a_method_without_a_rule_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method without a rule raises AssertionError when its service is set up."""
    path = "/reput.commitlog.v1.LogService/GetStatus"
    monkeypatch.setattr(
        grpc_handlers, "ROLES", {method: role for method, role in roles.ROLES.items() if method != path}
    )

    class Servicer:
        """A servicer with a single method."""

        async def GetStatus(self, request: object, context: object) -> bytes:  # noqa: N802
            """Never called."""
            raise NotImplementedError

    class Gate:
        """An open gate."""

        is_ready, is_stopping = True, False

    with pytest.raises(AssertionError, match=r"no rule for \{'GetStatus'\}"):
        grpc_handlers.service_handler(
            log_service_pb2.DESCRIPTOR.services_by_name["LogService"],
            Servicer(),
            grpc_handlers.Surroundings(
                errors={},
                gate=Gate(),
                bounds=CallBounds(call_count_max=1, answer_bytes_max=1, unread_timeout_s=1),
                trusted_bounds=CallBounds(call_count_max=1, answer_bytes_max=1, unread_timeout_s=1),
                telemetry=Telemetry.off(),
            ),
        )
