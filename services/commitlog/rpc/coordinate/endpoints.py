# SPDX-License-Identifier: Apache-2.0
"""Endpoints: a client of all members of etcd, called with the paths of etcd's methods.

Invariants: calls use the member that answered last, until it fails. A request that may have been carried out is sent
again only if it is repeatable. A token is requested at the first call that needs it, and again when etcd no longer
knows it.
Each call requires a member that knows a leader, so a member that is cut off from the others refuses at once.
Callers: a single event loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import grpc
from google.protobuf.message import Message
from msgspec import Struct

from libs.runtime.errors import ConfigError
from libs.runtime.peer.calls import describe
from libs.runtime.peer.connection import RECONNECT_MS_MIN, RenewedChannel
from libs.runtime.trust.tokens import read_file
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable
from services.commitlog.rpc.coordinate import etcd_pb2 as pb
from services.commitlog.rpc.coordinate.record import Refused
from services.commitlog.rpc.coordinate.settings import EtcdConfig

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

RECONNECT_MS_MAX = 1_000
"""Longest wait before another attempt to reach a member."""

CONNECT_MS_MAX = 3_000
"""Longest attempt. An attempt that begins while packets are lost would otherwise last for 20 s."""

_REFUSALS = frozenset({
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
})  # fmt: skip
"""Codes of requests that were not carried out."""

_TOKEN_WANTED = ("user name is empty", "revision of auth store is old")
"""Texts of etcd's errors, in addition to UNAUTHENTICATED, after which a new token helps."""

_NOT_ASKED_FOR = "authentication is not enabled"


class Method(Struct, Generic[Q, A], frozen=True):
    """A method of etcd with a single request and a single answer."""

    path: str
    answer: type[A]

    def on(self, channel: grpc.aio.Channel) -> Any:
        """Return a callable for the method over a channel."""
        return channel.unary_unary(
            self.path, request_serializer=_serialize, response_deserializer=self.answer.FromString
        )


AUTHENTICATE: Method[pb.AuthenticateRequest, pb.AuthenticateResponse] = Method(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateResponse
)
WATCH_PATH = "/etcdserverpb.Watch/Watch"


def connect(config: EtcdConfig, target: str) -> grpc.aio.Channel:
    """Return a channel to a member. Nothing is sent before the first call. Raises ConfigError."""
    options = [
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
        ("grpc.min_reconnect_backoff_ms", CONNECT_MS_MAX),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
        ("grpc.enable_http_proxy", 0),  # as between services of one store
    ]
    if config.tls_ca_file is None:
        return grpc.aio.insecure_channel(target, options=options)
    settings = ("tls_ca_file", "tls_key_file", "tls_certificate_file")
    files: dict[str, Path | None] = {name: getattr(config, name) for name in settings}

    def make() -> grpc.aio.Channel:
        pems = [None if file is None else read_file(f"etcd_{name}", file) for name, file in files.items()]
        return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(*pems), options=options)

    return cast("grpc.aio.Channel", RenewedChannel(make, [file for file in files.values() if file is not None]))


Connect = Callable[[EtcdConfig, str], grpc.aio.Channel]


class Endpoints:
    """The client of the members, in the order of the settings. Raises ConfigError for a file that can't be read."""

    __slots__ = ("_calls", "_channels", "_config", "_current", "_members", "_timeout_s", "_token")

    def __init__(self, config: EtcdConfig, connect: Connect = connect) -> None:
        assert config.members, "etcd is used, and has no address"
        self._config = config
        self._members = config.members
        self._timeout_s = config.timeout_ms / 1000
        self._read_password()
        self._channels = [connect(config, member) for member in config.members]
        self._calls: dict[tuple[int, str], Any] = {}
        self._current = 0
        self._token: str | None = None

    def end_s(self) -> float:
        """Return the deadline, by the loop's clock, of a call that begins now."""
        return asyncio.get_running_loop().time() + self._timeout_s

    async def ask(self, method: Method[Q, A], request: Q, end_s: float, *, is_repeatable: bool = True) -> A:
        """Return an answer. Raises Refused, or CoordinatorUnavailable if the request may have been carried out.

        After an unreachable member the client uses the next member, within this call if the request is repeatable.
        """
        attempt_count = len(self._members) if is_repeatable else 1
        for attempt in range(1, attempt_count + 1):
            index = self._current
            with self._errors(index):
                try:
                    return cast("A", await self._ask(index, method, request, end_s))
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE or attempt == attempt_count:
                        raise
                    self._leave(index)
        raise AssertionError("the last attempt returns or raises")

    async def watch(self, create: pb.WatchCreateRequest) -> AsyncGenerator[pb.WatchResponse, None]:
        """Yield the answers of a stream, also answers without events. It ends only with CoordinatorUnavailable.

        The client asks the member for progress twice in `timeout_ms`, and leaves it after 1.5 `timeout_ms` of silence.
        """
        index = self._current

        async def requests() -> AsyncIterator[pb.WatchRequest]:
            yield pb.WatchRequest(create_request=create)
            while True:
                await asyncio.sleep(self._timeout_s / 2)
                yield pb.WatchRequest(progress_request=pb.WatchProgressRequest())

        with self._errors(index):
            metadata = await self._metadata(index, self.end_s())
            method = self._channels[index].stream_stream(
                WATCH_PATH, request_serializer=_serialize, response_deserializer=pb.WatchResponse.FromString
            )
            call = method(requests(), metadata=metadata)
        try:
            while True:
                with self._errors(index):
                    response = await self._read(index, call)
                yield response
        finally:
            call.cancel()

    async def close(self) -> None:
        """End all calls and connections."""
        for channel in self._channels:
            await channel.close()

    async def _read(self, index: int, call: Any) -> pb.WatchResponse:
        try:
            async with asyncio.timeout(1.5 * self._timeout_s):
                response = await call.read()
        except TimeoutError:
            self._leave(index)
            raise CoordinatorUnavailable(f"{self._members[index]}: the watch is silent") from None
        if response is grpc.aio.EOF:
            raise CoordinatorUnavailable(f"{self._members[index]}: the watch has ended")
        if response.canceled:
            self._token = None  # a cancelled watch may also mean an expired token
            reason = response.cancel_reason or f"revision {response.compact_revision} is the first one that is kept"
            raise CoordinatorUnavailable(f"{self._members[index]}: the watch was canceled: {reason}")
        return cast("pb.WatchResponse", response)

    async def _ask(self, index: int, method: Method[Any, Any], request: Message, end_s: float) -> Any:
        metadata = await self._metadata(index, end_s)
        try:
            return await self._call(index, method, request, end_s, metadata)
        except grpc.aio.AioRpcError as error:
            if not self._config.user or not _wants_token(error):
                raise
        self._token = None
        return await self._call(index, method, request, end_s, await self._metadata(index, end_s))

    async def _metadata(self, index: int, end_s: float) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call, with a token if there is a user."""
        needed = (("hasleader", "true"),)
        if self._config.user and self._token is None:
            request = pb.AuthenticateRequest(name=self._config.user, password=self._read_password())
            try:
                self._token = (await self._call(index, AUTHENTICATE, request, end_s, needed)).token
            except grpc.aio.AioRpcError as error:
                if _NOT_ASKED_FOR not in (error.details() or ""):
                    raise
                self._token = ""
        return (*needed, ("token", self._token)) if self._token else needed

    def _call(self, index: int, method: Method[Any, Any], request: Message, end_s: float, metadata: Any) -> Any:
        key = index, method.path
        if key not in self._calls:
            self._calls[key] = method.on(self._channels[index])
        left_s = max(0.001, end_s - asyncio.get_running_loop().time())
        return self._calls[key](request, timeout=left_s, metadata=metadata)

    def _read_password(self) -> str:
        """Return the current password from the file. Raises ConfigError."""
        if self._config.password_file is None:
            return ""
        try:
            return read_file("etcd_password_file", self._config.password_file).decode().rstrip()
        except UnicodeDecodeError as error:
            raise ConfigError(f"etcd_password_file: {self._config.password_file}: not UTF-8") from error

    def _leave(self, index: int) -> None:
        """Use the next member from now on, unless another call has already switched."""
        if self._current == index:
            self._current = (index + 1) % len(self._members)

    @contextlib.contextmanager
    def _errors(self, index: int) -> Iterator[None]:
        """Convert the errors of calls to a member within the block to the errors of this module."""
        member = self._members[index]
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                self._leave(index)
            kind = Refused if error.code() in _REFUSALS else CoordinatorUnavailable
            raise kind(f"{member}: {describe(error)}") from error
        except ConfigError as error:  # a file that was there at the start
            raise Refused(str(error)) from error
        except grpc.aio.UsageError as error:
            raise CoordinatorUnavailable(f"{member}: the connection is closed") from error
        except asyncio.CancelledError:
            # gRPC raises it, too, in calls over a channel that is closed, as when a certificate is replaced
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise CoordinatorUnavailable(f"{member}: the connection is closed") from None


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _wants_token(error: grpc.aio.AioRpcError) -> bool:
    text = error.details() or ""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or any(part in text for part in _TOKEN_WANTED)
