# SPDX-License-Identifier: Apache-2.0
"""Turns refusals of the services behind the gateway into PeerRefused, by the reason in the google.rpc.Status."""

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
    """Turn gRPC's error of a call within the block into PeerRefused."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        info, text = error_info(error), error.details() or describe(error)
        is_late, field = error.code() is LATE, info.metadata.get("field", "")
        raise PeerRefused(service, info.reason, text, is_late=is_late, field=field) from error


def error_of(service: str, status: Status) -> PeerRefused:
    """Return the error of a status within an answer."""
    info = ErrorInfo()
    for detail in status.details:
        detail.Unpack(info)  # has no effect on a detail of another type
    return PeerRefused(service, info.reason or "INTERNAL", status.message)
