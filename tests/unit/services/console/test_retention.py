# SPDX-License-Identifier: Apache-2.0
"""The time line, the forecast and the trials of the console's page of retention."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from reput.common.v1.consumer_pb2 import ConsumerBelow
from reput.janitor.v1 import retention_service_pb2 as pb

from services.console.pages.chart import WIDTH
from services.console.pages.operate.forecast import Extent, forecast_of
from services.console.pages.operate.retention import (
    BLOCKS_MAX,
    HOUR_MS,
    Answers,
    Kind,
    SegmentRow,
    Trial,
    earliest_ms,
    retention_page,
    time_line,
    tried,
)

NOW_MS = 1_000 * HOUR_MS
GIB = 1 << 30


def row(first_h: float, last_h: float, kind: Kind = "kept", reason: str = "NOT_EXPIRED") -> SegmentRow:
    first_ms, last_ms = (round(NOW_MS - hours * HOUR_MS) for hours in (first_h, last_h))
    return SegmentRow(0, GIB, GIB, first_ms, last_ms, True, 0, kind, reason, "", "")


def test_time_line() -> None:
    """Segments lie in time, the active segment lasts until now, and the retention begins inside or before the line."""
    line = time_line([row(10, 5, "waits", "NOT_DUE"), row(5, 2), row(2, 1, "active", "ACTIVE")], 5, NOW_MS)
    assert line is not None
    assert [(one.x, one.kind) for one in line.blocks] == [(0, "waits"), (WIDTH / 2, "kept"), (WIDTH * 0.8, "active")]
    assert line.blocks[-1].end_ms == NOW_MS
    assert line.limit_x == WIDTH / 2
    assert msgspec.structs.replace(line).limit_x == line.limit_x
    young = time_line([row(1, 0.5)], 72, NOW_MS)
    assert young is not None
    assert young.limit_x is None
    assert time_line([], 72, NOW_MS) is None


@pytest.mark.parametrize("count", [BLOCKS_MAX, BLOCKS_MAX * 10 + 7, 5_000])
def test_a_long_log_has_few_blocks(count: int) -> None:
    """Neighbours of a kind share a block, all segments are counted, and no block is outside of the line."""
    line = time_line([row(count - at, count - at - 0.5) for at in range(count)], 72, NOW_MS)
    assert line is not None
    assert len(line.blocks) <= BLOCKS_MAX
    assert sum(one.segment_count for one in line.blocks) == count
    assert all(0 <= one.x < WIDTH and one.width > 0 for one in line.blocks)


def test_times_of_the_future_stay_on_the_line() -> None:
    """A segment whose store times are ahead of the clock ends now."""
    line = time_line([row(2, -50), row(-50, -60)], 1, NOW_MS)
    assert line is not None
    assert all(0 <= one.x < WIDTH for one in line.blocks)


def policy(**changes: Any) -> Any:
    known = {
        "retention_hours": 72, "retention_bytes": 0, "disk_forced": False, "disk_forcible_percent": 85,
        "disk_full_percent": 90,
    }  # fmt: skip
    return SimpleNamespace(**(known | changes))


def disk(total_gib: int, free_gib: int, reserved_gib: int = 0) -> Any:
    usable_gib = total_gib - reserved_gib
    return SimpleNamespace(
        service="commitlog",
        total_bytes=total_gib * GIB,
        free_bytes=free_gib * GIB,
        used_percent=100 - 100 * free_gib // usable_gib,
    )


def extents(hours: int) -> list[Extent]:
    return [Extent(NOW_MS - (at + 1) * HOUR_MS, NOW_MS - at * HOUR_MS, GIB, GIB) for at in reversed(range(hours))]


def test_forecast() -> None:
    """A log of 1 GiB an hour settles at its retention, or fills its disk at a foreseen time."""
    fits = forecast_of(extents(48), [disk(200, 150)], policy(), NOW_MS)
    assert fits is not None
    assert (round(fits.bytes_per_second * 3_600 / GIB, 6), fits.settles_at_bytes, fits.fills_in_s) == (
        1,
        72 * GIB,
        None,
    )
    fills = forecast_of(extents(48), [disk(100, 20)], policy(), NOW_MS)
    assert fills is not None
    assert fills.fills_in_s == pytest.approx(10 * 3_600)
    assert "in 10 h its disks are used to 90 %, and then appends are refused" in fills.sentence
    forced = forecast_of(extents(48), [disk(100, 20)], policy(disk_forced=True), NOW_MS)
    assert forced is not None
    assert "85 %, and then the oldest segments go" in forced.sentence
    reserved = forecast_of(extents(48), [disk(120, 20, reserved_gib=20)], policy(), NOW_MS)
    assert reserved is not None
    assert reserved.room_bytes == fills.room_bytes
    limited = forecast_of(extents(48), [disk(100, 20)], policy(retention_bytes=50 * GIB), NOW_MS)
    assert limited is not None
    assert limited.fills_in_s is None
    assert forecast_of(extents(48), [], policy(), NOW_MS) is None
    assert forecast_of([Extent(NOW_MS - 1_000, NOW_MS, 5, 5)], [disk(9, 9)], policy(), NOW_MS) is None


def test_the_rate_is_that_of_the_last_day() -> None:
    """Bytes before the window do not count, and a segment across its begin counts in part."""
    old = Extent(NOW_MS - 100 * HOUR_MS, NOW_MS - 50 * HOUR_MS, 500 * GIB, GIB)
    across = Extent(NOW_MS - 48 * HOUR_MS, NOW_MS, 48 * GIB, GIB)
    found = forecast_of([old, across], [disk(9, 9)], policy(), NOW_MS)
    assert found is not None
    assert round(found.bytes_per_second * 3_600 / GIB, 6) == 1


def below(*places: tuple[str, str, int, int, int]) -> list[ConsumerBelow]:
    names = ("group", "topic", "queue_id", "queue_offset", "min_queue_offset")
    return [ConsumerBelow(**dict(zip(names, place, strict=True))) for place in places]


def test_a_trial_counts_what_groups_would_miss() -> None:
    """Messages that are gone, or go by the policy in force, are no cost of an earlier deletion."""
    decisions = [pb.Decision(action=pb.ACTION_DELETE, size_bytes=GIB), pb.Decision(action=pb.ACTION_KEEP, size_bytes=9)]
    now = pb.Run(consumers=below(("a", "t", 0, 5, 10), ("gone", "t", 0, 0, 50)))
    other = pb.Run(
        decisions=decisions, consumer_count=9,
        consumers=below(("a", "t", 0, 5, 50), ("a", "t", 1, 7, 17), ("gone", "t", 0, 0, 50), ("b", "u", 0, 0, 1)),
    )  # fmt: skip
    found = tried(Trial("1"), now, other)
    assert [(one.group, one.topic, one.message_count, one.queue_count) for one in found.losses] == [
        ("a", "t", 50, 2),
        ("b", "u", 1, 1),
    ]
    assert (found.segment_count, found.freed_bytes, found.is_cut) == (1, GIB, True)
    assert [one.topic for one in tried(Trial("1", topic="u"), now, other).losses] == ["u"]
    assert not tried(Trial("1"), now, None).is_decided


def test_without_answers() -> None:
    """A page without any answer is a page."""
    page = retention_page(Answers(), Trial(), 99, NOW_MS, ())
    assert (page.number, page.time_line, page.forecast, page.policy) == (1, None, None, None)


def kept_row(last_ms: int, kind: Kind = "kept") -> SegmentRow:
    return SegmentRow(0, GIB, GIB, last_ms - 1_000, last_ms, True, 0, kind, "", "", "")


def test_the_date_before_which_a_segment_stays() -> None:
    """It is the first hour of deletions after its age, in the zone of the policy; without an operator's token, too."""
    rules = policy(retention_hours=2, delete_hours=[4], time_zone="Europe/Berlin")
    day_ms = 1_795_651_200_000  # 2026-11-26 00:00 UTC, 01:00 in Berlin
    four = day_ms + 3 * HOUR_MS
    for last_ms, now_ms, wanted in (
        (day_ms, day_ms, four),
        (day_ms + HOUR_MS, day_ms, four),
        (day_ms + HOUR_MS + 600_000, day_ms, four + 600_000),
        (day_ms + 2 * HOUR_MS, day_ms, four + 24 * HOUR_MS),
        (day_ms - 90 * HOUR_MS, four + 1, four + 1),
        (day_ms - 90 * HOUR_MS, four + HOUR_MS, four + 24 * HOUR_MS),
    ):
        assert earliest_ms(kept_row(last_ms), rules, now_ms) == wanted
    assert earliest_ms(kept_row(day_ms, "active"), rules, day_ms) is None
    assert earliest_ms(kept_row(day_ms), None, day_ms) is None
    wrong: list[dict[str, Any]] = [
        {"time_zone": "No/Where"}, {"time_zone": "../etc"}, {"delete_hours": []}, {"retention_hours": 10**8},
    ]  # fmt: skip
    for changes in wrong:
        assert earliest_ms(kept_row(day_ms), policy(**{**vars(rules), **changes}), day_ms) is None


def test_a_limit_of_a_hundred_percent_is_off_and_a_full_disk_is_no_room() -> None:
    """No sentence names a share above 100 %, and disks that get no new segments have no room."""
    off = forecast_of(extents(48), [disk(100, 20)], policy(disk_full_percent=100), NOW_MS)
    assert off is not None
    assert "its disks are full, and then appends are refused" in off.sentence
    assert "100 %" not in off.sentence
    full = forecast_of(extents(48), [disk(200, 150)], policy(), NOW_MS, is_too_full=True)
    assert full is not None
    assert full.sentence.endswith("all its disks are too full for new segments.")
