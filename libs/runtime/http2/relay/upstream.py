# SPDX-License-Identifier: Apache-2.0
"""Upstream: a service behind this server, with one member or several of which one leads.

A call goes to the member that answered last. A member that does not lead has not executed a call, so the next member
gets it; after a member that did not answer, later calls go elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc

from libs.runtime.http2.heads import Fields

if TYPE_CHECKING:
    from libs.runtime.http2.calling.outcome import Outcome
    from libs.runtime.http2.relay.flow import Budget

ELSEWHERE: Final = frozenset({"NOT_LEADER", "RECOVERING", "STOPPING"})
"""Reasons of a member that does not lead: not at all, not yet, or not any more."""
SILENT: Final = frozenset({"", "DEPENDENCY_UNAVAILABLE"})
"""Reasons of a member that can't be reached, or that can't reach its own log."""


class Channel(Protocol):
    """A channel to a member."""

    def relay(self, call: Any, path: bytes, fields: Fields) -> None:
        """Begin a call that is passed on."""
        ...


class Upstream:
    """The members of a service. `name` is its name for callers, `reason_of` reads the reason of an answer's end.

    `unreached` returns the end of a call that reached no member, from a text.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        *,
        reason_of: Callable[[Fields], str],
        unreached: Callable[[str], Outcome],
    ) -> None:
        self.name = name
        self._channels = channels
        self.reason_of, self._unreached = reason_of, unreached
        self._at = 0
        self.ended: Counter[bytes] = Counter()
        """Calls that have ended, by their grpc-status."""
        self.open_count = self.request_bytes = self.answer_bytes = 0
        self.unreached_count = 0
        """Calls that reached no member."""
        self.full_count = 0
        """Calls that this server has refused or ended because a limit of calls or of held bytes was reached."""

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self._channels)

    @property
    def member(self) -> int:
        """The number of the member that gets calls now."""
        return self._at

    def place(self, call: Any, path: bytes, fields: Fields) -> None:
        """Begin a call with the member that gets calls now."""
        self._channels[self._at].relay(call, path, fields)

    def leave(self, member: int, reason: str) -> bool:
        """Choose the member of later calls. Returns whether the call that failed may be sent to it, too."""
        if reason in ELSEWHERE | SILENT and self._at == member:  # else another call has moved on already
            self._at = (self._at + 1) % len(self._channels)
        return reason in ELSEWHERE

    def end_of(self, outcome: Outcome, *, was_sent: bool) -> Outcome:
        """Return the end of a call for its caller, from an outcome that the service did not give."""
        text = f"{self.name}: {outcome.text}"
        if outcome.code is grpc.StatusCode.UNAVAILABLE and not was_sent:
            self.unreached_count += 1
            return self._unreached(text)
        return outcome._replace(text=text)


class RelayHandler(grpc.RpcMethodHandler):  # type: ignore[type-arg]
    """The handler of calls that are passed on. `own_fields` returns the fields that are added for a caller."""

    request_streaming = response_streaming = True
    request_deserializer = response_serializer = None
    unary_unary = unary_stream = stream_unary = stream_stream = None

    def __init__(
        self, upstream: Upstream, requests: Budget, answers: Budget, own_fields: Callable[[Any], Fields]
    ) -> None:
        self.upstream, self.requests, self.answers = upstream, requests, answers
        self.own_fields = own_fields
