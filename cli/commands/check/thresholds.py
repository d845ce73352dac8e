# SPDX-License-Identifier: Apache-2.0
"""Limits as users type them: `80,90`, `64MiB,1GiB`, `10m,1h`, `off,7`. Pure: text in, limits out."""

import math
import re

from cli.commands.check.rules import Limits

SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIMES_S = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
PLAIN = {"": 1}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")


def limits_of(
    text: str, *, flag: str, units: dict[str, int] = PLAIN, greatest: float = math.inf, is_least: bool = False
) -> Limits:
    """Return the limits of an option. Raises ValueError with a text that names the option, its value and the rule."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2:
        raise ValueError(f"{flag} is {text!r}, but must be two limits, for the warning and the critical level")
    off = -math.inf if is_least else math.inf
    warning, critical = (_number(part, text, flag=flag, units=units, off=off) for part in parts)
    for value in (warning, critical):
        if value != off and value > greatest:
            raise ValueError(f"{flag} is {text!r}, but must be at most {greatest:g}")
    if off not in (warning, critical) and (warning < critical if is_least else warning > critical):
        order = "below" if is_least else "above"
        raise ValueError(f"{flag} is {text!r}, but the warning must not be {order} the critical level")
    return Limits(warning, critical, is_least)


def _number(part: str, text: str, *, flag: str, units: dict[str, int], off: float) -> float:
    if part == "off":
        return off
    found = _NUMBER.fullmatch(part)
    if found is None or found[2] not in units:
        names = [unit for unit in units if unit]
        known = f" and a unit of {', '.join(names)}" if names else ""
        raise ValueError(f"{flag} is {text!r}, but each limit must be `off` or a number{known}")
    return float(found[1]) * units[found[2]]
