# SPDX-License-Identifier: Apache-2.0
"""A row of the attack: a greedy client, the service that it attacks, and the limits of the service's costs.

Invariants: a row is judged by its measurements alone; a check that was not measured is broken, not passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

RSS_PEAK_MIB_MAX = 600
"""Anonymous memory of the service under attack at its highest."""

RSS_KEPT_MIB_MAX = 50
"""Memory that the service may hold more than at its start, half a minute after the client has gone."""

PAUSE_MS_MAX = 50
"""Longest pause of the event loop beside other load; 20 ms alone on a machine."""

APPEND_RATIO_MAX = 3.0
"""Others' append p99 against the calm p99."""

SHARE_MIN = 0.25
"""Others' completed appends a second beside the client, as a part of those in calm time."""

POLITE_RATIO_MAX = 2.0
"""Others' append p99 beside a greedy subject against the p99 beside a polite one, which uses its whole quota."""


@dataclass(frozen=True)
class Row:
    """`name` is that of its function in tests.attack.greedy."""

    name: str
    target: str
    """The service whose memory is measured; pauses count of all."""
    checks: tuple[str, ...]
    """Which limits it is about. All is measured, also without a limit."""
    seconds: float = 10.0
    seed: int = 0
    """Decides the requests of a client that goes by chance."""
    has_messages: bool = False
    """Whether the store is filled with large messages first."""
    has_collisions: bool = False
    """Whether the store is filled with messages whose keys have the same hash first."""
    stays_mib_max: float = 0.0
    """Memory that it may keep beside, for a reason that the README tells."""
    file_count: int = 0
    """RLIMIT_NOFILE of the services; 0 is the machine's limit."""
    has_rights: bool = False
    """Whether the services have a rights file, with a quota for the greedy client alone."""
    polite: str = ""
    """A client that uses the same share by right, at other times: the cost of the greedy client is compared with it."""
    is_behind_door: bool = False
    """Whether honest callers append through the gateway's door, too."""
    restarts: str = ""
    """A service that the row itself ends and starts again."""

    @property
    def kept_mib_max(self) -> float:
        """Memory that the service may hold more than at its start."""
        return RSS_KEPT_MIB_MAX + self.stays_mib_max


@dataclass
class Measured:
    """The measurements of a row. Memory is in MiB, times are in milliseconds."""

    start_mib: float
    peak_mib: float
    kept_mib: float
    pause_ms: float
    work_ms: float
    """The loop's own longest computation in a pause, 0 if it was no longer than before the client came."""
    append_p99_ms: float
    calm_p99_ms: float
    share: float = 1.0
    """Others' completed appends a second beside the client, as a part of those in calm time."""
    polite_p99_ms: float = 0.0
    """Others' append p99 beside the polite client."""
    client: dict[str, int] = field(default_factory=dict)
    """The counts of the greedy client."""
    broken: list[str] = field(default_factory=list)
    """Broken promises that honest callers or the row's own look at the service found."""


_CHECKS: dict[str, Callable[[Row, Measured], str]] = {
    "peak": lambda _, found: _above("memory at its peak", found.peak_mib, RSS_PEAK_MIB_MAX, "MiB"),
    "kept": lambda row, found: _above("memory kept", found.kept_mib - found.start_mib, row.kept_mib_max, "MiB"),
    "pause": lambda _, found: _above("pause of the loop", found.pause_ms, PAUSE_MS_MAX, "ms"),
    "append": lambda _, found: _above(
        "others' append p99", found.append_p99_ms, max(APPEND_RATIO_MAX * found.calm_p99_ms, PAUSE_MS_MAX), "ms"
    ),
    "share": lambda _, found: _below("others' completed appends against calm time", found.share, SHARE_MIN),
    "polite": lambda _, found: _above(
        "others' append p99 beside the greedy client", found.append_p99_ms, POLITE_RATIO_MAX * found.polite_p99_ms, "ms"
    ),
}


def violations(row: Row, found: Measured) -> list[str]:
    """Every promise of the row that did not hold."""
    return [text for name in row.checks if (text := _CHECKS[name](row, found))] + found.broken


def _above(what: str, value: float, limit: float, unit: str) -> str:
    return f"{what}: {value:,.1f} {unit}, at most {limit:,.1f}" if value > limit else ""


def _below(what: str, value: float, limit: float) -> str:
    return f"{what}: {value:.2f}, at least {limit:.2f}" if value < limit else ""
