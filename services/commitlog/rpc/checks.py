# SPDX-License-Identifier: Apache-2.0
"""Range checks that several requests share; each names the field, the value and the nearest value that is allowed."""

from libs.formats.limits import INT64_MAX
from services.commitlog.errors import BadArgument


def check_range(value: int, field: str, *, least: int = 0, most: int = INT64_MAX) -> int:
    """Return the value, or raise BadArgument when it is outside of [least, most]."""
    if value < least:
        raise BadArgument(f"the value is below {least}", field=field, value=value, limit=least)
    if value > most:
        raise BadArgument(f"the value is above {most}", field=field, value=value, limit=most)
    return value


def size_of_page(value: int, field: str, *, default: int, most: int) -> int:
    """A size where 0 means the default and more than the most means the most. Raises BadArgument for a negative one."""
    return min(check_range(value, field) or default, most)
