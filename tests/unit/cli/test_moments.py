# SPDX-License-Identifier: Apache-2.0
"""Times as users type them, and as commands show them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import typer

from cli.output.moments import parse_duration, parse_time, short_text, time_text

NOW = datetime(2026, 11, 26, 12, 3, 7).astimezone()
NOW_MS = round(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000


def local_ms(*parts: int) -> int:
    """A moment in local time."""
    return round(datetime(*parts).astimezone().timestamp() * 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-5", -5),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123456+00:00", 1_700_000_000_123),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", local_ms(2023, 11, 14)),
        ("2023-11-14 01:02", local_ms(2023, 11, 14, 1, 2)),
    ],
)
def test_exact_times(text: str, expected: int) -> None:
    """A time is in milliseconds, in ISO 8601 with a zone, or in local time without a zone."""
    assert parse_time(text, now=NOW) == expected


@pytest.mark.parametrize(
    ("text", "distance_ms"),
    [
        ("now", 0),
        ("-1h", HOUR_MS),
        ("-10m", 600_000),
        ("-1h30m", HOUR_MS + 1_800_000),
        ("-1.5h", HOUR_MS + 1_800_000),
        ("-500ms", 500),
        ("-2d", 48 * HOUR_MS),
        ("-1w", 168 * HOUR_MS),
        ("1 hour ago", HOUR_MS),
        ("2 Hours ago", 2 * HOUR_MS),
        ("10min ago", 600_000),
        ("1 day 2 hours ago", 26 * HOUR_MS),
        ("+1h30m", -HOUR_MS * 3 // 2),
        ("in 2 days", -48 * HOUR_MS),
    ],
)
def test_distances(text: str, distance_ms: int) -> None:
    """A distance is subtracted from the present time."""
    assert parse_time(text, now=NOW) == NOW_MS - distance_ms


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("today", (2026, 11, 26)),
        ("yesterday", (2026, 11, 25)),
        ("01:00", (2026, 11, 26, 1)),
        ("1:00", (2026, 11, 26, 1)),
        ("23:59:58", (2026, 11, 26, 23, 59, 58)),
        ("yesterday 01:30", (2026, 11, 25, 1, 30)),
        ("today 14:00", (2026, 11, 26, 14)),
    ],
)
def test_days_and_clocks(text: str, parts: tuple[int, ...]) -> None:
    """A time of day is in local time, and of today if no day is given."""
    assert parse_time(text, now=NOW) == local_ms(*parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2:50:49 AM", (2026, 11, 26, 2, 50, 49)),
        ("2:50:49\u202fPM", (2026, 11, 26, 14, 50, 49)),
        ("12:30 am", (2026, 11, 26, 0, 30)),
        ("12 p.m.", (2026, 11, 26, 12)),
        ("yesterday 2:50 PM", (2026, 11, 25, 14, 50)),
        ("2026-11-30 2:50:49 AM", (2026, 11, 30, 2, 50, 49)),
        ("2026/11/30 02:50", (2026, 11, 30, 2, 50)),
        ("11/30/2026, 2:50:49 AM", (2026, 11, 30, 2, 50, 49)),
        ("30/11/2026, 02:50", (2026, 11, 30, 2, 50)),
        ("4/4/2026", (2026, 4, 4)),
        ("30.11.2026, 02:50:49", (2026, 11, 30, 2, 50, 49)),
        ("Nov 30, 2026, 2:50 AM", (2026, 11, 30, 2, 50)),
        ("November 30, 2026 at 2:50 AM", (2026, 11, 30, 2, 50)),
        ("30 November 2026", (2026, 11, 30)),
        ("1st Sept. 2026 10:00", (2026, 9, 1, 10)),
        ("30-Nov-2026 02:50", (2026, 11, 30, 2, 50)),
        ("Nov 30 02:50:49", (2026, 11, 30, 2, 50, 49)),
        ("Feb 3 10:00", (2027, 2, 3, 10)),
        ("2026-11-30 02:50:49,123", (2026, 11, 30, 2, 50, 49, 123_000)),
    ],
)
def test_times_as_browsers_logs_and_people_write_them(text: str, parts: tuple[int, ...]) -> None:
    """A date may have a name of a month, a time may have AM or PM; without a year it is the nearest such day."""
    assert parse_time(text, now=NOW) == local_ms(*parts)


@pytest.mark.parametrize(
    "text",
    [
        "Mon Nov 30 2026 02:50:49 GMT+0100 (Central European Standard Time)",
        "Mon, 30 Nov 2026 01:50:49 GMT",
        "Mon Nov 30 01:50:49 UTC 2026",
        "2026-11-30 01:50:49 UTC",
        "2026-11-30 2:50:49 AM +01:00",
        "2026-11-30T1:50:49Z",
        "2026-11-29 20:20:49 -0530",
    ],
)
def test_written_zones(text: str) -> None:
    """A zone is UTC, GMT, or a distance from them."""
    assert time_text(parse_time(text, now=NOW)) == "2026-11-30T01:50:49.000Z"


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time as in Berlin, by the rule itself: this machine may know no zones."""
    with monkeypatch.context() as local:
        local.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("central_europe")
def test_changes_of_the_clock() -> None:
    """A local time that spring skips has the UTC offset before the change.

    Of a local time that comes twice in autumn the first is meant.
    """
    spring = ["2026-03-29T01:59", "2026-03-29T02:00", "2026-03-29T02:30", "2026-03-29T03:00", "2026-03-29T03:30"]
    assert [time_text(parse_time(text))[11:16] for text in spring] == ["00:59", "01:00", "01:30", "01:00", "01:30"]
    assert time_text(parse_time("2026-10-25T02:30")) == "2026-10-25T00:30:00.000Z"
    morning = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
    assert time_text(parse_time("02:30", now=morning)) == "2026-03-29T01:30:00.000Z"
    assert time_text(parse_time("today", now=morning)) == "2026-03-28T23:00:00.000Z"


def test_the_clock_is_the_machines() -> None:
    """Without a given time, the present time is the machine's."""
    assert abs(parse_time("now") - datetime.now(UTC).timestamp() * 1000) < 60_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no time"),
        ("soon", "is no time"),
        ("2023-13-01", "is no time"),
        ("1795397076", "looks like seconds: give milliseconds (1795397076000)"),
        ("1", "looks like seconds"),
        ("1795397076000000", "behind the year 9999"),
        ("-1x", "'x' is no unit of time"),
        ("3 fortnights ago", "'fortnights' is no unit of time"),
        ("25:00", "'25:00' is no time of a day"),
        ("ago", "is no time"),
        ("-9999999w", "longer than all history"),
        ("3/4/2026 10:00", "may begin with the month or with the day"),
        ("13 PM", "is no time"),
        ("0:10 am", "is no time"),
        ("Feb 30 10:00", "is no time"),
        ("10:00 +99:00", "is no time"),
        ("10:00 CET", "is no time"),
        ("Smarch 3 10:00", "is no time"),
        ("1/1/1 " * 40, "is no time"),
        ("order 17", "2:50:49 PM, 'Nov 26, 2026, 2:50 PM'"),
    ],
)
def test_bad_times(text: str, said: str) -> None:
    """A bad time is a usage error with examples of good times."""
    with pytest.raises(typer.BadParameter) as caught:
        parse_time(text, now=NOW)
    assert said in caught.value.message


def test_time_text() -> None:
    """Times are printed in UTC with milliseconds, before the epoch too, and read back equal."""
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    for time_ms in (0, -1, 1_700_000_000_999):
        assert parse_time(time_text(time_ms)) == time_ms


def test_short_text() -> None:
    """A time of today is shown as its clock, and any other time with its day.

    Both texts are read again as the same local time.
    """
    assert short_text(NOW_MS, now=NOW) == "12:03:07"
    earlier = NOW - timedelta(days=1)
    shown = short_text(round(earlier.timestamp() * 1000), now=NOW)
    assert shown == "2026-11-25 12:03"
    assert parse_time(shown, now=NOW) == NOW_MS - 24 * HOUR_MS - 7_000


def test_durations() -> None:
    """Durations are numbers with units; a number without a unit, and any other text, is refused."""
    assert [parse_duration(text) for text in ("90s", "1h30m", "2 days", "1.5 sec")] == [
        90_000, 3 * HOUR_MS // 2, 48 * HOUR_MS, 1_500,
    ]  # fmt: skip
    for text in ("", "5", "-1h", "soon", "3 fortnights"):
        with pytest.raises(typer.BadParameter):
            parse_duration(text)
