# SPDX-License-Identifier: Apache-2.0
"""LoopChannel: calls to a server, over a single connection at a time. A call that needs a connection opens it.

It has the part of grpc.aio's channel that stubs use. During an attempt to connect, calls wait for its result. After a
failed attempt, calls fail at once until the next attempt is due. This time grows with each failure.
Callers: a single event loop.
"""

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterable, Callable, Iterable
from functools import partial, partialmethod
from typing import Any, Final

import grpc

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.calling.call import Method, OutgoingCall
from libs.runtime.http2.calling.link import Link
from libs.runtime.http2.calling.outcome import CANCELLED, Outcome, head_of
from libs.runtime.http2.endpoint import ARRIVING_BYTES_MAX, LEAVE_S
from libs.runtime.http2.heads import Fields
from libs.runtime.http2.relay.call import RelayedCall

CONNECT_S: Final = 20.0
"""Maximum time of an attempt to connect, including its handshake."""

RECONNECT_S_MIN: Final = 0.1
GROWTH: Final = 1.6
"""Factor by which each failure increases the time until the next attempt."""

SPREAD: Final = 0.2
"""Part of that time by which callers differ, so that they do not all connect at the same time."""

LOOK_S: Final = 0.005
LINK_COUNT_MAX: Final = 16
"""Links at once, of which calls begin on a single one. The others wait for the end of their calls."""


class LoopChannel:
    """A channel to `target`, which is host:port, or unix: and a path."""

    def __init__(
        self,
        target: str,
        *,
        context: ssl.SSLContext | None,
        reconnect_ms_max: int,
        answer_size_bytes_max: int,
        open_wire: Callable[[], h2.Wire] = h2.open_calling,
    ) -> None:
        self._target = target
        self._context, self._open_wire = context, open_wire
        self._reconnect_s_max = reconnect_ms_max / 1000
        self._answer_size_bytes_max = answer_size_bytes_max
        self._scheme = b"http" if context is None else b"https"
        self._authority = b"localhost" if target.startswith("unix:") else target.encode()
        self._arriving: memoryview | None = None
        self._link: Link | None = None
        self._links: set[Link] = set()
        """All open links. A link that takes no more calls stays until its calls have ended."""
        self._connecting: asyncio.Task[Link | None] | None = None
        self._failure = ""
        """Why the last attempt failed."""
        self._wait_s = 0.0
        self._retry_at_s = 0.0
        self._is_closed = False

    async def close(self, grace: float | None = None) -> None:  # noqa: ARG002 - grpc.aio's signature
        """End all calls and connections."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        for link in list(self._links):
            link.end_calls(CANCELLED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * LEAVE_S):
                while self._links:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(LOOK_S)

    def _callable(
        self,
        call: str,
        path: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool = False,
    ) -> Any:
        """Return a function that calls a method.

        It takes a request, or an iterator of several requests, and options. It returns an OutgoingCall. Without an
        iterator, the caller sends several requests with `write`.
        """
        method = Method(path.encode(), request_serializer, response_deserializer, self._answer_size_bytes_max)
        return partial(getattr(self, call), method)

    unary_unary = unary_stream = partialmethod(_callable, "_single")
    stream_unary = stream_stream = partialmethod(_callable, "_streamed")

    def _single(
        self, method: Method, request: Any, *, timeout: float | None = None, metadata: Iterable[Any] | None = None
    ) -> OutgoingCall:
        call = OutgoingCall(method)
        self._begin(call, method.path, timeout, metadata, call.serialized(request))
        return call

    def _streamed(
        self,
        method: Method,
        requests: AsyncIterable[Any] | None = None,
        *,
        timeout: float | None = None,
        metadata: Iterable[Any] | None = None,
    ) -> OutgoingCall:
        call = OutgoingCall(method)
        self._begin(call, method.path, timeout, metadata, None)
        if requests is not None:
            call.feed_from(requests)
        return call

    def _begin(
        self,
        call: OutgoingCall,
        path: bytes,
        timeout_s: float | None,
        metadata: Iterable[Any] | None,
        request: bytes | None,
    ) -> None:
        if self._is_closed:
            raise grpc.aio.UsageError("the channel is closed")
        head = head_of(path, self._authority, self._scheme, timeout_s, metadata or ())
        call.limit(timeout_s)
        if request is not None:
            call.allow_repeat(partial(self._place, call, head, request))
        self._place(call, head, request)

    def relay(self, call: RelayedCall, path: bytes, fields: Fields) -> None:
        """Begin a call that is passed on. An error becomes its end."""
        head = (
            (b":method", b"POST"),
            (b":scheme", self._scheme),
            (b":path", path),
            (b":authority", self._authority),
            *fields,
        )
        self._place(call, head, None)

    def _place(self, call: OutgoingCall | RelayedCall, head: Fields, request: bytes | None) -> None:
        """Begin a call on the connection, or after the connection is open."""
        if self._link is not None:
            self._link.begin(call, head, request)
        elif self._connecting is None and asyncio.get_running_loop().time() < self._retry_at_s:
            call.end(self._unreached())
        else:
            call.wait_for(asyncio.create_task(self._begin_later(call, head, request)))

    async def _begin_later(self, call: OutgoingCall | RelayedCall, head: Fields, request: bytes | None) -> None:
        """Begin a call when the connection is open."""
        link = self._link
        if link is None:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            connecting = self._connecting
            await asyncio.wait([connecting])
            link = None if connecting.cancelled() else connecting.result()
        if link is None:
            call.end(self._unreached())
        elif not call.done():
            link.begin(call, head, request)

    def _unreached(self) -> Outcome:
        return Outcome(grpc.StatusCode.UNAVAILABLE, f"{self._target} can't be reached: {self._failure}")

    async def _connect(self) -> Link | None:
        """Open a connection. Returns None after a failure, with the reason recorded."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                link = await self._dial(loop)
        except (OSError, TimeoutError) as error:  # errors of TLS are OSErrors, too
            self._failure = str(error) or f"no answer within {CONNECT_S:g} s"
            grown_s = max(RECONNECT_S_MIN, self._wait_s * GROWTH)
            self._wait_s = min(grown_s, self._reconnect_s_max)
            self._retry_at_s = loop.time() + self._wait_s * random.uniform(1 - SPREAD, 1 + SPREAD)  # noqa: S311
            return None
        else:
            self._wait_s = self._retry_at_s = 0.0
            if not link.is_leaving:
                self._link = link
            return link
        finally:
            self._connecting = None

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> Link:
        if self._arriving is None:
            self._arriving = memoryview(bytearray(ARRIVING_BYTES_MAX))
        make = partial(Link, self._arriving, self, self._open_wire)
        kind, _, path = self._target.partition(":")
        if kind == "unix":
            _, link = await loop.create_unix_connection(make, path.removeprefix("//"))
            return link
        host, _, port = self._target.rpartition(":")
        host = host.strip("[]")
        _, link = await loop.create_connection(make, host, int(port), ssl=self._context)
        return link

    # Methods for its connections: it is their Owner

    def made(self, link: Link) -> None:
        """Record an open link."""
        self._links.add(link)

    def left(self, link: Link) -> None:
        """Begin no more calls on a link."""
        if link is self._link:
            self._link = None

    @property
    def may_open_another(self) -> bool:
        """Whether there may be a further link."""
        return len(self._links) < LINK_COUNT_MAX

    def lost(self, link: Link) -> None:
        """Forget a closed link."""
        self._links.discard(link)
