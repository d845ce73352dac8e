# SPDX-License-Identifier: Apache-2.0
"""Repeats: counts lines that are alike, so that a caller that is refused again and again can't fill the disk.

The first line of a subject, a method and a reason is written at once. Further lines are counted, and a single line has
their number and some addresses when the interval is over. Callers: a single event loop.
"""

from collections.abc import Callable

from msgspec import Struct, field

from libs.runtime.trust.audit.line import REPEATED, Line

INTERVAL_S = 60.0
KEY_COUNT_MAX = 1_000
"""Maximum number of kinds of lines that are counted at once. Further kinds are counted together."""
ADDRESS_COUNT_MAX = 5
OTHERS = "others"
"""Subject and method of lines that are counted together."""


class _Count(Struct):
    line: Line
    end_s: float
    count: int = 0
    addresses: list[str] = field(default_factory=list)


class Repeats:
    """The counts of a trail. `write` takes lines, `now_s` is monotonic time, `later` calls a function after a time."""

    def __init__(
        self,
        write: Callable[[Line], None],
        now_s: Callable[[], float],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._write, self._now_s, self._later = write, now_s, later
        self._counts: dict[tuple[str, str, str], _Count] = {}
        self._is_waiting = False
        self.counted_total = 0
        """Lines that were counted in place of being written."""

    def take(self, line: Line, *, is_shown: bool = True) -> None:
        """Write a line, or count it. Without `is_shown` also the first line of its kind is counted."""
        now_s = self._now_s()
        self.flush(now_s)
        key = (line.subject, line.method, line.reason or line.code)
        found = self._counts.get(key)
        if found is None and len(self._counts) >= KEY_COUNT_MAX:
            line = line._replace(subject=OTHERS, method=OTHERS, resources={})
            key, is_shown = (OTHERS, OTHERS, ""), False
            found = self._counts.get(key)
        if found is None:
            found = self._counts[key] = _Count(line, now_s + INTERVAL_S)
            self._wait()
            if is_shown:
                self._write(line)
                return
        found.count += 1
        self.counted_total += 1
        found.line = line
        host = line.address.rpartition(":")[0] or line.address
        if host not in found.addresses and len(found.addresses) < ADDRESS_COUNT_MAX:
            found.addresses.append(host)

    def flush(self, now_s: float = float("inf")) -> None:
        """Write the counts whose interval is over, by default all counts."""
        for key in [key for key, found in self._counts.items() if found.end_s <= now_s]:
            found = self._counts.pop(key)
            if found.count:
                line = found.line._replace(
                    event=REPEATED, call_count=found.count, addresses=tuple(found.addresses), before=None, after=None,
                    resources={},
                )  # fmt: skip
                self._write(line)

    def _wait(self) -> None:
        if not self._is_waiting and self._counts:
            self._is_waiting = True
            end_s = min(found.end_s for found in self._counts.values())
            self._later(max(0.0, end_s - self._now_s()), self._look)

    def _look(self) -> None:
        self._is_waiting = False
        self.flush(self._now_s())
        self._wait()
