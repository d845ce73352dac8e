# SPDX-License-Identifier: Apache-2.0
"""Thirty days of traffic in seconds: the Janitor's deletions, against tables worked out by hand.

A segment is 1 % of the disk, and other data uses 40 %. Records are kept for 72 hours, the hour is 04 (UTC), a round
deletes ten. The Janitor checks at minutes 1, 21 and 41. A segment that is full at hour h has its last record then, so
it has expired at the check after h + 72. The newest segment is the active segment and stays.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import (
    INDEX_OWNER,
    LOG_OWNER,
    Disk,
    IndexFacts,
    LogFacts,
    SegmentFacts,
    TopicRule,
    Trimmed,
)
from services.janitor.engine.history import RunHistory
from services.janitor.engine.policy import HOUR_MS
from services.janitor.engine.retention_loop import RetentionLoop

DAY_COUNT = 30
START_MS = 1_673_308_800_000  # midnight, UTC
SIZE = 1 << 30
OTHERS_PERCENT = 40
LOOK_MINUTES = (1, 21, 41)
Load = Callable[[int], bool]
"""Whether a segment becomes full at an hour, from 1 on."""


class World:
    """Both owners over a simulated disk of 100 segments, and its history."""

    def __init__(self, load: Load, *, tells_size: bool, indexer_is_down: range = range(0)) -> None:
        self.clock = ManualClock(START_MS)
        self.hour = 0
        self.events: Counter[tuple[int, str]] = Counter()
        """Segments that were deleted, by hour and reason."""
        self.full: list[tuple[int, bool]] = []
        """Hours at which appends were refused, and accepted again."""
        self.refused_count = 0
        self.highest_percent = 0
        self._load, self._tells_size, self._indexer_is_down = load, tells_size, indexer_is_down
        self._segments: list[SegmentFacts] = []
        self._indexed = 0
        self._end = 0

    @property
    def percent(self) -> int:
        """Used part of the disk."""
        return OTHERS_PERCENT + len(self._segments)

    def write(self) -> None:
        """Write the segments of an hour."""
        self.hour += 1
        is_full = bool(self.full) and self.full[-1][1]
        if self._load(self.hour) and is_full:
            self.refused_count += 1
        elif self._load(self.hour):
            self._segments.append(SegmentFacts(self._end, SIZE, START_MS + self.hour * HOUR_MS, False, True))
            self._end += SIZE
        if self.hour not in self._indexer_is_down:
            self._indexed = self._end
        self.highest_percent = max(self.highest_percent, self.percent)

    async def topic_rules(self) -> list[TopicRule]:
        """No topic has a rule of its own."""
        return []

    async def log_facts(self) -> LogFacts:
        """The newest segment is the active segment."""
        total_bytes = 100 * SIZE if self._tells_size else 0
        shown = [*self._segments[:-1]]
        shown += [
            SegmentFacts(one.base_physical_offset, SIZE, one.last_store_time_ms, True, True)
            for one in self._segments[-1:]
        ]
        return LogFacts(shown, self._end, [Disk(LOG_OWNER, self.percent, total_bytes)])

    async def index_facts(self) -> IndexFacts:
        """The Indexer stays at its offset while it is down."""
        return IndexFacts(self._indexed, Disk(INDEX_OWNER, 10))

    async def report_disk(self, *, is_full: bool, used_percent: int) -> None:
        """Refuse or accept appends from here on."""
        assert used_percent == self.percent
        if is_full != bool(self.full and self.full[-1][1]):
            self.full.append((self.hour, is_full))

    async def trim_to(self, min_physical_offset: int, *, is_dry_run: bool) -> Trimmed:
        """No files to trim."""
        assert not is_dry_run
        assert min_physical_offset <= self._indexed
        return Trimmed(0)

    async def delete_segment(self, base_physical_offset: int, *, allow_unindexed: bool) -> int:
        """The oldest segment, and never the active segment."""
        first = self._segments.pop(0)
        assert first.base_physical_offset == base_physical_offset
        assert self._segments
        assert allow_unindexed == (first.end_physical_offset > self._indexed)
        return SIZE


async def thirty_days(world: World, policy: JanitorConfig) -> World:
    """Let the days pass."""
    fs = MemoryFs()
    fs.make_directory(Path("/store"))
    history = RunHistory(fs, Path("/store/history"))

    async def no_pause(_: float) -> None:
        return None

    loop = RetentionLoop(
        log=world,
        index=world,
        policy=policy,
        history=history,
        clock=world.clock,
        sleep=no_pause,
    )
    for _ in range(24 * DAY_COUNT):
        start_ms = world.clock.now_ms()
        for minute in LOOK_MINUTES:
            world.clock.advance(start_ms + minute * 60_000 - world.clock.now_ms())
            before = history.last_time_ms
            await loop.check()
            if history.last_time_ms != before:
                (run,), _ = history.page(before_ms=None, count=1)
                for decision in run.decisions:
                    world.events[world.hour, decision.reason.value] += decision.is_delete
        world.clock.advance(start_ms + HOUR_MS - world.clock.now_ms())
        world.write()
    return world


def rules(**changes: object) -> JanitorConfig:
    """72 hours, at 04."""
    pace = {"first_check_delay_ms": 0, "check_interval_ms": 1, "delete_interval_ms": 0, "retry_interval_ms": 1}
    return JanitorConfig(time_zone="UTC", **pace, **changes)  # type: ignore[arg-type]


ROCKETMQ = {"unsafe_segments": "delete"}


def steady(hour: int) -> bool:
    """Eight segments a day, for ever."""
    return hour % 3 == 0


def rush(hour: int) -> bool:
    """Sixty segments in sixty hours from day 5 on, and none before or after."""
    return 120 < hour <= 180


def two_rushes(hour: int) -> bool:
    """The same again on day 15, twice as long: as much as the disk can hold."""
    return rush(hour) or 360 < hour <= 480


def deletions(world: World) -> dict[tuple[int, str], int]:
    """The deletions, without zeros."""
    return {event: count for event, count in world.events.items() if count}


@pytest.mark.parametrize(("changes", "tells_size"), [({}, True), (ROCKETMQ, False)], ids=["safe", "rocketmq"])
async def test_steady(changes: Mapping[str, object], tells_size: bool) -> None:
    """Segment n is full at hour 3n, and is deleted at 04 on the first day d with 3n + 72 < 24d + 4.7: 3n < 24d - 67.3.

    That is n <= 8d - 23, as 24d - 69 is below it and 24d - 66 is not: 1 segment by day 3, and 8 more each day. Before a
    day's hour there are at most the 8d + 1 of the log less the 8(d - 1) - 23 deleted segments: 32, or 72 % of the disk,
    so no disk ever begins a run. Safety changes nothing.
    """
    world = await thirty_days(World(steady, tells_size=tells_size), rules(**changes))
    assert deletions(world) == {(24 * day + 4, "EXPIRED"): 1 if day == 3 else 8 for day in range(3, DAY_COUNT)}
    assert (world.highest_percent, world.full) == (72, [])


async def test_a_rush() -> None:
    """Segments 1 to 60 of the rush are full at its hours 1 to 60, and nothing expires before its hour 73.

    - 86 % are reached with the 46th: it forces a segment out, and so does each of the 14 that follow: 1 to 15 are
      deleted at hours 46 to 60, and 45 stay.
    - 85 % is more than 75, so expired segments are deleted at once: 16 to 25 at hours 88 to 97, then 35 are left, 75 %.
    - Hour 97 is 01 of day 9. The rest waits for 04: by hour 100 of the rush (day 9) 26, 27 and 28 have expired; by hour
      124 (day 10) 29 to 52, in three rounds; by hour 148 (day 11) 53 to 59. Segment 60 is the active segment.
    """
    world = await thirty_days(World(rush, tells_size=True), rules())
    expected = {(120 + hour, "DISK_FORCED"): 1 for hour in range(46, 61)}
    expected |= {(120 + hour, "EXPIRED"): 1 for hour in range(88, 98)}
    expected |= {(220, "EXPIRED"): 3, (244, "EXPIRED"): 24, (268, "EXPIRED"): 7}
    assert deletions(world) == expected
    assert (world.percent, world.highest_percent, world.full) == (41, 86, [])


async def test_a_rush_by_the_rules_of_rocketmq() -> None:
    """By the rules of RocketMQ a round above 85 % deletes ten segments, even if fewer are enough.

    - 1 to 10 are deleted with the 46th segment and 11 to 20 with the 56th; at hour 60 the segments 21 to 60 are there:
      80 %.
    - That is more than 75, so 21 to 25 are deleted as they expire, at hours 93 to 97; then it is 75 %, and the rest is
      as above.
    """
    world = await thirty_days(World(rush, tells_size=False), rules(**ROCKETMQ))
    expected = {(166, "DISK_FORCED"): 10, (176, "DISK_FORCED"): 10}
    expected |= {(120 + hour, "EXPIRED"): 1 for hour in range(93, 98)}
    expected |= {(220, "EXPIRED"): 3, (244, "EXPIRED"): 24, (268, "EXPIRED"): 7}
    assert deletions(world) == expected
    assert (world.percent, world.highest_percent, world.full) == (41, 86, [])


async def test_a_full_disk_that_forces_nothing() -> None:
    """With disk_forced off a full disk refuses appends until expired segments have made room.

    - The 51st segment makes 91 %: appends are refused from hour 51 of the first rush, and 9 segments are refused.
    - Segments 1 to 6 expire at hours 73 to 78: 85 % at hour 78, and appends are accepted again. There are none. 7 to 16
      are deleted at hours 79 to 88, until it is 75 %; 17 to 28 on day 9 (hour 100), 29 to 50 on day 10; 51 is the
      active segment.
    - The second rush finds that single segment, which is deleted at 04, the rush's hour 4. So its 51st segment makes
      91 %, and 27 are refused until six have expired, at its hour 78.
    - From hour 79 on a segment is written and a segment expires each hour: 86 % at most, and nothing is refused any
      more.
    """
    world = await thirty_days(World(two_rushes, tells_size=True), rules(disk_forced=False))
    found = deletions(world)
    expected = {(120 + hour, "EXPIRED"): 1 for hour in range(73, 89)}
    expected |= {(220, "EXPIRED"): 12, (244, "EXPIRED"): 22}
    assert {event: count for event, count in found.items() if event[0] <= 360} == expected
    assert world.full == [(171, True), (198, False), (411, True), (438, False)]
    assert world.refused_count == 9 + 27
    assert {reason for _, reason in found} == {"EXPIRED"}
    assert world.highest_percent == 91


@pytest.mark.parametrize(
    ("unsafe", "expected"),
    [("keep", {150: 20, 168: 10, 172: 3, 196: 8}), ("delete", {76: 1, 100: 8, 124: 8, 148: 8, 172: 8, 196: 8})],
    ids=["safe", "rocketmq"],
)
async def test_an_indexer_that_is_down(unsafe: str, expected: dict[int, int]) -> None:
    """Without the Indexer from hour 3 to 149 no segment is deleted that it has not indexed; RocketMQ's rules ignore it.

    At hour 150 the log has 50 segments and the disk is used to 90 %: two rounds of ten bring it to 70 %. With six more
    it is 76 % at hour 168, where 32 have expired (3n + 72 < 168.7): a third round. By 04 of day 7, hour 172, 33 have
    expired, of which three are still there; then eight a day.
    """
    down, changes = range(3, 150), {"unsafe_segments": unsafe}
    world = await thirty_days(World(steady, tells_size=True, indexer_is_down=down), rules(**changes))
    found = deletions(world)
    assert {hour: count for (hour, _), count in found.items() if hour < 200} == expected
    assert {reason for _, reason in found} == {"EXPIRED"}
