# SPDX-License-Identifier: Apache-2.0
"""Moments: how people type them, and how they are shown. No I/O: the present arrives as an argument.

Every option and every field with a time uses `parse_time`. Exact moments are shown in UTC, with milliseconds and a Z;
the short form for tables is local time, as a time without a zone is when it is typed.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as clock

_PLAUSIBLE_MS_MIN = 10**11
"""3 March 1973 as milliseconds, the year 5138 as seconds."""
_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999; today's time in microseconds is behind it."""
_UNITS = {
    "ms": 1, "millisecond": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000, "w": 604_800_000, "week": 604_800_000,
}  # fmt: skip
_STEP = r"(\d+(?:\.\d+)?)\s*([a-z]+)"
_DISTANCE = rf"(?P<sign>[-+]|in\s)\s*(?P<far>(?:{_STEP}\s*)+)|(?P<ago>(?:{_STEP}\s*)+)\s+ago"
_DAYS = {"today": 0, "yesterday": -1, "tomorrow": 1, None: 0}
_CLOCK = r"(?:(?P<day>today|yesterday|tomorrow)(?:\s+|$))?(?P<clock>\d{1,2}:\d{2}(?::\d{2})?)?"
_LONGEST_MS = 10**14
"""About 3,000 years: a longer distance is a typing error."""


class NotAMoment(ValueError):
    """A text is no moment, or no duration. The text of the error says which texts are."""


def parse_time(text: str, *, now: datetime, zone: tzinfo | None = None) -> int:
    """Return milliseconds since the epoch.

    A text is a whole number of milliseconds, ISO 8601 (without a zone in local time, see `_epoch_ms`), a distance from
    now (`-1h`, `-1h30m`, `2 hours ago`, `+1h`, `in 2 days`), `now`, `today`, `yesterday`, `tomorrow`, a time of today
    (`01:00`), or `yesterday 01:00`. A number that would be a time of 1970 to 1973 is most likely in seconds, and
    refused. `zone` is the zone of the caller, None for this machine's. Raises NotAMoment.
    """
    if re.fullmatch(r"-?[0-9]+", text):
        return _whole_number(text)
    now = now.astimezone(zone)
    words = text.strip().lower()
    for reading in (_distance, _day_and_clock):
        if (moment_ms := reading(words, now, zone)) is not None:
            return moment_ms
    try:
        return _epoch_ms(datetime.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        raise NotAMoment(
            f"{text!r} is no time: give ISO 8601 (2026-11-26T12:03), -1h, '2 hours ago', +1h, yesterday, 01:00, "
            "or milliseconds since the epoch"
        ) from None


def time_text(time_ms: int) -> str:
    """Return a moment in UTC, in milliseconds."""
    moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z"


def short_text(time_ms: int, *, now: datetime) -> str:
    """Return a moment in local time, as short as it can be understood: `12:03:07` today, else `2026-11-26 12:03`."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC).astimezone()
    today = now.astimezone().date()
    return f"{moment:%H:%M:%S}" if moment.date() == today else f"{moment:%Y-%m-%d %H:%M}"


def _whole_number(text: str) -> int:
    time_ms = int(text)
    if 0 < time_ms < _PLAUSIBLE_MS_MIN:
        raise NotAMoment(f"{text} looks like seconds: give milliseconds ({text}000), or ISO 8601")
    if time_ms > _LAST_MS:
        raise NotAMoment(f"{text} is behind the year 9999: give milliseconds, or ISO 8601")
    return time_ms


def _distance(words: str, now: datetime, zone: tzinfo | None) -> int | None:
    """Return the moment of `-1h`, `1 hour ago`, `+1h` or `in 1 hour`, None if the text is no distance."""
    match = re.fullmatch(_DISTANCE, words)
    if match is None:
        return None
    is_past = match["sign"] in (None, "-")
    distance_ms = parse_duration(match["far"] or match["ago"])
    return _epoch_ms(now, zone) + (-distance_ms if is_past else distance_ms)


def parse_duration(text: str) -> int:
    """Return milliseconds for `90s`, `1h30m` or `2 days`. Raises NotAMoment."""
    words = text.strip().lower()
    if not re.fullmatch(rf"(?:{_STEP}\s*)+", words):
        raise NotAMoment(f"{text!r} is no duration: give 90s, 1h30m, or '2 days'")
    distance_ms = 0.0
    for number, unit in re.findall(_STEP, words):
        size_ms = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if size_ms is None:
            raise NotAMoment(f"{unit!r} is no unit of time: ms, s, m, h, d and w are")
        distance_ms += float(number) * size_ms
    if distance_ms > _LONGEST_MS:
        raise NotAMoment(f"{words!r} is longer than all history")
    return round(distance_ms)


def _day_and_clock(words: str, now: datetime, zone: tzinfo | None) -> int | None:
    """Return the moment of `now`, `today`, `yesterday`, `01:00` or `yesterday 01:00`, None for other words."""
    if words == "now":
        return _epoch_ms(now, zone)
    match = re.fullmatch(_CLOCK, words)
    if match is None or not words:
        return None
    day: date = now.date() + timedelta(days=_DAYS[match["day"]])
    hour, minute, second = (*map(int, (match["clock"] or "0:0").split(":")), 0)[:3]
    try:
        return _epoch_ms(datetime.combine(day, clock(hour, minute, second)), zone)
    except ValueError:
        raise NotAMoment(f"{match['clock']!r} is no time of a day: 00:00 to 23:59:59 are") from None


def _epoch_ms(moment: datetime, zone: tzinfo | None) -> int:
    """Return milliseconds since the epoch. A moment without a zone is local time in `zone`.

    A local time that a change of the clock skips has the UTC offset before the change, so no time of the skipped hour
    lies before the hour in front of it. Of a local time that comes twice it is the first. `astimezone()` before
    `timestamp()` would take the UTC offset after the change.
    """
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return round(moment.timestamp() * 1000)
