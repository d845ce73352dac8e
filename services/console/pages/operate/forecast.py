# SPDX-License-Identifier: Apache-2.0
"""Forecast: how the log's disk fills at the present rate, from the segments, the disks and the policy."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from libs.figures import duration_text, size_rate_text, size_text

WINDOW_MS = 24 * 3_600_000
"""The rate is that of so much time, or of the whole log if it is younger."""
SHORTEST_MS = 60_000
"""A younger log gives no rate."""
HOUR_S = 3_600


class Extent(Struct, frozen=True):
    """A segment in time: its bytes lie between two moments, evenly as far as is known."""

    start_ms: int
    end_ms: int
    wrote_bytes: int
    size_bytes: int


class Forecast(Struct, frozen=True):
    """How the disk of the log fills."""

    bytes_per_second: float
    window_s: float
    """The time whose rate it is."""
    kept_bytes: int
    settles_at_bytes: int
    """Size of the log when as much expires as arrives."""
    room_bytes: int
    """Bytes that the log may still grow before the limit of its disks."""
    limit_percent: int
    fills_in_s: float | None
    """When the limit is reached; None if it is not."""
    is_too_full: bool
    """All disks of the log are too full for new segments, as the CommitLog says."""
    sentence: str


def forecast_of(
    extents: Sequence[Extent], disks: Sequence[Any], policy: Any, now_ms: int, *, is_too_full: bool = False
) -> Forecast | None:
    """Return the forecast, None for a log that is too young, or without the disks' sizes."""
    own = [disk for disk in disks if disk.service == "commitlog"]
    total = sum(disk.total_bytes for disk in own)
    first_ms = min((extent.start_ms for extent in extents), default=now_ms)
    window_ms = min(now_ms - first_ms, WINDOW_MS)
    if not total or window_ms < SHORTEST_MS:
        return None
    rate = sum(_bytes_since(extent, now_ms - window_ms) for extent in extents) * 1_000 / window_ms
    kept = sum(extent.size_bytes for extent in extents)
    settles_at = round(rate * policy.retention_hours * HOUR_S)
    if policy.retention_bytes:
        settles_at = min(settles_at, policy.retention_bytes)
    limit = policy.disk_forcible_percent if policy.disk_forced else policy.disk_full_percent
    room = sum(_room_bytes(disk, limit) for disk in own)
    fills_in_s = room / rate if rate and settles_at - kept > room else None
    return Forecast(
        bytes_per_second=rate,
        window_s=window_ms / 1_000,
        kept_bytes=kept,
        settles_at_bytes=settles_at,
        room_bytes=room,
        limit_percent=limit,
        fills_in_s=fills_in_s,
        is_too_full=is_too_full,
        sentence=_sentence(rate, settles_at, limit, fills_in_s, is_forced=policy.disk_forced, is_too_full=is_too_full),
    )


def _room_bytes(disk: Any, limit_percent: int) -> int:
    """Return the bytes that a disk takes before a limit, which leaves out the space that only root may use."""
    usable = disk.free_bytes * 100 // max(100 - disk.used_percent, 1)
    return int(max(disk.free_bytes - min(usable, disk.total_bytes) * (100 - limit_percent) // 100, 0))


def _bytes_since(extent: Extent, start_ms: int) -> float:
    """Return the bytes that a segment got since a moment."""
    if extent.start_ms >= start_ms:
        return extent.wrote_bytes
    if extent.end_ms <= start_ms:
        return 0
    return extent.wrote_bytes * (extent.end_ms - start_ms) / (extent.end_ms - extent.start_ms)


def _sentence(
    rate: float, settles_at: int, limit: int, fills_in_s: float | None, *, is_forced: bool, is_too_full: bool
) -> str:
    grows = f"The log grows by {size_rate_text(rate)}"
    if fills_in_s is None:
        room = "all its disks are too full for new segments" if is_too_full else "its disks have room for that"
        return f"{grows}; it settles at about {size_text(settles_at)}, and {room}."
    if limit >= 100:
        return f"{grows}; in {duration_text(fills_in_s)} its disks are full, and then appends are refused."
    then = "the oldest segments go, expired or not" if is_forced else "appends are refused"
    return f"{grows}; in {duration_text(fills_in_s)} its disks are used to {limit} %, and then {then}."
