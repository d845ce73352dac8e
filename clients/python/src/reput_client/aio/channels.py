# SPDX-License-Identifier: Apache-2.0
"""AsyncChannels: connections to the services, and how a call runs over them with retries."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from reput.commitlog.v1.append_service_pb2 import AppendStreamResponse

from reput_client.aio.streams import next_in_time
from reput_client.core.call import Call
from reput_client.core.ends import end_of_call
from reput_client.core.errors import ReputError, from_rpc_error
from reput_client.core.options import SERVICES, Options
from reput_client.core.retry import Attempts, RetryPolicy
from reput_client.core.route import Route
from reput_client.core.telemetry.log import log

T = TypeVar("T")


class AsyncChannels:
    """The connections to the services, made at their first use, and the parts that every call shares."""

    def __init__(self, options: Options, retry: RetryPolicy) -> None:
        self.options, self.retry = options, retry
        self._credentials = options.credentials()
        self._routes = {name: Route(options.targets(name), name) for name in SERVICES}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._methods: dict[tuple[str, str, object], Any] = {}
        self.listeners: list[Callable[[str, ReputError], None]] = []
        """Functions that get the service and the error of each call or stream that failed."""

    async def run(self, call: Call[T], retry: RetryPolicy | None = None) -> T:
        """Run a call, with retries by `retry` until the time-out. None is the client's policy. Raises ReputError."""
        timeout_s = self.options.timeout_s if call.timeout_s is None else call.timeout_s
        end_s = end_of_call(timeout_s + call.extra_timeout_s)
        attempts = Attempts(retry or self.retry)
        while True:
            target = self.target(call.method.service)
            try:
                method = self._method(call, target, "unary_unary")
                timeout_s = end_s - time.monotonic()
                return call.convert(await method(call.request, timeout=timeout_s, metadata=self.options.metadata()))
            except grpc.RpcError as failure:
                await self._wait(call, target, attempts, failure, end_s)

    async def pages(self, request: Message, items: Callable[[Any], Iterable[T]]) -> AsyncIterator[T]:
        """Yield all items of a list. Fetches pages as needed. `items` reads the items of an answer."""
        page: Any = request
        while True:
            answer: Any = await self.run(Call(page))
            for item in items(answer):
                yield item
            page.page_token = answer.next_page_token
            if not page.page_token:
                return

    async def stream(self, call: Call[T], answer_timeout_s: float | None = None) -> AsyncIterator[T]:
        """Yield all answers of a call that streams them. Raises ReputError, also if an answer takes `answer_timeout_s`.

        Until the first answer arrives, the call is retried as in `run`. The whole stream has no time-out.
        """
        end_s = time.monotonic() + self.options.timeout_s
        attempts = Attempts(self.retry)
        while True:
            target = self.target(call.method.service)
            answers = self.open(call)
            try:
                while (answer := await next_in_time(answers, answer_timeout_s)) is not None:
                    end_s = 0.0
                    yield call.convert(answer)
            except grpc.RpcError as failure:
                await self._wait(call, target, attempts, failure, end_s)
            else:
                return
            finally:
                answers.cancel()

    def open(self, call: Call[Any]) -> Any:
        """Begin a call that streams its answers. Returns gRPC's own call, without retries and time-outs."""
        target = self.target(call.method.service)
        return self._method(call, target, "unary_stream")(call.request, metadata=self.options.metadata())

    def append_stream(self, *requests: Any) -> Any:
        """Open an AppendStream to the current target of appends. Its requests are bytes."""
        path = "/reput.commitlog.v1.AppendService/AppendStream"
        channel = self._channel(self.target("commitlog"))
        open_stream: Any = channel.stream_stream(path, None, AppendStreamResponse.FromString)
        return open_stream(*requests, metadata=self.options.metadata())

    def target(self, service: str) -> str:
        """Return the target of the next call to a service."""
        return self._routes[service].target

    def on_failure(self, service: str, target: str, error: ReputError) -> None:
        """Log the error of a call or of a stream, and change the target of the next call if the error asks for it."""
        log.info("%s at %s: %s", service, target, error)
        self._routes[service].on_failure(target, error)
        for listener in self.listeners:
            listener(service, error)

    async def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _wait(
        self, call: Call[Any], target: str, attempts: Attempts, failure: grpc.RpcError, end_s: float
    ) -> None:
        """Wait until the next attempt of a call, which must end by `end_s`. Raises ReputError if there is none."""
        service = call.method.service
        error = from_rpc_error(failure, service, target)
        self.on_failure(service, target, error)
        delay_s = attempts.delay_s(error, end_s - time.monotonic(), is_repeatable=call.is_repeatable)
        if delay_s is None:
            raise error from None
        await asyncio.sleep(delay_s)

    def _method(self, call: Call[Any], target: str, kind: str) -> Any:
        """Return the function that starts a call to a target of its service.

        `kind` is gRPC's name of the call's kind ("unary_unary", "unary_stream").
        """
        _, path, parse = call.method
        method = self._methods.get((target, path, parse))
        if method is None:
            make = getattr(self._channel(target), kind)
            serialize = type(call.request).SerializeToString
            method = make(f"/{path}", request_serializer=serialize, response_deserializer=parse)
            self._methods[target, path, parse] = method
        return method

    def _channel(self, target: str) -> grpc.aio.Channel:
        """Return the channel to a target."""
        channel: grpc.aio.Channel | None = self._channels.get(target)
        if channel is None:
            channel = self._channels.setdefault(target, self.options.channel(target, self._credentials, grpc.aio))
        return channel


class AsyncPart:
    """A part of a client: calls over its channels."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels
