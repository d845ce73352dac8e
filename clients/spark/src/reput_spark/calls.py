# SPDX-License-Identifier: Apache-2.0
"""Calls to the Indexer: channels, credentials, retries.

Invariant: no channel is made before the first call of a process, and none crosses a fork or a pickle: they are kept per
process and options, because Spark's Python workers live on from task to task.
Only protobuf messages of `reput-protos` are used, not its gRPC stubs, which would tie grpcio to a newer version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reput_spark.errors import BadOption, CallFailed

if TYPE_CHECKING:
    import grpc
    from google.rpc.error_details_pb2 import ErrorInfo

    from reput_spark.values import CallOptions

SCAN_SERVICE = "/reput.indexer.v1.ScanService/"
QUEUE_SERVICE = "/reput.indexer.v1.QueueService/"

MESSAGE_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""Largest answer that is accepted: a frame that the server could not cut any smaller."""

RETRY_INTERVAL_MS_MAX = 30_000

RETRY_REASONS = {"OFFSET_BEYOND_END", "WINDOW_FULL"}
"""Refusals that pass: an Indexer that was restarted indexes again what the plan had seen; a busy one becomes free."""

T = TypeVar("T")
channels: dict[tuple[object, ...], grpc.Channel] = {}
"""Open channels of this process."""


def unary(options: CallOptions, method: str, request: Any, response_type: type[T]) -> T:
    """Calls a unary method, with retries while the Indexer can't be reached. Raises CallFailed."""
    attempts = Attempts(options, method)
    while True:
        try:
            call = attempts.channel().unary_unary(
                method, request_serializer=type(request).SerializeToString, response_deserializer=parser(response_type)
            )
            response: T = call(request, timeout=options.rpc_timeout_ms / 1000, metadata=metadata(options))
        except attempts.errors as error:
            attempts.failed(error)
        else:
            return response


def stream(options: CallOptions, endpoint: str, method: str, request: Any, parse: Callable[[bytes], T]) -> Iterator[T]:
    """Calls a method that answers with a stream, and parses each answer.

    Raises grpc.RpcError, also when one answer takes longer than the option rpcTimeoutMs (with code CANCELLED): the
    stream as a whole has no deadline, because a slow reader holds it back.
    """
    open_stream = channel_to(options, endpoint).unary_stream(
        method, request_serializer=type(request).SerializeToString, response_deserializer=parse
    )
    call = open_stream(request, metadata=metadata(options))
    try:
        while True:
            response: T | None = next_in_time(call, options.rpc_timeout_ms / 1000)
            if response is None:
                return
            yield response
    finally:
        call.cancel()


def next_in_time(call: Any, timeout_s: float) -> Any:
    """The next answer of a stream, None at its end; cancels the call when it takes longer than `timeout_s`."""
    import threading

    timer = threading.Timer(timeout_s, call.cancel)
    timer.daemon = True
    timer.start()
    try:
        return next(call, None)
    finally:
        timer.cancel()


class Attempts:
    """One call with its retries: which endpoint is next, how long to wait, when to give up."""

    def __init__(self, options: CallOptions, method: str, sleep: Callable[[float], None] = time.sleep) -> None:
        import grpc

        self.errors: type[Exception] = grpc.RpcError
        self.retry_codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
        self.options, self.method, self.sleep = options, method, sleep
        self.failure_count = 0
        self.endpoint_index = 0

    @property
    def endpoint(self) -> str:
        """Address of the next attempt."""
        return self.options.endpoints[self.endpoint_index % len(self.options.endpoints)]

    def channel(self) -> grpc.Channel:
        """Channel of the next attempt."""
        return channel_to(self.options, self.endpoint)

    def progressed(self) -> None:
        """An answer came: failures before it don't count any more."""
        self.failure_count = 0

    def failed(self, error: Any) -> None:
        """Waits before the next attempt after a failed call, or raises CallFailed if there is none."""
        is_passing = error.code() in self.retry_codes or error_info(error).reason in RETRY_REASONS
        self.again(error.code().name, error.details() or "", is_passing=is_passing)

    def again(self, code: str, details: str, *, is_passing: bool) -> None:
        """Waits before the next attempt, or raises CallFailed if there is none."""
        self.failure_count += 1
        if not is_passing or self.failure_count > self.options.retry_count_max:
            raise CallFailed(self.method, self.endpoint, code, details) from None
        self.endpoint_index += 1
        wait_ms = self.options.retry_interval_ms * 2 ** (self.failure_count - 1)
        self.sleep(min(wait_ms, RETRY_INTERVAL_MS_MAX) / 1000)


def error_info(error: Any) -> ErrorInfo:
    """The reason that the server gave for a failure, as in reput/common/v1/error_reason.proto; an empty one if none."""
    from google.rpc import error_details_pb2, status_pb2

    info = error_details_pb2.ErrorInfo()
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                if detail.Unpack(info):
                    return info
    return info


def channel_to(options: CallOptions, endpoint: str) -> grpc.Channel:
    """The channel of this process to an endpoint."""
    import grpc

    files = tls_files(options)
    key = (os.getpid(), endpoint, *files)
    if key not in channels:
        settings = [
            ("grpc.max_receive_message_length", MESSAGE_SIZE_BYTES_MAX),
            # A server that was restarted is found again within a second or two, not after two minutes.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        if endpoint.startswith(("127.", "localhost:", "[::1]:")):
            settings.append(("grpc.enable_http_proxy", 0))  # `http_proxy` is for what is not on this machine
        if any(files):
            ca, cert, private_key = (Path(file).read_bytes() if file else None for file in files)
            credentials = grpc.ssl_channel_credentials(ca, private_key, cert)
            channels[key] = grpc.secure_channel(endpoint, credentials, settings)
        else:
            channels[key] = grpc.insecure_channel(endpoint, settings)
    return channels[key]


def tls_files(options: CallOptions) -> tuple[str, str, str]:
    """Paths of the CA's certificates, our certificate and its key; empty where not used."""
    environment = os.environ
    return (
        options.tls_ca_file or environment.get("REPUT_CLIENT_CA_FILE", ""),
        options.tls_cert_file or environment.get("REPUT_CLIENT_CERTIFICATE_FILE", ""),
        options.tls_key_file or environment.get("REPUT_CLIENT_KEY_FILE", ""),
    )


def metadata(options: CallOptions) -> tuple[tuple[str, str], ...]:
    """The credentials of a call: a bearer token from the environment or a file (its first line), read for each call."""
    file = options.auth_token_file or os.environ.get("REPUT_CLIENT_TOKEN_FILE", "")
    try:
        tokens = Path(file).read_text().split() if file else [os.environ.get("REPUT_CLIENT_TOKEN", "")]
    except OSError as error:
        raise BadOption("auth.token.file", str(error)) from error
    return (("authorization", f"Bearer {tokens[0]}"),) if tokens and tokens[0] else ()


def parser(message_type: Any) -> Callable[[bytes], Any]:
    """The parser of a protobuf message type."""
    parse: Callable[[bytes], Any] = message_type.FromString
    return parse
