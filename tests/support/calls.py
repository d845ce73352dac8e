# SPDX-License-Identifier: Apache-2.0
"""Calls between services in the same process: the servicers and the clients are real, and there is no socket."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.errors import STATUS_METADATA_KEY, ErrorTable, code_of, status_of
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_servicer import RAW_METHODS, AppendServicer
from services.commitlog.rpc.error_table import ERROR_TABLE
from services.commitlog.rpc.log_servicer import LogServicer
from services.commitlog.rpc.status import StatusServicer
from services.commitlog.rpc.topic_servicer import TopicServicer

PEER = "ipv4:10.1.2.3:4567"
LARGE = 1 << 30


class Context:
    """The context of a call, as far as servicers look at it."""

    def peer(self) -> str:
        """Return the caller's address."""
        return PEER

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that the caller sends with its request: the name of a client of the gateway."""
        return (("x-mq-client-id", "client"),)


class LocalChannel:
    """Calls methods of servicers. `serve` returns them by the names of their services, at each call."""

    def __init__(self, serve: Callable[[], Mapping[str, Any]], table: ErrorTable, raw: Sequence[str] = ()) -> None:
        self._serve, self._table, self._raw = serve, table, raw

    def unary_unary(self, path: str, *, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        """Return a function that calls a method. See grpc.aio.Channel."""
        _, service, method = path.split("/")

        async def call(request: Message, timeout: float | None = None, metadata: Any = ()) -> Any:  # noqa: ASYNC109
            del metadata
            try:
                async with asyncio.timeout(timeout):
                    servicer = self._found(service)
                    argument = request_serializer(request) if method in self._raw else request
                    answer = await getattr(servicer, method)(argument, Context())
                return response_deserializer(answer) if isinstance(answer, bytes) else answer
            except TimeoutError:
                raise failed(grpc.StatusCode.DEADLINE_EXCEEDED, "deadline exceeded") from None
            except grpc.aio.AioRpcError:
                raise
            except Exception as error:
                status = status_of(error, self._table)
                details = ((STATUS_METADATA_KEY, status.SerializeToString()),)
                raise failed(code_of(status), status.message, details) from error

        return call

    def _found(self, service: str) -> Any:
        servicer = self._serve().get(service)
        if servicer is None:
            raise failed(grpc.StatusCode.UNAVAILABLE, "nobody listens")
        return servicer

    unary_stream = stream_unary = stream_stream = unary_unary


def failed(code: grpc.StatusCode, text: str, details: Sequence[tuple[str, bytes]] = ()) -> grpc.aio.AioRpcError:
    """Return the error that a failed call raises."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*details), text)


def servicers_of(log: OpenLog, config: CommitLogConfig) -> dict[str, Any]:
    """Return the CommitLog's servicers for appends and topics."""
    append = AppendServicer(lambda: log, InflightBudget("streams", LARGE), InflightBudget("bytes", LARGE), config)
    topics = TopicServicer(lambda: log)
    return {"reput.commitlog.v1.AppendService": append, "reput.commitlog.v1.TopicService": topics}


def log_servicer_of(log: OpenLog, commit_log: Any = None) -> LogServicer:
    """Return the servicer for the records of a CommitLog."""
    streams = InflightBudget("streams", LARGE)
    return LogServicer(lambda: log, StatusServicer(commit_log), streams, streams)


def connection_to(
    serve: Callable[[], Mapping[str, Any]], timeout_s: float = 10.0, table: ErrorTable = ERROR_TABLE
) -> Connection:
    """Return a connection to the service with these servicers. The default table is the CommitLog's."""
    channel = LocalChannel(serve, table, RAW_METHODS if table is ERROR_TABLE else ())
    return Connection(cast("grpc.aio.Channel", channel), timeout_s, tuple)
