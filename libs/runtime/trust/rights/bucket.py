# SPDX-License-Identifier: Apache-2.0
"""Bucket: an amount per second, with room for the amount of a second at once. No I/O, no clock.

Anything may be taken while there is room, also more than the room: the bucket then owes the rest, and has no room until
the rate has paid it. So a large request is not refused for ever, and a second request waits.
Invariants: within any time T at most `per_s * (T + 1)` and the last amount are taken; a refused amount changes nothing;
a clock that steps back gives no room.
"""


class Bucket:
    """A bucket that begins full. All times are in seconds, from any monotonic clock."""

    def __init__(self, per_s: int, now_s: float) -> None:
        assert per_s > 0
        self.per_s = per_s
        self._room = float(per_s)
        self._seen_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the time until there is room. 0 if there is room now."""
        self._fill(now_s)
        return 0.0 if self._room > 0 else -self._room / self.per_s

    def has_room(self, now_s: float) -> bool:
        """Return whether an amount may be taken."""
        self._fill(now_s)
        return self._room > 0

    def take(self, amount: int) -> None:
        """Take an amount. The caller has asked whether there is room."""
        self._room -= amount

    def give_back(self, amount: int) -> None:
        """Give back an amount that was taken and not used."""
        self._room = min(float(self.per_s), self._room + amount)

    @property
    def used(self) -> int:
        """The amount that counts for the current second."""
        return round(self.per_s - self._room)

    def change(self, per_s: int, now_s: float) -> None:
        """Change the rate. A bucket without room waits as long as before."""
        self._fill(now_s)
        self._room *= per_s / self.per_s
        self.per_s = per_s

    def _fill(self, now_s: float) -> None:
        if now_s > self._seen_s:
            self._room = min(float(self.per_s), self._room + (now_s - self._seen_s) * self.per_s)
        self._seen_s = now_s
