# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers that requests share; each names the field, the value and the nearest allowed value."""

from libs.formats.limits import INT64_MAX
from libs.requests.errors import BadArgument


def check_range(value: int, field: str, *, least: int = 0, most: int = INT64_MAX) -> int:
    """Return the value, or raise BadArgument when it is outside of [least, most]."""
    if not least <= value <= most:
        allowed = f"from {least} to {most}" if most < INT64_MAX else f"{least} or more"
        raise BadArgument(f"must be {allowed}", field=field, value=value, limit=least if value < least else most)
    return value


def size_of_page(request: object, field: str, *, default: int, most: int) -> int:
    """Return a size or count of a request: the default for 0, and at most `most`. Raises BadArgument below 0."""
    return min(check_range(getattr(request, field), field) or default, most)
