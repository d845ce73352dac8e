# SPDX-License-Identifier: Apache-2.0
"""RelayedCall: a call on its way to another server. It is a Call for its caller, and an OutgoingCall for the service.

Bytes, fields, credit, the end and the cancellation of both sides go on as they are.
Invariants: the caller gets one end; bytes are held in two flows, and only there. A call goes to another member only if
no handler has seen it or the member does not lead, and all bytes of its request are still here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import grpc

from libs.runtime.http2.calling.outcome import Outcome, is_last, refusal_of, timeout_field
from libs.runtime.http2.framing import PREFIX_SIZE_BYTES, CallRefused
from libs.runtime.http2.heads import Fields, Head, trailers
from libs.runtime.http2.relay.fields import ending_of, passed_on, status_of
from libs.runtime.http2.relay.flow import Flow
from libs.runtime.http2.relay.upstream import RelayHandler

if TYPE_CHECKING:
    import asyncio

KEPT_BYTES_MAX: Final = 256 << 10
"""Bytes of a request that are kept until the answer begins, so that another member can get them."""

UNWATCHED_BYTES_MAX: Final = 64 << 10
"""Bytes of an answer up to which nothing looks for their leaving: they are given back with the end of the call."""

REPEAT_COUNT_MAX: Final = 3
"""Repetitions of a call that no handler has seen, beside one for each further member."""

KNOWN_COUNT_MAX: Final = 64
"""Heads of a connection whose fields are kept."""

_OK: Final = b"0"


class Side(Protocol):
    """A connection of either side, as a relayed call uses it."""

    def acknowledge_bytes(self, stream_id: int, size_bytes: int) -> None:
        """Allow the sender to send `size_bytes` more bytes."""
        ...

    def pass_on(self, stream_id: int, data: bytes) -> None:
        """Send bytes as they are."""
        ...

    def tell_left(self, stream_id: int, told: Callable[[int], None]) -> None:
        """Call `told` after each write with the unsent bytes of a stream, until there are none."""
        ...


class CallerSide(Side, Protocol):
    """The connection of the caller."""

    peer: str
    relayed_fields: dict[Head, Fields]
    """The fields of heads that were passed on."""

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate, as gRPC has them."""
        ...

    def begin_with(self, call: RelayedCall, fields: Fields) -> None:
        """Send the head of the answer."""
        ...

    def finish(self, call: RelayedCall, fields: Fields) -> None:
        """End the call."""
        ...

    @property
    def header_size_bytes_max(self) -> int:
        """The size of the largest head that is passed on, as HTTP/2 counts it."""
        ...


class ServiceSide(Side, Protocol):
    """The connection to the service."""

    def close_half(self, stream_id: int) -> None:
        """End the request."""
        ...

    def give_up(self, stream_id: int) -> None:
        """Forget the call and notify the service."""
        ...

    def pass_on_last(self, stream_id: int, data: bytes) -> None:
        """Send the last bytes of the request as they are."""
        ...

    def forget(self, stream_id: int) -> None:
        """Forget the call, which the service has ended."""
        ...


class RelayedCall:
    """A call that is passed on. Callers: a single event loop."""

    __slots__ = (
        "_answers", "_asked_count", "_caller", "_connecting", "_handler", "_is_ended", "_is_whole", "_member",
        "_pieces", "_repeat_count", "_requests", "_service", "_service_id", "has_spoken", "head", "is_begun",
        "is_expired", "is_half_closed", "is_over", "stream_id", "tick", "timeout_s",
    )  # fmt: skip

    task: Final = None
    """It has no task: nothing of it runs by itself."""

    def __init__(
        self,
        caller: CallerSide,
        stream_id: int,
        head: Head,
        handler: RelayHandler,
        timeout_s: float | None,
        *,
        is_whole: bool,
    ) -> None:
        self._caller, self._handler, self._is_whole = caller, handler, is_whole
        self.stream_id, self.head, self.timeout_s = stream_id, head, timeout_s
        self._requests = Flow(handler.requests, caller, stream_id)
        self._answers: Flow | None = None
        self._service: ServiceSide | None = None
        self._service_id = self._member = 0
        self._pieces: list[bytes] | None = []
        """The bytes of the request. None once the call can't be repeated."""
        self._asked_count = self._repeat_count = 0
        self._connecting: asyncio.Task[None] | None = None
        self.has_spoken = self.is_begun = self.is_expired = self.is_half_closed = self.is_over = False
        self._is_ended = False
        """Whether its flows have ended."""
        self.tick: int | None = None
        handler.upstream.open_count += 1

    # Methods for the caller's connection

    def start(self) -> None:
        """Begin the call with the service."""
        self._asked_count += 1
        try:
            kept = self._kept_fields()
        except CallRefused as refusal:
            self._tell_end(Outcome(refusal.code, str(refusal), tuple(refusal.metadata)))
            return
        own = self._handler.own_fields(self._caller)
        self._member = self._handler.upstream.member
        self._handler.upstream.place(self, self.head.method.encode("latin-1"), (*kept, *own))

    def feed(self, data: bytes, *, is_last: bool) -> None:
        """Pass on bytes of the request."""
        self.has_spoken = True
        try:
            self._requests.hold(len(data))
        except CallRefused as refusal:
            self._refuse(refusal)
            return
        service = self._service
        if self._pieces is not None:
            self._pieces.append(data)
        if service is not None:
            service.pass_on(self._service_id, data)
            self._look_at_requests()
        if is_last:
            self.close_half()

    def take_whole(self, message: bytes) -> None:
        """Pass on the whole request. It is the only message, and its bytes are acknowledged already."""
        self.is_half_closed = self.has_spoken = True
        data = b"\0" + len(message).to_bytes(PREFIX_SIZE_BYTES - 1, "big") + message
        try:
            self._requests.hold_acknowledged(len(data))
        except CallRefused as refusal:
            self._refuse(refusal)
            return
        assert self._pieces is not None
        self._pieces.append(data)
        if self._service is not None:
            self._service.pass_on_last(self._service_id, data)
            self._look_at_requests()

    def close_half(self) -> None:
        """Pass on that the request has ended."""
        self.is_half_closed = self.has_spoken = True
        if self._service is not None:
            self._service.close_half(self._service_id)

    def expire(self) -> None:
        """End the call because its deadline has passed."""
        self.tick = None
        self.is_expired = True
        self._end_with(Outcome(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed"))

    def cancel(self) -> None:
        """End the call because this server stops."""
        self._end_with(Outcome(grpc.StatusCode.UNAVAILABLE, "the gateway stops"))

    @property
    def is_stream(self) -> bool:
        """Whether its request or its answer comes in parts."""
        return not self.is_over and (self.is_begun or not self.is_half_closed)

    def halt(self) -> None:
        """End the call with the service: the caller has its end."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._service is not None:
            self._service.give_up(self._service_id)

    def drop(self) -> None:
        """Release all that is held for the call: the caller is gone, or has the whole answer."""
        if not self.is_over:
            self.is_over = True
            self._count(b"1")
            self.halt()
        self._end_flows()

    # Methods for its link and its channel

    def wait_for(self, connecting: asyncio.Task[None]) -> None:
        """Set the task that begins the call. The task is cancelled when the call ends."""
        self._connecting = connecting

    def begin(self, service: ServiceSide, stream_id: int) -> None:
        """Set the connection to the service and the stream of the call there, and send what has arrived."""
        self._service, self._service_id = service, stream_id
        self._connecting = None
        self._answers = Flow(self._handler.answers, service, stream_id)
        pieces = self._pieces or ()
        if self.is_half_closed and len(pieces) == 1:
            service.pass_on_last(stream_id, pieces[0])
        else:
            for piece in pieces:
                service.pass_on(stream_id, piece)
            if self.is_half_closed:
                service.close_half(stream_id)
        self._look_at_requests()

    def done(self) -> bool:
        """Return whether it has ended."""
        return self.is_over

    def head_of_answer(self, fields: Fields) -> None:
        """Pass on the first header fields of the answer."""
        refusal = refusal_of(fields)
        if refusal is not None:
            self.halt()
            self.end(refusal)
        elif is_last(fields):
            self.finish(fields)
        else:
            self._forget_pieces()
            self._caller.begin_with(self, fields)

    def take(self, data: bytes) -> None:
        """Pass on bytes of the answer."""
        answers = self._answers
        assert answers is not None
        try:
            answers.hold(len(data))
        except CallRefused as refusal:
            self._refuse(refusal)
            return
        self._caller.pass_on(self.stream_id, data)
        if answers.total_bytes > UNWATCHED_BYTES_MAX:
            self._caller.tell_left(self.stream_id, answers.left)

    def finish(self, fields: Fields) -> None:
        """Pass on the end of the answer, unless another member gets the call."""
        if self.is_over:
            return
        code = status_of(fields)
        if code != _OK and self._goes_elsewhere(fields):
            self._again()
            return
        self._count(code)
        if not self.is_half_closed:
            self.halt()
        self._caller.finish(self, ending_of(fields))

    def refused(self, outcome: Outcome) -> None:
        """Begin the call again, because no handler has seen it. After the last repetition it ends with `outcome`."""
        if self._pieces is None or self.is_over or self._repeat_count == REPEAT_COUNT_MAX:
            self.end(outcome)
            return
        self._repeat_count += 1
        self._asked_count -= 1
        self._again()

    def end(self, outcome: Outcome) -> None:
        """End the call with an outcome that the service did not give."""
        if self.is_over:
            return
        upstream = self._handler.upstream
        was_begun = self._service is not None
        if outcome.code is grpc.StatusCode.UNAVAILABLE:
            upstream.leave(self._member, "")
            if not was_begun and self._asked_count < upstream.member_count:
                self._again()
                return
        self._tell_end(upstream.end_of(outcome, was_sent=was_begun))

    # Own parts

    def _kept_fields(self) -> Fields:
        """Return the caller's fields that go on. Raises CallRefused. Whole calls share heads, without grpc-timeout."""
        head, size_bytes_max = self.head, self._caller.header_size_bytes_max
        if not self._is_whole:
            return passed_on(head.fields, size_bytes_max=size_bytes_max)
        known = self._caller.relayed_fields
        kept = known.get(head)
        if kept is None:
            kept = passed_on(head.fields, size_bytes_max=size_bytes_max)
            if len(known) >= KNOWN_COUNT_MAX:
                known.clear()
            known[head] = kept
        return kept if self.timeout_s is None else (*kept, (b"grpc-timeout", timeout_field(self.timeout_s)))

    def _goes_elsewhere(self, fields: Fields) -> bool:
        """Return whether another member gets the call, which a member has refused. It gets later calls in any case."""
        upstream = self._handler.upstream
        if upstream.member_count == 1 or not upstream.leave(self._member, upstream.reason_of(fields)):
            return False
        return self._pieces is not None and self._asked_count < upstream.member_count

    def _again(self) -> None:
        if self._service is not None:
            self._service.forget(self._service_id)
        if self._answers is not None:
            self._answers.end()
        self._service = self._answers = None
        self.start()

    def _look_at_requests(self) -> None:
        """Give up the repetition of a large request, and let its bytes be given back as they leave."""
        if self._pieces is not None and self._requests.held_bytes > KEPT_BYTES_MAX:
            self._pieces = None
        if self._pieces is None and self._service is not None:
            self._service.tell_left(self._service_id, self._requests.left)

    def _forget_pieces(self) -> None:
        self._pieces = None
        if self._service is not None:
            self._service.tell_left(self._service_id, self._requests.left)

    def _end_with(self, outcome: Outcome) -> None:
        """End the call on both sides."""
        if not self.is_over:
            self.halt()
            self._tell_end(outcome)

    def _refuse(self, refusal: CallRefused) -> None:
        """End the call on both sides, because this server holds too many bytes."""
        self._handler.upstream.full_count += 1
        self._end_with(Outcome(refusal.code, str(refusal), tuple(refusal.metadata)))

    def _tell_end(self, outcome: Outcome) -> None:
        self._count(str(outcome.code.value[0]).encode())
        self._caller.finish(self, trailers(outcome.code, outcome.text, outcome.metadata))

    def _count(self, code: bytes) -> None:
        upstream = self._handler.upstream
        upstream.open_count -= 1
        upstream.ended[code] += 1

    def _end_flows(self) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        upstream = self._handler.upstream
        upstream.request_bytes += self._requests.total_bytes
        self._requests.end()
        if self._answers is not None:
            upstream.answer_bytes += self._answers.total_bytes
            self._answers.end()
        self._pieces = None
