# SPDX-License-Identifier: Apache-2.0
"""Sessions of both builds, with all that they say for the same bytes."""

from typing import Any

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.framing import CallRefused
from libs.runtime.http2.heads import HEAD, Fields, Head, HttpRefused
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.http2.session.opener import SessionLimits
from libs.runtime.http2.session.plain import PlainSession
from libs.runtime.http2.session.whole import WholeCall
from tests.support.session_builds import build_of

MESSAGE_BYTES_MAX = 100_000
BEGINNINGS = ("WholeCall", "RequestReceived")
UNARY = ("/s/Echo", "/s/Wait", "/s/Fail", "/s/Many")


def head_of(fields: Fields) -> Head | None:
    """Return the head of a unary call."""
    try:
        head = Head(fields)
        head.check()
    except (HttpRefused, CallRefused):
        return None
    return head if head.method in UNARY else None


def opened(name: str) -> PlainSession:
    """Return a new session of a build."""
    limits = ConnectionLimits(call_reset_count_max=50, call_resets_per_s_max=1, connection_call_count_max=100)
    return build_of(name)(SessionLimits(limits, MESSAGE_BYTES_MAX, head_of))


class Side:
    """A session, with all that it has said for each stream."""

    def __init__(self, name: str) -> None:
        self.session = opened(name)
        self.said: dict[int, list[Any]] = {}
        self.written = b""
        self.broken: type | None = None
        self.unacknowledged: dict[int, int] = {}

    def receive(self, data: bytes) -> list[Any]:
        """Pass bytes on. Returns the streams of new calls, with their kind."""
        return self._done(lambda: self.session.receive_data(data))

    def _done(self, act: Any) -> list[Any]:
        if self.broken is not None:
            return []
        try:
            act()
            found = self.session.events()
        except h2.WireError as error:
            self.broken = type(error)
            return []
        return [self._note(event) for event in found]

    def _note(self, event: Any) -> tuple[int, str]:
        kind = type(event).__name__
        said = self.said.setdefault(getattr(event, "stream_id", 0), [])
        match event:
            case WholeCall():
                said.append((kind, event.head.method, event.head.encoding, event.timeout_s, event.message))
                assert event.head.invocation_metadata is not None
            case h2.RequestReceived():
                said.append((kind, event.headers, event.end_stream))
            case h2.DataReceived():
                if said and said[-1][0] == kind:
                    said[-1] = (kind, said[-1][1] + event.data, event.end_stream)
                else:
                    said.append((kind, event.data, event.end_stream))
                self.unacknowledged[event.stream_id] = self.unacknowledged.get(event.stream_id, 0) + len(event.data)
            case h2.StreamReset():
                said.append((kind, event.error_code))
            case h2.TrailersReceived() | h2.ConnectionClosed():
                said.append((kind,))
            case h2.StreamClosed() if any(one[0] in BEGINNINGS for one in said):  # else its head was refused
                said.append((kind, event.error_code))
            case _:
                pass
        return getattr(event, "stream_id", 0), kind

    def act(self, what: str, stream_id: int, message: bytes) -> str:
        """Answer, reset or acknowledge. Returns the name of the error."""
        try:
            match what:
                case "answer":
                    self.session.answer(stream_id, message)
                case "count":
                    self.session.answer(stream_id, message, True)
                case "refuse":
                    self.session.send_response(stream_id, HEAD, end_stream=True)
                case "reset":
                    self.session.reset_stream(stream_id, 0)
                case "stream":
                    self.session.send_response(stream_id, HEAD)
                    self.session.send_message(stream_id, message)
                    self.session.send_message(stream_id, message)
                    self.session.send_trailers(stream_id, ((b"grpc-status", b"3"), (b"x", b"y")))
                case "notice":
                    self.session.send_shutdown_notice()
                case "goodbye":
                    self.session.send_goaway()
                case _:
                    size_bytes = self.unacknowledged.pop(stream_id, 0)
                    self.session.acknowledge_received_data(size_bytes, stream_id)
        except h2.StreamError:
            return "stream"
        except h2.WireError as error:
            return type(error).__name__
        return ""

    def send(self, amount: int) -> None:
        """Take the bytes that are ready."""

        def send() -> None:
            while parts := self.session.parts_to_send(amount):
                self.written += b"".join(bytes(part) for part in parts)

        self._done(send)

    @property
    def outcome(self) -> Any:
        """All that it has said."""
        return self.broken, {number: said for number, said in self.said.items() if said}
