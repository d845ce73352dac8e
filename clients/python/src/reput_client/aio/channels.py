# SPDX-License-Identifier: Apache-2.0
"""AsyncChannels: connections to the services, and how a call runs over them with retries."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from reput.commitlog.v1.append_service_pb2 import AppendStreamResponse

from reput_client.aio.streams import next_in_time
from reput_client.core.call import Call
from reput_client.core.errors import from_rpc_error
from reput_client.core.options import Options
from reput_client.core.retry import RetryPolicy

T = TypeVar("T")


class AsyncChannels:
    """The connections to the services, made when they are first used, and what every call shares."""

    def __init__(self, options: Options, retry: RetryPolicy) -> None:
        self.options, self.retry = options, retry
        self._metadata = options.metadata()
        self._credentials = options.credentials()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._methods: dict[tuple[str, object], Any] = {}

    async def run(self, call: Call[T]) -> T:
        """Run a call, with retries until the time-out. Raises ReputError."""
        method = self._method(call, "unary_unary")
        end_s = time.monotonic() + self.options.timeout_s + call.extra_timeout_s
        attempt = 0
        while True:
            try:
                timeout_s = end_s - time.monotonic()
                return call.convert(await method(call.request, timeout=timeout_s, metadata=self._metadata))
            except grpc.RpcError as failure:
                await self._wait(call, attempt, failure, end_s)
            attempt += 1

    async def pages(self, request: Message, items: Callable[[Any], Iterable[T]]) -> AsyncIterator[T]:
        """Yield all items of a list, page by page as they are asked for. `items` reads those of an answer."""
        page: Any = request
        while True:
            answer: Any = await self.run(Call(page))
            for item in items(answer):
                yield item
            page.page_token = answer.next_page_token
            if not page.page_token:
                return

    async def stream(self, call: Call[T], answer_timeout_s: float | None = None) -> AsyncIterator[T]:
        """Yield all answers of a call that streams them. Raises ReputError, also for one that takes `answer_timeout_s`.

        Until the first one is there the call is tried again as in `run`; the whole has no time-out.
        """
        end_s = time.monotonic() + self.options.timeout_s
        attempt = 0
        while True:
            answers = self.open(call)
            try:
                while (answer := await next_in_time(answers, answer_timeout_s)) is not None:
                    end_s = 0.0
                    yield call.convert(answer)
            except grpc.RpcError as failure:
                await self._wait(call, attempt, failure, end_s)
            else:
                return
            finally:
                answers.cancel()
            attempt += 1

    def open(self, call: Call[Any]) -> Any:
        """Begin a call that streams its answers. Returns gRPC's own call, without retries and time-outs."""
        return self._method(call, "unary_stream")(call.request, metadata=self._metadata)

    def append_stream(self) -> Callable[..., Any]:
        """Return what opens an AppendStream, given its requests as bytes."""
        path = "/reput.commitlog.v1.AppendService/AppendStream"
        open_stream: Any = self._channel("commitlog").stream_stream(path, None, AppendStreamResponse.FromString)
        return partial(open_stream, metadata=self._metadata)

    async def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _wait(self, call: Call[Any], attempt: int, failure: grpc.RpcError, end_s: float) -> None:
        """Wait until the next attempt at a call, which must end by `end_s`. Raises ReputError if there is none."""
        service = call.method.service
        error = from_rpc_error(failure, service, self.options.target(service))
        left_s = end_s - time.monotonic()
        delay_s = self.retry.delay_within_s(left_s, attempt, error, is_repeatable=call.is_repeatable)
        if delay_s is None:
            raise error from None
        await asyncio.sleep(delay_s)

    def _method(self, call: Call[Any], kind: str) -> Any:
        """Return what starts a call over the channel to its service. `kind` is gRPC's name of what streams."""
        service, path, parse = call.method
        method = self._methods.get((path, parse))
        if method is None:
            make = getattr(self._channel(service), kind)
            serialize = type(call.request).SerializeToString
            method = make(f"/{path}", request_serializer=serialize, response_deserializer=parse)
            self._methods[path, parse] = method
        return method

    def _channel(self, service: str) -> grpc.aio.Channel:
        """Return the channel to a service."""
        channel: grpc.aio.Channel | None = self._channels.get(service)
        if channel is None:
            made = self.options.channel(self.options.target(service), self._credentials, grpc.aio)
            channel = self._channels.setdefault(service, made)
        return channel
