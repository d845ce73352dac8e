# SPDX-License-Identifier: Apache-2.0
"""JanitorConfig: every setting of the Janitor, with its unit and RocketMQ's default where RocketMQ has the setting.

Values only. Bounds are checked when the configuration is loaded; relations between fields on construction.
The addresses and the telemetry of the service are in the process shell's settings.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from libs.importance import Advanced, Basic

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Percent = Annotated[int, Meta(ge=30, le=100)]

_HOURS = re.compile(r"(?:[01][0-9]|2[0-3])(?:;(?:[01][0-9]|2[0-3]))*")


@dataclass(frozen=True, kw_only=True, slots=True)
class JanitorConfig:
    """Settings of the Janitor service. Times are in milliseconds unless the name says otherwise."""

    data_dir: Basic[Path] = Path("reput-data")
    """Directory whose reput/ folder holds the history of runs. Made when it is missing, if create_store allows it."""

    create_store: Advanced[bool] = True
    """Whether a start may make a store in a data_dir that is missing or empty.

    Set it to false once the store is there: a start without its disk is refused then, and no new store takes its place.
    """

    retention_hours: Basic[Annotated[int, Meta(ge=0, le=24 * 365 * 100)]] = 72
    """Segments whose last record is older than this expire; 0 expires every full segment that is indexed."""

    retention_bytes: Basic[NotNegative] = 0
    """The oldest segments are deleted, at any age, while the other segments have so many bytes; 0 is no such limit."""

    disk_max_used_percent: Basic[Annotated[int, Meta(ge=10, le=100)]] = 75
    """Above this used part of a disk expired segments are deleted at once, at any hour.

    RocketMQ's diskMaxUsedSpaceRatio."""

    disk_forcible_percent: Basic[Percent] = 85
    """Above this used part the oldest segments are deleted, expired or not, if disk_forced is set and the disk gains by
    it.

    RocketMQ's diskSpaceCleanForciblyRatio."""

    disk_full_percent: Basic[Percent] = 90
    """Above this used part of the log's disk the CommitLog refuses appends, until it is disk_forcible_percent again.

    RocketMQ's diskSpaceWarningLevelRatio."""

    disk_forced: Basic[bool] = True
    """Whether segments that have not expired may be deleted for a disk that gains by it.

    Otherwise the log's own disk fills up and refuses appends.

    RocketMQ's cleanFileForciblyEnable."""

    unsafe_segments: Advanced[Literal["keep", "delete_when_forced", "delete"]] = "keep"
    """Treatment of segments that are due for deletion, but that the Indexer has not indexed or a replica lacks."""

    delete_when: Basic[str] = "04"
    """Hours of the day in which expired segments are deleted: two digits each, separated by semicolons."""

    time_zone: Basic[str] = ""
    """Time zone of delete_when, an IANA name such as Europe/Berlin; empty is the machine's own."""

    delete_batch_count_max: Advanced[Annotated[int, Meta(ge=1, le=1000)]] = 10
    """Most segments that a scheduled run deletes; a manual run may delete 20 times as many."""

    delete_interval_ms: Advanced[NotNegative] = 100
    """Pause between two deletions."""

    first_check_delay_ms: Advanced[NotNegative] = 60_000
    """Time from the start of the service to the first check whether a run is due."""

    check_interval_ms: Advanced[Positive] = 10_000
    """Time between two checks."""

    topic_check_interval_ms: Advanced[Positive] = 60_000
    """Time between two looks for expired messages of topics with a rule of their own."""

    clock_ahead_ms_max: Advanced[NotNegative] = 3_600_000
    """How far the clock may be ahead of the newest message and of the time that the Janitor has watched since.

    If it is further ahead, ages are counted without it: segments that have expired by the clock alone are kept.
    """

    clock_jump_ms_max: Advanced[NotNegative] = 60_000
    """How far the clock may move against monotonic time between two checks.

    After a longer jump ages are counted by the clock from before the jump, which continues with monotonic time.
    """

    retry_interval_ms: Advanced[Positive] = 120_000
    """Time until a segment that was being read is tried again outside of the hours of delete_when.

    RocketMQ's redeleteHangedFileInterval."""

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of delete_when, ascending."""
        return tuple(sorted({int(hour) for hour in self.delete_when.split(";")}))

    def is_due(self, now_ms: int) -> bool:
        """Return whether delete_when has the hour of this moment."""
        zone = ZoneInfo(self.time_zone) if self.time_zone else None
        return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone).hour in self.delete_hours

    def __post_init__(self) -> None:
        """Refuse settings that are invalid, alone or in combination."""
        if not _HOURS.fullmatch(self.delete_when):
            allowed = "hours from 00 to 23 with two digits each, separated by semicolons"
            raise ValueError(f"delete_when is {self.delete_when!r}, but must be {allowed}")
        if not self.disk_max_used_percent <= self.disk_forcible_percent <= self.disk_full_percent:
            names = ("disk_max_used_percent", "disk_forcible_percent", "disk_full_percent")
            shown = ", ".join(f"{name} is {getattr(self, name)}" for name in names)
            raise ValueError(f"{shown}: they must not descend")
        if self.time_zone:
            try:
                ZoneInfo(self.time_zone)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ValueError(f"time_zone {self.time_zone!r} is not a known IANA time zone") from error
