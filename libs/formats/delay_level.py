# SPDX-License-Identifier: Apache-2.0
"""Delay levels: what a record of the schedule topic keeps in place of its tag.

Spec: docs/formats/consume_queue.md section 4.
"""

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000

DELAY_LEVELS_MS = (
    *(_SECOND * n for n in (1, 5, 10, 30)),
    *(_MINUTE * n for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(_HOUR * n for n in (1, 2)),
)
"""Delay of level 1, 2, ...: RocketMQ's default messageDelayLevel."""

DELAY_LEVEL_MAX = len(DELAY_LEVELS_MS)
assert DELAY_LEVEL_MAX == 18


def delivery_time_ms(store_time_ms: int, level: int) -> int:
    """When a delayed message is due; a level above the last counts as the last. `level` is positive."""
    assert level > 0
    return store_time_ms + DELAY_LEVELS_MS[min(level, DELAY_LEVEL_MAX) - 1]
