# SPDX-License-Identifier: Apache-2.0
"""Each method of the protos has a rule, and docs/security.md lists the methods that are not for all clients."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from reput.commitlog.v1 import log_service_pb2

from libs.runtime.rpc import handlers as grpc_handlers
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.trust import roles
from libs.runtime.trust.roles import Role
from libs.runtime.trust.trail import TOLD
from libs.runtime.watch.telemetry import Telemetry
from tests.support.methods import path_of, proto_methods, without_rule

PAGE = (Path(__file__).resolve().parents[4] / "docs/security.md").read_text()
AUDIT = (Path(__file__).resolve().parents[4] / "docs/audit.md").read_text()


def test_every_method_has_a_rule() -> None:
    """A new RPC without a rule fails here, and could not be served."""
    assert sorted(roles.ROLES) == sorted(map(path_of, proto_methods()))


def test_the_page_lists_the_methods_of_services_and_operators() -> None:
    """docs/security.md names each method that needs a token of a service or an operator, and no other."""
    for role in (Role.SERVICE, Role.OPERATOR):
        (permissions,) = re.findall(rf"^\| {role.name.lower()} \| ([^|]*)", PAGE, re.MULTILINE)
        assert _names_in(permissions) == _names(path for path, needed in roles.ROLES.items() if needed is role)


def test_the_page_lists_the_logged_calls_of_clients() -> None:
    """docs/audit.md names each call of clients that is logged, and no other."""
    (calls,) = re.findall(r"these calls of clients: (.*)\.$", AUDIT, re.MULTILINE)
    assert _names_in(calls) == _names(path for path in TOLD if roles.ROLES[path] is Role.CLIENT)


def _names_in(text: str) -> list[str]:
    return sorted(re.findall(r"`(\w+)`", text))


def _names(paths: Iterable[str]) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in paths)


def test_a_method_without_a_rule_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method without a rule raises AssertionError when its service is set up."""
    log_service = without_rule(log_service_pb2.DESCRIPTOR.services_by_name["LogService"].methods_by_name["GetStatus"])
    rules = roles.rules_of(log_service)
    monkeypatch.setattr(grpc_handlers, "ROLES", {path: role for path, role in roles.ROLES.items() if path in rules})

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
            log_service,
            Servicer(),
            grpc_handlers.Surroundings(
                errors={},
                gate=Gate(),
                bounds=CallBounds(call_count_max=1, answer_bytes_max=1, unread_timeout_s=1),
                trusted_bounds=CallBounds(call_count_max=1, answer_bytes_max=1, unread_timeout_s=1),
                telemetry=Telemetry.off(),
            ),
        )
