# SPDX-License-Identifier: Apache-2.0
"""Moments: how people type them, and how they are shown. No I/O: the present arrives as an argument.

Every option and every field with a time uses `parse_time`. Exact moments are shown in UTC, with milliseconds and a Z;
the short form for tables is local time, as a time without a zone is when it is typed.
"""

import contextlib
import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
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
_WRITTEN_CLOCK = (
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?::(?P<second>\d{2})(?:\.(?P<part>\d{1,6})\d*)?)?"
    r"(?:\s?(?P<half>[ap])\.?m\.?)?"
)
_WRITTEN_ZONE = r"(?:\s?(?P<utc>z|utc|gmt)?(?P<distance>[-+]\d{1,2}(?::?\d{2})?)?)(?:\s\(.*\))?"
_WRITTEN = rf"(?:(?P<date>.*?)(?:^|(?<=\d)t|\s)(?:at\s)?)?{_WRITTEN_CLOCK}{_WRITTEN_ZONE}(?:\s(?P<last_year>\d{{4}}))?"
_WEEKDAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?\s"
_DATES = (
    r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.(?:\s?(?P<year>\d{4}))?",
    r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})",
    r"(?P<month>[a-z]{3,9})\.?\s(?P<day>\d{1,2})(?:st|[nr]d|th)?(?:\s(?P<year>\d{4}))?",
    r"(?P<day>\d{1,2})(?:st|[nr]d|th)?\.?[\s-](?P<month>[a-z]{3,9})\.?(?:[\s-](?P<year>\d{4}))?",
)
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WRITTEN_CHARACTERS_MAX = 100
_COMMA_OF_A_SECOND = r"(?<=\d:\d\d:\d\d),(?=\d)"
"""Logs of Python and Java write milliseconds behind a comma."""
UNDERSTOOD = (
    "2026-11-26 12:03, 2026-11-26T12:03:07+01:00, 12:03, 2:50:49 PM, 'Nov 26, 2026, 2:50 PM', yesterday 14:05, -1h, "
    "'2 hours ago', +1h, or milliseconds since the epoch"
)
"""Examples of all forms, for refusals."""


class _NoDate(Exception):
    """No calendar has such a date, or no clock such a time."""


class NotAMoment(ValueError):
    """A text is no moment, or no duration. The text of the error says which texts are."""


def parse_time(text: str, *, now: datetime, zone: tzinfo | None = None) -> int:
    """Return milliseconds since the epoch.

    A text is a whole number of milliseconds, ISO 8601 (without a zone in local time, see `_epoch_ms`), a distance from
    now (`-1h`, `-1h30m`, `2 hours ago`, `+1h`, `in 2 days`), `now`, `today`, `yesterday`, `tomorrow`, a time of today
    (`01:00`), `yesterday 01:00`, or a moment as programs and people write it (see `_written`). A number that would be a
    time of 1970 to 1973 is most likely in seconds, and refused. `zone` is the zone of the caller, None for this
    machine's. Raises NotAMoment.
    """
    if re.fullmatch(r"-?[0-9]+", text):
        return _whole_number(text)
    now = now.astimezone(zone)
    words = text.strip().lower()
    for reading in (_distance, _day_and_clock):
        if (moment_ms := reading(words, now, zone)) is not None:
            return moment_ms
    with contextlib.suppress(ValueError, OverflowError):
        return _epoch_ms(datetime.fromisoformat(text), zone)
    with contextlib.suppress(_NoDate, OverflowError):
        if (moment := _written(words, now)) is not None:
            return _epoch_ms(moment, zone)
    raise NotAMoment(f"{text!r} is no time: give {UNDERSTOOD}")


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
    match = re.fullmatch(_DISTANCE, re.sub(r"^an? (?=[a-z]+ ago$)", "1 ", words))
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


def _written(words: str, now: datetime) -> datetime | None:
    """Return the moment of a date, a time of day, or both, None for other words. Raises _NoDate and NotAMoment.

    Browsers write `11/26/2026, 2:50:49 PM`, `26.11.2026, 14:50:49` and `Thu Nov 26 2026 14:50:49 GMT+0100 (CET)`; logs
    write `26 Nov 2026 14:50:49` and `Nov 26 14:50:49`, without a year, which is the nearest then; `date` writes `Thu
    Nov 26 14:50:49 UTC 2026`. A time of day alone is today's. Between its date and its time may be a comma, or `at`.
    """
    if not 0 < len(words) <= _WRITTEN_CHARACTERS_MAX:
        return None
    words = re.sub(_COMMA_OF_A_SECOND, ".", words)
    words = " ".join(words.replace(",", " ").split())
    match = re.fullmatch(_WRITTEN, words)
    if match is None or not (match["minute"] or match["half"]):
        day = _written_date(words, None, now.date())
        return None if day is None else datetime.combine(day, clock())
    day = _written_date(match["date"] or "", match["last_year"], now.date())
    if day is None:
        return None
    hour = int(match["hour"])
    if match["half"] is not None:
        if not 1 <= hour <= 12:
            raise _NoDate
        hour = hour % 12 + (12 if match["half"] == "p" else 0)
    minute, second = int(match["minute"] or 0), int(match["second"] or 0)
    try:
        at = clock(hour, minute, second, int((match["part"] or "0").ljust(6, "0")))
        return datetime.combine(day, at, _written_zone(match["utc"], match["distance"]))
    except ValueError:
        raise _NoDate from None


def _written_zone(name: str | None, distance: str | None) -> tzinfo | None:
    """Return the zone of `UTC`, `+01:00` or `GMT+0100`, None without a zone. Raises ValueError."""
    if distance is None:
        return UTC if name else None
    sign, digits = distance[0], distance[1:].replace(":", "")
    hours, minutes = (digits, "0") if len(digits) < 3 else (digits[:-2], digits[-2:])
    length = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-length if sign == "-" else length)


def _written_date(words: str, last_year: str | None, today: date) -> date | None:
    """Return the date of some words, the given day without words, None for other words. Raises as `_written`."""
    words = re.sub(rf"^{_WEEKDAY}", "", words + " ").strip()
    if not words:
        return today
    if words in _DAYS:
        return today + timedelta(days=_DAYS[words])
    match = next(filter(None, (re.fullmatch(pattern, words) for pattern in _DATES)), None)
    if match is None:
        return None
    month, day = match["month"], int(match["day"])
    number = int(month) if month.isdecimal() else _month_of(month)
    if "/" in words and not words.startswith(match["year"]):
        if number <= 12 and day <= 12 and number != day:
            year, pairs = match["year"], ((number, day), (day, number))
            either = " or ".join(f"{year}-{one:02}-{other:02}" for one, other in pairs)
            raise NotAMoment(f"{words!r} may begin with the month or with the day: give {either}")
        number, day = (day, number) if number > 12 else (number, day)
    year = last_year or match["year"]
    if year is None:
        return min(_dates_of(number, day, today.year), key=lambda one: abs(one - today))
    try:
        return date(int(year), number, day)
    except ValueError:
        raise _NoDate from None


def _month_of(word: str) -> int:
    """Return the number of a month by its name, or by three letters and more of it. Raises _NoDate."""
    for number, name in enumerate(_MONTHS, 1):
        if name.startswith(word) or (word == "sept" and number == 9):
            return number
    raise _NoDate


def _dates_of(month: int, day: int, year: int) -> list[date]:
    """Return this day of the years around a year. Raises _NoDate for a day that no year has."""
    found = []
    for one in (year - 1, year, year + 1):
        with contextlib.suppress(ValueError):
            found.append(date(one, month, day))
    if not found:
        raise _NoDate
    return found


def _epoch_ms(moment: datetime, zone: tzinfo | None) -> int:
    """Return milliseconds since the epoch. A moment without a zone is local time in `zone`.

    A local time that a change of the clock skips has the UTC offset before the change, so no time of the skipped hour
    lies before the hour in front of it. Of a local time that comes twice it is the first. `astimezone()` before
    `timestamp()` would take the UTC offset after the change.
    """
    if moment.tzinfo is None and zone is not None:
        moment = moment.replace(tzinfo=zone)
    return round(moment.timestamp() * 1000)
