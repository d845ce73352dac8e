# SPDX-License-Identifier: Apache-2.0
"""The decisions of the policy, row by row."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from msgspec.structs import replace
from reput.commitlog.v1 import segment_service_pb2

from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import INDEX_OWNER, LOG_OWNER, Disk, Facts, SegmentFacts
from services.janitor.engine.policy import DELETING, HOUR_MS, ForDisk, Reason, Trigger, decide, reliefs
from tests.unit.services.janitor.support import FAR, NOW_HOUR, NOW_MS, SIZE, policy, segment

ACTIVE = segment(9, age_hours=0, is_active=True)
OLD, YOUNG = "EXPIRED", "NOT_EXPIRED"
OTHER_HOUR = ((NOW_HOUR + 1) % 24,)


def log_disk(percent: int | None, **changes: int) -> Disk:
    """The CommitLog's disk."""
    return Disk(LOG_OWNER, percent, **changes)


# name, segments, synced offset of the Indexer, replicated offset, expected reasons
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
    """Each segment gets a reason, oldest first."""
    verdict = decide(Facts(segments, indexed, replicated), NOW_MS, policy(delete_batch_count_max=3))
    assert verdict.trigger is Trigger.HOUR
    assert [decision.reason for decision in verdict.decisions] == expected
    assert [one.base_physical_offset for one in verdict.decisions] == [one.base_physical_offset for one in segments]
    assert all(decision.is_delete == (decision.reason in DELETING) for decision in verdict.decisions)
    assert not any(decision.is_lost for decision in verdict.decisions)


# name, policy, disks, request, trigger, reasons of an expired segment, of a younger segment, and of the active segment
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
    ("a disk of the indexes forces nothing", {}, [log_disk(10), Disk(INDEX_OWNER, 99)], None, "DISK_SPACE", OLD, YOUNG),
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
    """Hours, disks, sizes and requests each begin a run for their own purpose."""
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
    """An unindexed segment is deleted only if the policy allows it, and is reported as lost."""
    segments = [segment(0), segment(1), segment(2, age_hours=1)]
    rules = policy(unsafe_segments=unsafe)
    decisions = decide(Facts(segments, SIZE, FAR, [log_disk(percent)]), NOW_MS, rules).decisions
    assert [decision.reason for decision in decisions] == reasons
    assert [decision.is_lost for decision in decisions] == lost


def test_a_full_disk_stays_full_until_it_has_room() -> None:
    """A disk is full from 90 % on until it is at 85 % again; the Indexer's full disk stops no appends."""
    for was_full, percent, is_full in (
        (False, 90, False),
        (False, 91, True),
        (True, 86, True),
        (True, 85, False),
        (False, 86, False),
        (True, None, False),
    ):
        disks = [log_disk(percent), Disk(INDEX_OWNER, 100)]
        verdict = decide(Facts([], FAR, FAR, disks), NOW_MS, policy(), was_disk_full=was_full)
        assert verdict.is_disk_full is is_full, (was_full, percent)


# own bytes of the indexes of a disk of 1,000, end of the segments that would help, policy, outcome
NOTES = [
    (849, 0, {}, ForDisk.NOT_OURS),
    (850, 0, {}, ForDisk.NOT_OURS),
    (851, 0, {}, ForDisk.NO_GAIN),
    (860, 2 * SIZE, {}, ForDisk.WITH_INDEXES),
    (860, 2 * SIZE, {"disk_forced": False}, ForDisk.NOT_FORCED),
]


@pytest.mark.parametrize(("own_bytes", "end", "changes", "outcome"), NOTES)
def test_what_a_disk_of_the_indexes_makes_of_segments(
    own_bytes: int, end: int, changes: dict[str, object], outcome: ForDisk
) -> None:
    """Only segments whose index files free enough of the disk are deleted early, and the note has the outcome."""
    segments = [segment(number, age_hours=1) for number in range(4)] + [ACTIVE]
    disk = Disk(INDEX_OWNER, 90, total_bytes=1000, free_bytes=100, own_bytes=own_bytes)
    facts = Facts(segments, FAR, FAR, [log_disk(50), disk], relief_end_physical_offset=end)
    verdict = decide(facts, NOW_MS, policy(**changes))
    deleted = [one for one in verdict.decisions if one.is_delete]
    assert [one.reason for one in deleted] == (["DISK_FORCED"] * 2 if outcome is ForDisk.WITH_INDEXES else [])
    assert (verdict.trigger == "DISK_FORCED") is bool(deleted)
    (note,) = verdict.disk_notes
    assert note.outcome is outcome
    assert note.text == (
        f"the indexer's file system is used to 90 %: of its 1000 bytes {own_bytes} are the indexes' files, "
        f"{900 - own_bytes} others'; {outcome}"
    )


def test_what_several_disks_of_the_log_make_of_segments() -> None:
    """A full disk of the log has a note; as long as another has room, no segment is deleted for it."""
    full = Disk(LOG_OWNER, 99, total_bytes=1000, free_bytes=10, path="/a", own_bytes=40)
    for percent, outcome in ((60, ForDisk.EMPTIER_DISK), (86, ForDisk.DELETED)):
        verdict = decide(Facts([], FAR, FAR, [full, log_disk(percent)]), NOW_MS, policy())
        assert verdict.disk_notes[0].outcome is outcome
        told = "of its 1000 bytes 40 are the log's segments, 950 others'"
        assert verdict.disk_notes[0].text == f"the commitlog's file system of /a is used to 99 %: {told}; {outcome}"


def test_segments_that_may_go_for_the_indexes() -> None:
    """The oldest segments of a batch that are indexed and replicated, and never the active segment."""
    segments = [segment(number) for number in range(4)] + [segment(4, is_active=True)]
    assert reliefs(Facts(segments, FAR, FAR), policy()) == [SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE]
    assert reliefs(Facts(segments, FAR, FAR), policy(delete_batch_count_max=2)) == [SIZE, 2 * SIZE]
    assert reliefs(Facts(segments, 2 * SIZE, FAR), policy()) == [SIZE, 2 * SIZE]
    assert reliefs(Facts(segments, FAR, 3 * SIZE - 1), policy()) == [SIZE, 2 * SIZE]
    segments[1] = segment(1, is_indexed=False)
    assert reliefs(Facts(segments, FAR, FAR), policy()) == [SIZE]


def test_explanations_have_numbers() -> None:
    """An explanation has the numbers that decided."""
    segments = [replace(segment(0), size_bytes=15), segment(1, age_hours=80), segment(2, age_hours=2.5), ACTIVE]
    decisions = decide(Facts(segments, 15, FAR), NOW_MS, policy()).decisions
    obstacle = "the Indexer has synced the log up to 15 and the segment ends at 2000"
    assert [decision.explanation for decision in decisions] == [
        "its last record is 100.0 hours old, more than the 72 hours that are kept",
        f"its last record is 80.0 hours old, more than the 72 hours that are kept; it stays because {obstacle}",
        "its last record is 2.5 hours old, records are kept for 72 hours",
        "it takes appends",
    ]


def test_explanations_say_what_became_of_the_clock() -> None:
    """An explanation names a record from the future, and ages that the clock does not count."""
    future = replace(segment(0), last_store_time_ms=NOW_MS + 48 * HOUR_MS)
    told = [
        decide(Facts([one], FAR, FAR), NOW_MS, policy(), is_clock_believed=is_believed).decisions[0].explanation
        for one, is_believed in ((future, True), (segment(1, age_hours=2), False))
    ]
    assert told == [
        "its last record is 48.0 hours ahead of the clock, records are kept for 72 hours",
        "its last record is 2.0 hours old without the clock, which is not believed, records are kept for 72 hours",
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
    rules = JanitorConfig(delete_when="04", time_zone=zone)
    assert rules.is_due(1_673_308_800_000 + minutes * 60_000) is due


def test_policy_defaults_are_rocketmqs() -> None:
    """75, 85 and 90 percent, and forced."""
    made = JanitorConfig()
    assert (made.disk_max_used_percent, made.disk_forcible_percent, made.disk_full_percent) == (75, 85, 90)
    assert made.disk_forced


def test_the_page_has_every_reason() -> None:
    """docs/retention.md explains each reason, trigger, setting for unsafe segments, and refusal of the CommitLog."""
    page = (Path(__file__).resolve().parents[4] / "docs" / "retention.md").read_text()
    unsafe = get_args(get_type_hints(JanitorConfig)["unsafe_segments"])
    refusals = [name.removeprefix("DELETE_REFUSAL_") for name in segment_service_pb2.DeleteRefusal.keys()[1:]]
    assert [name for name in (*Reason, *Trigger, *unsafe, *refusals) if f"`{name}`" not in page] == []
