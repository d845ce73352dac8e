# SPDX-License-Identifier: Apache-2.0
"""The policy, row by row."""

from dataclasses import replace
from zoneinfo import ZoneInfo

import pytest

from services.janitor.engine.policy import HOUR_MS, Facts, Policy, Reason, Schedule, SegmentFacts, decide
from tests.unit.services.janitor.support import NOW_MS, SIZE, segment

ACTIVE = segment(9, age_hours=0, is_active=True)
FAR = 1 << 40

# name, segments, what the Indexer has synced, expected reasons
CASES = [
    ("no segment", [], FAR, []),
    ("only the active one, however old", [segment(0, age_hours=500, is_active=True)], FAR, ["ACTIVE"]),
    ("expired", [segment(0), ACTIVE], FAR, ["EXPIRED", "ACTIVE"]),
    ("exactly as old as is kept", [segment(0, age_hours=72), ACTIVE], FAR, ["NOT_EXPIRED", "ACTIVE"]),
    (
        "one millisecond older",
        [segment(0, last_store_time_ms=NOW_MS - 72 * HOUR_MS - 1), ACTIVE],
        FAR,
        ["EXPIRED", "ACTIVE"],
    ),
    ("from the future", [segment(0, age_hours=-5), ACTIVE], FAR, ["NOT_EXPIRED", "ACTIVE"]),
    ("without a record", [segment(0, last_store_time_ms=None), ACTIVE], FAR, ["NOT_EXPIRED", "ACTIVE"]),
    ("CommitLog says not indexed", [segment(0, is_indexed=False), ACTIVE], FAR, ["NOT_INDEXED", "ACTIVE"]),
    ("Indexer says not indexed", [segment(0), ACTIVE], SIZE - 1, ["NOT_INDEXED", "ACTIVE"]),
    ("Indexer has just synced it", [segment(0), ACTIVE], SIZE, ["EXPIRED", "ACTIVE"]),
    (
        "no holes",
        [segment(0, age_hours=1), segment(1), segment(2), ACTIVE],
        FAR,
        ["NOT_EXPIRED", "BEHIND_KEPT", "BEHIND_KEPT", "ACTIVE"],
    ),
    (
        "no holes behind an unindexed one",
        [segment(0), segment(1, is_indexed=False), segment(2)],
        FAR,
        ["EXPIRED", "NOT_INDEXED", "BEHIND_KEPT"],
    ),
    (
        "the batch is full",
        [segment(number) for number in range(5)] + [ACTIVE],
        FAR,
        ["EXPIRED", "EXPIRED", "EXPIRED", "BATCH_FULL", "BATCH_FULL", "ACTIVE"],
    ),
]


@pytest.mark.parametrize(("name", "segments", "indexed", "expected"), CASES, ids=[case[0] for case in CASES])
def test_decide(name: str, segments: list[SegmentFacts], indexed: int, expected: list[str]) -> None:
    """Each segment gets one reason, oldest first, and only EXPIRED deletes."""
    policy = Policy(retention_hours=72, delete_batch_count_max=3)
    decisions = decide(Facts(segments, indexed), policy, NOW_MS)
    assert [decision.reason for decision in decisions] == expected
    assert [decision.base_physical_offset for decision in decisions] == [s.base_physical_offset for s in segments]
    assert all(decision.is_delete == (decision.reason is Reason.EXPIRED) for decision in decisions)


def test_explanations_have_numbers() -> None:
    """A person can see from the sentence which numbers decided."""
    segments = [replace(segment(0), size_bytes=15), segment(1, age_hours=80), segment(2, age_hours=2.5), ACTIVE]
    decisions = decide(Facts(segments, 15), Policy(72, 10), NOW_MS)
    assert [decision.explanation for decision in decisions] == [
        "its last record is 100.0 hours old, more than the 72 hours that are kept",
        "its last record is 80.0 hours old, but the Indexer has synced the log up to 15 and the segment ends at 2000",
        "its last record is 2.5 hours old, records are kept for 72 hours",
        "it takes appends",
    ]


@pytest.mark.parametrize(
    ("zone", "minutes", "due"),
    [
        ("UTC", 3 * 60 + 59, False),
        ("UTC", 4 * 60, True),
        ("UTC", 4 * 60 + 59, True),
        ("UTC", 5 * 60, False),
        ("Europe/Berlin", 3 * 60, True),
        ("Europe/Berlin", 4 * 60, False),
        ("Asia/Kolkata", 22 * 60 + 30, True),
    ],
)
def test_schedule(zone: str, minutes: int, due: bool) -> None:
    """An hour is due from its first to its last minute, by the stated time zone. The day is 2023-01-10."""
    schedule = Schedule(frozenset({4}), ZoneInfo(zone))
    assert schedule.is_due(1_673_308_800_000 + minutes * 60_000) is due
