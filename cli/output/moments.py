# SPDX-License-Identifier: Apache-2.0
"""Moments as arguments of commands: `libs.moments`, whose refusals become errors of the command line."""

from datetime import UTC, datetime, timedelta

import typer

from libs import moments
from libs.moments import NotAMoment, time_text

TIME_FORMS = "ISO 8601, -1h, '2 hours ago', +1h, yesterday, 01:00, or ms"
"""For the help of options."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

__all__ = ["TIME_FORMS", "parse_duration", "parse_moment", "parse_time", "short_text", "time_text"]


def parse_time(text: str, *, now: datetime | None = None) -> int:
    """Return milliseconds since the epoch, as `libs.moments.parse_time` does."""
    try:
        return moments.parse_time(text, now=now or datetime.now(UTC))
    except NotAMoment as error:
        raise typer.BadParameter(str(error)) from None


def parse_duration(text: str) -> int:
    """Return milliseconds for `90s`, `1h30m` or `2 days`."""
    try:
        return moments.parse_duration(text)
    except NotAMoment as error:
        raise typer.BadParameter(str(error)) from None


def parse_moment(text: str | None) -> datetime | None:
    """Return the moment that `parse_time` understands, None for None."""
    return None if text is None else _EPOCH + timedelta(milliseconds=parse_time(text))


def short_text(time_ms: int, *, now: datetime | None = None) -> str:
    """Return a moment in local time, as short as it can be understood: `12:03:07` today, else `2026-11-26 12:03`."""
    return moments.short_text(time_ms, now=now or datetime.now(UTC))
