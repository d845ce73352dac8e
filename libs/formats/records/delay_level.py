# SPDX-License-Identifier: Apache-2.0
"""Delay levels: how long a delayed message waits in the schedule topic, and the properties of its record there.

Text form of the levels: RocketMQ's messageDelayLevel, `1s 5s 10s ... 2h`. Spec: docs/formats/commit_log.md section 12
for the record, docs/formats/consume_queue.md section 4 for the delivery time.
"""

import re
from collections.abc import Sequence

from libs.formats.errors import BadField
from libs.formats.records import properties
from libs.formats.records.properties import CRC32, DELAY, REAL_QID, REAL_TOPIC

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

DELAY_LEVELS_TEXT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's default levels."""

DELAY_LEVEL_COUNT_MAX = 256
"""Reput's limit; RocketMQ has no limit. The queue of level n is n - 1."""

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)


def parse_levels(text: str) -> tuple[int, ...]:
    """Return the delays in milliseconds of level 1, 2, ...: numbers with a unit of s, m, h or d, between spaces.

    Raises BadField for other text, for no level and for more than 256 levels.
    """
    levels = []
    for word in text.split(" "):
        match = _LEVEL.fullmatch(word)
        if match is None:
            raise BadField(position=0, reason=f"{word[:20]!r} is no delay such as 10s or 2h", field="delay levels")
        levels.append(int(match[1]) * _UNITS_MS[match[2]])
    if len(levels) > DELAY_LEVEL_COUNT_MAX:
        raise BadField(position=0, reason=f"{len(levels)} are too many", field="delay levels")
    return tuple(levels)


def format_levels(levels_ms: Sequence[int]) -> str:
    """Return the text that `parse_levels` reads, each level in the largest unit that divides it."""
    units = sorted(_UNITS_MS.items(), key=lambda unit: -unit[1])
    return " ".join(next(f"{level // size}{name}" for name, size in units if level % size == 0) for level in levels_ms)


DELAY_LEVELS_MS = parse_levels(DELAY_LEVELS_TEXT)
"""Delays of the default levels."""

DELAY_LEVEL_MAX = len(DELAY_LEVELS_MS)
assert DELAY_LEVEL_MAX == 18


def delivered_properties(raw: bytes) -> bytes:
    """Return a producer's properties of a delayed message, without the properties of the delay.

    RocketMQ leaves DELAY, REAL_TOPIC and REAL_QID in them.
    """
    return b"".join(
        properties.encode_one(name, value)
        for name, value in properties.pieces(raw)
        if name not in (DELAY, REAL_TOPIC, REAL_QID, CRC32) and not name.startswith(properties.TIMER_PREFIX)
    )
