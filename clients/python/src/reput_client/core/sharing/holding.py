# SPDX-License-Identifier: Apache-2.0
"""The settings of a share consumer, the messages that it holds, and the leases to extend. No I/O."""

from collections.abc import Iterable
from dataclasses import dataclass

from reput_client.core.types import Message

INVISIBLE_S_MAX = 12 * 3600.0
POLL_S = 2.0
"""How long a call waits for a message, unless the program chooses. A close during such a call may take as long."""
WAIT_S_MAX = 30.0
"""Longest wait that the store takes."""
EXTENSIONS_PER_TIME = 3
"""Number of extensions per lease time: two of these calls may fail before the lease is over."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings of a share consumer. See `Client.share_consumer`."""

    group: str
    tags: str = "*"
    where: str = ""
    invisible_s: float | None = None
    hold_s_max: float = 3600.0
    poll_s: float = POLL_S

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for an invalid setting."""
        if not isinstance(self.group, str):
            raise TypeError(f"group is {self.group!r}: expected a str")
        if self.invisible_s is not None and not 0.001 <= self.invisible_s <= INVISIBLE_S_MAX:
            raise ValueError(f"invisible_s is {self.invisible_s}: expected 0.001 to {INVISIBLE_S_MAX:.0f} seconds")
        if self.hold_s_max < 0:
            raise ValueError(f"hold_s_max is {self.hold_s_max}: expected 0 seconds or more")
        if not 0.01 <= self.poll_s <= WAIT_S_MAX:
            raise ValueError(f"poll_s is {self.poll_s}: expected 0.01 to {WAIT_S_MAX:.0f} seconds")


@dataclass(frozen=True, slots=True)
class Received:
    """A message that this consumer holds until its lease is over. Settle it with the consumer that received it."""

    message: Message
    attempt: int
    """The number of deliveries of the message, with this delivery."""
    handle: str
    """The receipt handle: identifies this delivery."""


@dataclass(slots=True)
class _Held:
    """The times when a message was received and when its lease was last extended."""

    received_s: float
    extended_s: float


class HeldMessages:
    """Messages that are received and not settled. Used by several threads."""

    def __init__(self, hold_s_max: float) -> None:
        self._hold_s_max = hold_s_max
        self._held: dict[str, _Held] = {}

    @property
    def count(self) -> int:
        """The number of held messages."""
        return len(self._held)

    def add(self, received: Iterable[Received], now_s: float) -> None:
        """Hold received messages."""
        self._held.update({one.handle: _Held(now_s, now_s) for one in received})

    def drop(self, handles: Iterable[str]) -> None:
        """Stop holding messages."""
        for handle in handles:
            self._held.pop(handle, None)

    def has(self, received: Received) -> bool:
        """Return whether a message is held."""
        return received.handle in self._held

    def due(self, now_s: float, invisible_s: float) -> list[str]:
        """Return handles of messages whose lease must be extended. Messages that are held for too long are dropped."""
        late = [handle for handle, held in list(self._held.items()) if now_s - held.received_s >= self._hold_s_max]
        self.drop(late)
        found: list[str] = []
        for handle, held in list(self._held.items()):
            if now_s - held.extended_s >= invisible_s / EXTENSIONS_PER_TIME:
                held.extended_s = now_s
                found.append(handle)
        return found
