# SPDX-License-Identifier: Apache-2.0
"""The policy, row by row."""

from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from reput.commitlog.v1 import segment_service_pb2

from services.janitor.engine.facts import INDEX_OWNER, LOG_OWNER, Disk, Facts, SegmentFacts
from services.janitor.engine.policy import DELETING, HOUR_MS, Policy, Reason, Schedule, Trigger, Unsafe, decide
from tests.unit.services.janitor.support import FAR, NOW_HOUR, NOW_MS, SIZE, policy, segment

ACTIVE = segment(9, age_hours=0, is_active=True)
OLD, YOUNG = "EXPIRED", "NOT_EXPIRED"
OTHER_HOUR = ((NOW_HOUR + 1) % 24,)


def log_disk(percent: int | None, **changes: int) -> Disk:
    """The CommitLog's disk."""
    return Disk(LOG_OWNER, percent, **changes)


# name, segments, what the Indexer has synced, what replicas have, expected reasons
CASES = [
    ("no segment", [], FAR, FAR, []),
    ("only the active one, however old", [segment(0, age_hours=500, is_active=True)], FAR, FAR, ["ACTIVE"]),
    ("expired", [segment(0), ACTIVE], FAR, FAR, ["EXPIRED", "ACTIVE"]),
    ("exactly as old as is kept", [segment(0, age_hours=72), ACTIVE], FAR, FAR, ["NOT_EXPIRED", "ACTIVE"]),
    (
        "one millisecond older",
        [segment(0, last_store_time_ms=NOW_MS - 72 * HOUR_MS - 1), ACTIVE],
        FAR,
        FAR,
        ["EXPIRED", "ACTIVE"],
    ),
    ("from the future", [segment(0, age_hours=-5), ACTIVE], FAR, FAR, ["NOT_EXPIRED", "ACTIVE"]),
    ("without a record", [segment(0, last_store_time_ms=None), ACTIVE], FAR, FAR, ["NOT_EXPIRED", "ACTIVE"]),
    ("CommitLog says not indexed", [segment(0, is_indexed=False), ACTIVE], FAR, FAR, ["NOT_INDEXED", "ACTIVE"]),
    ("Indexer says not indexed", [segment(0), ACTIVE], SIZE - 1, FAR, ["NOT_INDEXED", "ACTIVE"]),
    ("Indexer has just synced it", [segment(0), ACTIVE], SIZE, FAR, ["EXPIRED", "ACTIVE"]),
    ("a replica lacks its end", [segment(0), ACTIVE], FAR, SIZE - 1, ["NOT_REPLICATED", "ACTIVE"]),
    ("replicas have just got it", [segment(0), ACTIVE], FAR, SIZE, ["EXPIRED", "ACTIVE"]),
    (
        "no holes",
        [segment(0, age_hours=1), segment(1), segment(2), ACTIVE],
        FAR,
        FAR,
        ["NOT_EXPIRED", "BEHIND_KEPT", "BEHIND_KEPT", "ACTIVE"],
    ),
    (
        "no holes behind an unindexed one",
        [segment(0), segment(1, is_indexed=False), segment(2)],
        FAR,
        FAR,
        ["EXPIRED", "NOT_INDEXED", "BEHIND_KEPT"],
    ),
    (
        "the batch is full",
        [segment(number) for number in range(5)] + [ACTIVE],
        FAR,
        FAR,
        ["EXPIRED", "EXPIRED", "EXPIRED", "BATCH_FULL", "BATCH_FULL", "ACTIVE"],
    ),
]


@pytest.mark.parametrize(
    ("name", "segments", "indexed", "replicated", "expected"), CASES, ids=[case[0] for case in CASES]
)
def test_decide(name: str, segments: list[SegmentFacts], indexed: int, replicated: int, expected: list[str]) -> None:
    """Each segment gets one reason, oldest first."""
    verdict = decide(Facts(segments, indexed, replicated), NOW_MS, policy(delete_batch_count_max=3))
    assert verdict.trigger is Trigger.HOUR
    assert [decision.reason for decision in verdict.decisions] == expected
    assert [one.base_physical_offset for one in verdict.decisions] == [one.base_physical_offset for one in segments]
    assert all(decision.is_delete == (decision.reason in DELETING) for decision in verdict.decisions)
    assert not any(decision.is_lost for decision in verdict.decisions)


# name, policy, disks, what asks, trigger, reasons of an expired segment, of one that has not, and of the active one
TRIGGERS = [
    ("another hour", {"hours": OTHER_HOUR}, [log_disk(75)], None, None, "NOT_DUE", YOUNG),
    ("the hour", {}, [log_disk(75)], None, "HOUR", OLD, YOUNG),
    ("by hand", {"hours": OTHER_HOUR}, [log_disk(75)], "MANUAL", "MANUAL", OLD, YOUNG),
    ("again", {"hours": OTHER_HOUR}, [log_disk(75)], "RETRY", "RETRY", OLD, YOUNG),
    ("space", {"hours": OTHER_HOUR}, [log_disk(76)], None, "DISK_SPACE", OLD, YOUNG),
    ("unknown space", {"hours": OTHER_HOUR}, [log_disk(None)], None, "DISK_SPACE", OLD, YOUNG),
    ("space of the indexes", {"hours": OTHER_HOUR}, [Disk(INDEX_OWNER, 76)], None, "DISK_SPACE", OLD, YOUNG),
    ("forced", {"hours": OTHER_HOUR}, [log_disk(86)], None, "DISK_FORCED", OLD, "DISK_FORCED"),
    ("forced by hand", {}, [log_disk(86)], "MANUAL", "MANUAL", OLD, "DISK_FORCED"),
    ("not forced", {"disk_forced": False}, [log_disk(99)], None, "DISK_SPACE", OLD, YOUNG),
    ("forced by indexes", {}, [log_disk(10), Disk(INDEX_OWNER, 86)], None, "DISK_FORCED", OLD, "DISK_FORCED"),
    ("of several the emptiest", {}, [log_disk(99), log_disk(60)], None, "HOUR", OLD, YOUNG),
    ("one of several unknown", {}, [log_disk(99), log_disk(None)], None, "DISK_SPACE", OLD, YOUNG),
    ("enough by what expired", {}, [log_disk(86, total_bytes=SIZE * 100)], None, "DISK_FORCED", OLD, YOUNG),
    ("both needed", {}, [log_disk(87, total_bytes=SIZE * 100)], None, "DISK_FORCED", OLD, "DISK_FORCED"),
    ("size", {"hours": OTHER_HOUR, "retention_bytes": SIZE}, [], None, "OVER_SIZE", OLD, "OVER_SIZE"),
    ("size of two", {"hours": OTHER_HOUR, "retention_bytes": 2 * SIZE}, [], None, "OVER_SIZE", OLD, YOUNG),
    ("size not reached", {"hours": OTHER_HOUR, "retention_bytes": 2 * SIZE + 1}, [], None, None, "NOT_DUE", YOUNG),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes", "disks", "requested", "trigger", "old", "young"), TRIGGERS, ids=[row[0] for row in TRIGGERS]
)
def test_triggers(
    name: str,
    changes: dict[str, object],
    disks: list[Disk],
    requested: str | None,
    trigger: str | None,
    old: str,
    young: str,
) -> None:
    """Hours, disks, sizes and people each begin a run for what they are about."""
    segments = [segment(0, age_hours=100), segment(1, age_hours=1), segment(2, age_hours=0, is_active=True)]
    asked = Trigger(requested) if requested else None
    verdict = decide(Facts(segments, FAR, FAR, disks), NOW_MS, policy(**changes), requested=asked)  # type: ignore[arg-type]
    assert verdict.trigger == trigger
    assert [decision.reason for decision in verdict.decisions] == [old, young, "ACTIVE"]


@pytest.mark.parametrize(
    ("unsafe", "percent", "reasons", "lost"),
    [
        ("keep", 50, ["EXPIRED", "NOT_INDEXED", "NOT_EXPIRED"], [False, False, False]),
        ("keep", 99, ["EXPIRED", "NOT_INDEXED", "NOT_INDEXED"], [False, False, False]),
        ("delete_when_forced", 85, ["EXPIRED", "NOT_INDEXED", "NOT_EXPIRED"], [False, False, False]),
        ("delete_when_forced", 86, ["EXPIRED", "EXPIRED", "DISK_FORCED"], [False, True, True]),
        ("delete", 50, ["EXPIRED", "EXPIRED", "NOT_EXPIRED"], [False, True, False]),
    ],
)
def test_what_is_not_safe(unsafe: str, percent: int, reasons: list[str], lost: list[bool]) -> None:
    """What is not indexed goes only where the policy says so, and is told to be lost."""
    segments = [segment(0), segment(1), segment(2, age_hours=1)]
    rules = policy(unsafe_segments=Unsafe(unsafe))
    decisions = decide(Facts(segments, SIZE, FAR, [log_disk(percent)]), NOW_MS, rules).decisions
    assert [decision.reason for decision in decisions] == reasons
    assert [decision.is_lost for decision in decisions] == lost


def test_a_full_disk_stays_full_until_it_has_room() -> None:
    """Above 90 % it is full, and it stays so until it is 85 % again."""
    for was_full, percent, is_full in (
        (False, 90, False),
        (False, 91, True),
        (True, 86, True),
        (True, 85, False),
        (False, 86, False),
        (True, None, False),
    ):
        for disk in (log_disk(percent), Disk(INDEX_OWNER, percent)):
            verdict = decide(Facts([], FAR, FAR, [disk]), NOW_MS, policy(), was_disk_full=was_full)
            assert verdict.is_disk_full is is_full, (was_full, percent)


def test_explanations_have_numbers() -> None:
    """A person can see from the sentence which numbers decided."""
    segments = [replace(segment(0), size_bytes=15), segment(1, age_hours=80), segment(2, age_hours=2.5), ACTIVE]
    decisions = decide(Facts(segments, 15, FAR), NOW_MS, policy()).decisions
    obstacle = "the Indexer has synced the log up to 15 and the segment ends at 2000"
    assert [decision.explanation for decision in decisions] == [
        "its last record is 100.0 hours old, more than the 72 hours that are kept",
        f"its last record is 80.0 hours old, more than the 72 hours that are kept; it stays because {obstacle}",
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


def test_policy_defaults_are_rocketmqs() -> None:
    """75, 85 and 90 percent, and forced."""
    made = Policy(72, 10, Schedule(frozenset(), None))
    assert (made.disk_max_used_percent, made.disk_forcible_percent, made.disk_full_percent) == (75, 85, 90)
    assert made.disk_forced


def test_the_page_has_every_reason() -> None:
    """docs/retention.md explains each reason, trigger, setting for unsafe segments, and refusal of the CommitLog."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "retention.md").read_text()
    refusals = [name.removeprefix("DELETE_REFUSAL_") for name in segment_service_pb2.DeleteRefusal.keys()[1:]]
    assert [name for name in (*Reason, *Trigger, *Unsafe, *refusals) if f"`{name}`" not in page] == []
