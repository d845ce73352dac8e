# SPDX-License-Identifier: Apache-2.0
"""Statuses: an error becomes a status in the answer of a call that is itself OK for gRPC."""

import logging
from collections.abc import Mapping

from libs.requests.errors import PeerError, ServiceError
from libs.runtime.rpc.errors import refusals
from services.gateway.errors import Refused
from services.gateway.rpc.wire import messaging_pb2 as wire

OK = wire.Status(code=wire.CODE_OK, message="OK")

CODES: Mapping[str, str] = {
    "BAD_ARGUMENT": "BAD_REQUEST",
    "BAD_PROPERTIES": "ILLEGAL_MESSAGE_PROPERTY_KEY",
    "BAD_TOPIC_NAME": "ILLEGAL_TOPIC",
    "BATCH_TOO_LARGE": "MESSAGE_BODY_TOO_LARGE",
    "DELAYED_NOT_FOUND": "MESSAGE_NOT_FOUND",
    "DELAYED_TOO_LATE": "ILLEGAL_DELIVERY_TIME",
    "DELAY_NOT_SUPPORTED": "ILLEGAL_DELIVERY_TIME",
    "DEPENDENCY_UNAVAILABLE": "HA_NOT_AVAILABLE",
    "GROUP_NOT_FOUND": "CONSUMER_GROUP_NOT_FOUND",
    "HANDLE_OUTDATED": "INVALID_RECEIPT_HANDLE",
    "LEASE_OVER": "HA_NOT_AVAILABLE",
    "MESSAGE_TOO_LARGE": "MESSAGE_BODY_TOO_LARGE",
    "NOT_DURABLE_YET": "SLAVE_PERSISTENCE_TIMEOUT",
    "NOT_ENOUGH_REPLICAS": "HA_NOT_AVAILABLE",
    "NOT_LEADER": "HA_NOT_AVAILABLE",
    "PROPERTIES_TOO_LARGE": "MESSAGE_PROPERTIES_TOO_LARGE",
    "QUEUE_OFFSETS_UNKNOWN": "HA_NOT_AVAILABLE",
    "RECOVERING": "HA_NOT_AVAILABLE",
    "REQUEST_TOO_LARGE": "BAD_REQUEST",
    "STOPPING": "HA_NOT_AVAILABLE",
    "STORE_FULL": "TOO_MANY_REQUESTS",
    "STORE_REPLACED": "HA_NOT_AVAILABLE",
    "STORE_SEALED": "HA_NOT_AVAILABLE",
    "TOPIC_FORBIDDEN": "FORBIDDEN",
    "TOPIC_NOT_FOUND": "TOPIC_NOT_FOUND",
    "TOPIC_SET_APART": "ILLEGAL_TOPIC",
    "TRANSACTION_ENDED": "INVALID_TRANSACTION_ID",
    "TRANSACTION_NOT_FOUND": "INVALID_TRANSACTION_ID",
    "TRANSACTION_REFUSED": "BAD_REQUEST",
    "WINDOW_FULL": "TOO_MANY_REQUESTS",
    "": "HA_NOT_AVAILABLE",
}
"""Codes for refusals of the services behind the gateway, by reason. A reason that is missing here is Reput's bug."""

OF_FIELDS: Mapping[str, str] = {
    "group": "ILLEGAL_CONSUMER_GROUP",
    "tag_expression": "ILLEGAL_FILTER_EXPRESSION",
    "where": "ILLEGAL_FILTER_EXPRESSION",
}
"""Codes for refusals with the reason BAD_ARGUMENT, by the field at fault."""
PASSING = "HA_NOT_AVAILABLE"
LATE = "DEADLINE_EXCEEDED"

_log = logging.getLogger(__name__)


def status(code: str, text: str) -> wire.Status:
    """Return a status by the name of its code, without the prefix of the name."""
    return wire.Status(code=wire.Code.Value(f"CODE_{code}"), message=text)


def status_of(error: ServiceError) -> wire.Status:
    """Return the status of an error, and count it."""
    code = _code_of(error)
    reason = error.reason if isinstance(error, Refused | PeerError) else ""
    is_known = isinstance(error, Refused) or reason in CODES
    refusals[code, reason if reason and is_known else code] += 1
    return status(code, str(error))


def _code_of(error: ServiceError) -> str:
    if isinstance(error, Refused):
        return error.code
    assert isinstance(error, PeerError)
    if error.code == LATE:
        return "PROXY_TIMEOUT"
    code = OF_FIELDS.get(error.metadata["field"]) if error.reason == "BAD_ARGUMENT" else None
    code = code or CODES.get(error.reason)
    if code is None:
        _log.error("a service has refused what a gateway should not ask for: %s: %s", error.reason, error)
        return "INTERNAL_SERVER_ERROR"
    return code


def is_passing(error: ServiceError) -> bool:
    """Return whether a retry may succeed later: a service is unreachable or late, or is about to serve."""
    return isinstance(error, PeerError) and (error.code == LATE or CODES.get(error.reason) == PASSING)
