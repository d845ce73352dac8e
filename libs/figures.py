# SPDX-License-Identifier: Apache-2.0
"""Numbers as readable text: sizes, durations, rates, counts with their nouns. No I/O."""

KIB = 1024
SIZE_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
DURATION_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
ROUND_FROM = 99.95
"""From here on a size has no decimal place."""


def counted(count: int, noun: str) -> str:
    """Return a number and its noun: `1 message`, `2500 messages`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def many(count: int, noun: str) -> str:
    """Return a number that may be large, and its noun: `60,046 messages`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def verb(count: int, singular: str, plural: str) -> str:
    """Return the form of a verb for a number of things: `is` or `are`."""
    return singular if count == 1 else plural


def size_text(size_bytes: float) -> str:
    """Return a size in the largest unit that gives at least 1: `512 B`, `1.2 GiB`, `153 MiB`."""
    if abs(size_bytes) < KIB:
        return f"{size_bytes:.0f} B"
    value, at = size_bytes / KIB, 0
    while abs(value) >= KIB - 0.5 and at + 1 < len(SIZE_UNITS):
        value, at = value / KIB, at + 1
    return f"{value:.0f} {SIZE_UNITS[at]}" if abs(value) >= ROUND_FROM else f"{value:.1f} {SIZE_UNITS[at]}"


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units: `7 ms`, `3.2 s`, `2 min 5 s`, `2 d 4 h`."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    left = round(seconds)
    parts: list[str] = []
    for size, unit in DURATION_UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(filter(None, parts))


def rate_text(per_second: float, noun: str) -> str:
    """Return a rate: `0.3 messages/s`, `1,234 messages/s`."""
    return f"{per_second:,.1f} {noun}/s" if 0 < per_second < 10 else f"{per_second:,.0f} {noun}/s"


def size_rate_text(bytes_per_second: float) -> str:
    """Return a rate in bytes: `1.2 MiB/s`."""
    return f"{size_text(bytes_per_second)}/s"
