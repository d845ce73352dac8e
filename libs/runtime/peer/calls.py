# SPDX-License-Identifier: Apache-2.0
"""PeerClient: calls of another service, with a deadline and a token. Their failures become errors of the caller.

A failed call raises PeerError. A caller's table has an error of its own for each reason that has a meaning for it. With
a table, every other failure is DependencyUnavailable.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from msgspec import Struct

from libs.requests.errors import DependencyUnavailable, PeerError
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.errors import STATUS_METADATA_KEY

R = TypeVar("R")

PeerErrors = Mapping[str, Callable[[PeerError], Exception]]
"""The errors of a caller, by reason. The reason of a peer that has not answered is "" or a reason of its own."""


class PeerClient(Struct, frozen=True):
    """The calls of a service over a connection. `service` is its name in errors."""

    service: str
    connection: Connection
    errors: PeerErrors | None = None
    """The table. Without a table calls raise PeerError."""

    async def call(self, method: Callable[..., Awaitable[R]], request: object, *, wait_s: float = 0.0) -> R:
        """Call a method of a stub. The peer may wait for `wait_s` before its answer: the deadline is later by that."""
        timeout_s, metadata = self.connection.timeout_s + wait_s, self.connection.metadata()
        with peer_errors(self.service, self.errors):
            return await method(request, timeout=timeout_s, metadata=metadata)

    async def pages(self, method: Callable[..., Awaitable[R]], request: Any) -> AsyncGenerator[R, None]:
        """Yield all pages of a list, each by a call. The page token of the request is set."""
        while True:
            page: Any = await self.call(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


@contextmanager
def peer_errors(service: str, errors: PeerErrors | None = None) -> Iterator[None]:
    """Turn gRPC's error of a call within the block into PeerError, or into the error of a table."""
    with by_reason(errors):
        try:
            yield
        except grpc.aio.AioRpcError as error:
            info = error_info(error)
            raise PeerError(service, info.reason, error.details() or "", error.code().name, **info.metadata) from error


@contextmanager
def by_reason(errors: PeerErrors | None) -> Iterator[None]:
    """Turn PeerError within the block into the error of a table, if there is a table."""
    try:
        yield
    except PeerError as error:
        if errors is None:
            raise
        raise errors.get(error.reason, DependencyUnavailable.of)(error) from error


def error_within(service: str, status: Status) -> PeerError:
    """Return the error of a status within an answer."""
    info = _info(status)
    return PeerError(service, info.reason or "INTERNAL", status.message, **info.metadata)


def error_info(error: grpc.aio.AioRpcError) -> ErrorInfo:
    """Return the ErrorInfo of a failed call. It is empty if the call has none."""
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_METADATA_KEY and isinstance(value, bytes):
            try:
                return _info(Status.FromString(value))
            except DecodeError:
                continue
    return ErrorInfo()


def _info(status: Status) -> ErrorInfo:
    info = ErrorInfo()
    for detail in status.details:
        detail.Unpack(info)  # has no effect for a detail of another type
    return info


def describe(error: grpc.aio.AioRpcError) -> str:
    """Return the code and text of a failed call, as a part of a line."""
    return f"{error.code().name}: {error.details()}"
