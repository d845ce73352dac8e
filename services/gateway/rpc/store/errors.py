# SPDX-License-Identifier: Apache-2.0
"""Turns what the services behind the gateway refuse into PeerRefused, by the reason in its google.rpc.Status."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from libs.runtime.rpc.errors import describe, error_info
from services.gateway.errors import PeerRefused

LATE = grpc.StatusCode.DEADLINE_EXCEEDED


@contextmanager
def errors_of(service: str) -> Iterator[None]:
    """Turn what a call raises within the block."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        info, text = error_info(error), error.details() or describe(error)
        is_late, field = error.code() is LATE, info.metadata.get("field", "")
        raise PeerRefused(service, info.reason, text, is_late=is_late, field=field) from error


def error_of(service: str, status: Status) -> PeerRefused:
    """Return what a status within an answer says."""
    info = ErrorInfo()
    for detail in status.details:
        detail.Unpack(info)  # does nothing to a detail of another type
    return PeerRefused(service, info.reason or "INTERNAL", status.message)
