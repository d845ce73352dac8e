# SPDX-License-Identifier: Apache-2.0
"""Planned refusals by the names that a test uses: the methods of a call, and the status of a reason."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any import pack
from google.protobuf.duration import from_milliseconds
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from reput.common.v1.error_reason_pb2 import ErrorReason

from libs.runtime.http2.calling.outcome import USER_AGENT
from libs.runtime.rpc import planned
from libs.runtime.rpc.errors import BASE_TABLE, DOMAIN
from libs.runtime.trust.roles import ROLES, Role
from services.commitlog.rpc.error_table import ERROR_TABLE as OF_COMMITLOG
from services.delivery.rpc.error_table import ERROR_TABLE as OF_DELIVERY
from services.indexer.rpc.error_table import ERROR_TABLE as OF_INDEXER
from services.janitor.rpc.error_table import ERROR_TABLE as OF_JANITOR

CODES: Mapping[str, grpc.StatusCode] = {
    row.reason: row.code
    for table in (BASE_TABLE, OF_COMMITLOG, OF_INDEXER, OF_DELIVERY, OF_JANITOR)
    for row in table.values()
}
"""The code of each reason with which a store refuses calls."""

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass
class Refusal:
    """A status for the next `times` calls of some methods, together."""

    methods: tuple[str, ...]
    status: Status
    times: int

    def decide(self, context: Any) -> Status | None:
        """Return the status if a client's call is to be refused, None for a call of a service."""
        said = dict(context.invocation_metadata() or ())
        if str(said.get("user-agent", "")).startswith(USER_AGENT.decode()):
            return None
        self.times -= 1
        if self.times <= 0:
            for method in self.methods:
                planned.forget(method)
        return self.status


def methods_of(call: str) -> tuple[str, ...]:
    """Return the methods of a call: `append`, `query_by_key`, `QueryByKey` or `QueryService/QueryByKey`."""
    of_clients = [path.removeprefix("/") for path, role in ROLES.items() if role is not Role.SERVICE]
    words: dict[str, list[str]] = {}
    for path in of_clients:
        service, _, method = path.partition("/")
        snake = _CAPITAL.sub("_", method).lower()
        for word in (snake, method, f"{service.rpartition('.')[2]}/{method}"):
            words.setdefault(word, []).append(path)
    words["append"] = [path for path in of_clients if path.endswith(("/Append", "/AppendStream"))]
    if call not in words:
        known = ", ".join(sorted(word for word in words if word.islower()))
        raise ValueError(f"call {call!r} is unknown; known are {known}")
    return tuple(words[call])


def refusal(
    call: str,
    reason: str,
    *,
    code: str,
    times: int,
    message: str,
    retry_after_ms: int | None,
    metadata: Mapping[str, str],
) -> Refusal:
    """Return the refusal with this reason or code. Raises ValueError for a value that no store could answer."""
    if not reason and not code:
        raise ValueError("fail_next needs a reason, such as STORE_FULL, or a code, such as UNAVAILABLE")
    if reason and f"ERROR_REASON_{reason}" not in ErrorReason.keys():  # noqa: SIM118 - not a dict
        raise ValueError(f"reason {reason!r} is unknown; docs/errors.md has all")
    if code and code not in grpc.StatusCode.__members__:
        raise ValueError(f"code {code!r} is unknown; known are {', '.join(grpc.StatusCode.__members__)}")
    if times < 1:
        raise ValueError(f"times is {times}, expected 1 or more")
    chosen = grpc.StatusCode[code] if code else CODES.get(reason, grpc.StatusCode.INTERNAL)
    details: list[Message] = []
    if reason:
        details.append(ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata))
    if retry_after_ms is not None:
        details.append(RetryInfo(retry_delay=from_milliseconds(retry_after_ms)))
    if chosen is grpc.StatusCode.INVALID_ARGUMENT and (field := metadata.get("field")):
        details.append(BadRequest(field_violations=[BadRequest.FieldViolation(field=field, description=message)]))
    status = Status(code=chosen.value[0], message=message, details=[pack(detail) for detail in details])
    return Refusal(methods_of(call), status, times)


def plan(refused: Refusal) -> None:
    """Refuse the next calls. Callers: the thread of the services."""
    for method in refused.methods:
        planned.plan(method, refused.decide)


def forget_all() -> None:
    """Refuse nothing any more."""
    for path in ROLES:
        planned.forget(path.removeprefix("/"))
