# SPDX-License-Identifier: Apache-2.0
"""What a connection needs of its server."""

from typing import Any, Protocol

import grpc

from libs.runtime.http2.connections import Connections
from libs.runtime.http2.deadlines import Deadlines
from libs.runtime.http2.framing import CallRefused
from libs.runtime.http2.heads import Fields, Head
from libs.runtime.http2.session.plain import PlainSession
from libs.runtime.http2.turns import Turns


class Budget(Protocol):
    """Bytes that are held for callers."""

    charged_bytes: int

    @property
    def is_half_used(self) -> bool:
        """Whether callers should wait."""
        ...

    def charge(self, size_bytes: int) -> None:
        """Count bytes. Raises CallRefused."""
        ...

    def give_back(self, size_bytes: int) -> None:
        """Stop counting bytes."""
        ...


class Server(Protocol):
    """The part of a server that a connection needs."""

    connections: Connections
    deadlines: Deadlines
    incoming: Budget
    """Bytes of requests that no handler has taken yet, over all connections."""
    arriving: memoryview
    turns: Turns
    request_size_bytes_max: int
    call_count: int
    call_count_max: int
    """Maximum number of calls whose answers have not left, over all connections."""
    unknown_text: str
    """Text for a call of an unknown method."""

    def handler_of(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of a call. None for an unknown method."""
        ...

    def refusing(self, head: Head) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler that refuses a call of a known method. None for a call that is permitted."""
        ...

    def ending(self, refusal: CallRefused) -> Fields:
        """Return the end of a call that is refused before a handler sees it."""
        ...

    def open_session(self) -> PlainSession:
        """Return HTTP/2 for a connection."""
        ...
