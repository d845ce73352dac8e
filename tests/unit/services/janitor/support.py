# SPDX-License-Identifier: Apache-2.0
"""Owners in memory and builders for the Janitor's tests."""

from collections.abc import Callable, Mapping, Sequence

from libs.requests.errors import ServiceError
from services.janitor.config import JanitorConfig
from services.janitor.engine.facts import (
    INDEX_OWNER,
    LOG_OWNER,
    ConsumerBelow,
    Disk,
    Expiry,
    IndexFacts,
    LogFacts,
    SegmentFacts,
    TopicRule,
    Trimmed,
)
from services.janitor.engine.policy import HOUR_MS

NOW_MS = 1_700_000_000_000
SIZE = 1000


NOW_HOUR = NOW_MS // HOUR_MS % 24
FAR = 1 << 40
CONSUMER = ConsumerBelow("billing", "orders", 2, 5, 9)


def policy(*, hours: tuple[int, ...] = (NOW_HOUR,), **changes: object) -> JanitorConfig:
    """The defaults, due now unless told otherwise."""
    delete_when = ";".join(f"{hour:02}" for hour in hours)
    return JanitorConfig(delete_when=delete_when, time_zone="UTC", **changes)  # type: ignore[arg-type]


def segment(number: int, *, age_hours: float = 100, **changes: object) -> SegmentFacts:
    """A segment that expires under a retention of 72 hours unless told otherwise."""
    facts: dict[str, object] = {
        "base_physical_offset": number * SIZE,
        "size_bytes": SIZE,
        "last_store_time_ms": NOW_MS - round(age_hours * HOUR_MS),
        "is_active": False,
        "is_indexed": True,
        **changes,
    }
    return SegmentFacts(**facts)  # type: ignore[arg-type]


class Owners:
    """Both owners; `calls` are the changes that they were asked for, in order. `failures` maps a call to an error."""

    def __init__(self, segments: list[SegmentFacts], *, indexed_physical_offset: int = 1 << 40) -> None:
        self.segments = segments
        self.indexed = indexed_physical_offset
        self.replicated = FAR
        self.disks = {LOG_OWNER: Disk(LOG_OWNER, 50), INDEX_OWNER: Disk(INDEX_OWNER, 50)}
        self.calls: list[tuple[str, int]] = []
        self.reports: list[tuple[bool, int]] = []
        self.lost: list[int] = []
        self.rules: list[TopicRule] = []
        self.expiries: dict[str, Expiry | Exception] = {}
        self.asked: list[tuple[TopicRule, int | None]] = []
        self.asked_for_consumers: list[TopicRule] = []
        self.expired: list[dict[str, int]] = []
        self.index_files: list[tuple[int, int]] = []
        """End of the records that a file of the indexes has, and its bytes; oldest first."""
        self.other_bytes = 0
        """Bytes of others on the Indexer's disk."""
        self.dry_run_count = 0
        self.after_delete: Callable[[], object] = lambda: None
        self.failures: dict[str, ServiceError] = {}

    async def topic_rules(self) -> Sequence[TopicRule]:
        """See LogOwner."""
        return self.rules

    async def expire(self, begins: Mapping[str, int]) -> None:
        """See LogOwner."""
        self.expired.append(dict(begins))

    async def expiry(self, rule: TopicRule, min_store_time_ms: int | None, *, with_consumers: bool = False) -> Expiry:
        """See IndexOwner."""
        self.asked.append((rule, min_store_time_ms))
        if with_consumers:
            self.asked_for_consumers.append(rule)
        found = self.expiries.get(rule.topic, Expiry())
        if isinstance(found, Exception):
            raise found
        return found

    async def log_facts(self) -> LogFacts:
        self._fail("log_facts")
        disks = [disk for service, disk in self.disks.items() if service == LOG_OWNER]
        return LogFacts(list(self.segments), self.replicated, disks)

    async def index_facts(self) -> IndexFacts:
        self._fail("index_facts")
        return IndexFacts(self.indexed, self.index_disk())

    def index_disk(self) -> Disk:
        """The Indexer's disk of 1,000 bytes, or the disk in `disks` if it has no bytes."""
        used_bytes = self.own_bytes + self.other_bytes
        if not used_bytes:
            return self.disks[INDEX_OWNER]
        return Disk(INDEX_OWNER, -(-used_bytes // 10), total_bytes=1000, free_bytes=1000 - used_bytes)

    @property
    def own_bytes(self) -> int:
        return sum(size_bytes for _, size_bytes in self.index_files)

    async def report_disk(self, *, is_full: bool, used_percent: int) -> None:
        self._fail("report_disk")
        self.reports.append((is_full, used_percent))

    async def trim_to(self, min_physical_offset: int, *, is_dry_run: bool) -> Trimmed:
        self._fail(f"trim_to {min_physical_offset}")
        assert min_physical_offset <= self.indexed
        freed = [file for file in self.index_files if file[0] <= min_physical_offset]
        freed_bytes = sum(size_bytes for _, size_bytes in freed)
        if is_dry_run:
            self.dry_run_count += 1
            return Trimmed(freed_bytes, (CONSUMER,), 3, self.own_bytes)
        self.calls.append(("trim", min_physical_offset))
        self.index_files = self.index_files[len(freed) :]
        return Trimmed(freed_bytes, (CONSUMER,), 3)

    async def delete_segment(self, base_physical_offset: int, *, allow_unindexed: bool) -> int:
        self._fail(f"delete_segment {base_physical_offset}")
        assert self.segments[0].base_physical_offset == base_physical_offset
        self.calls.append(("delete", base_physical_offset))
        if allow_unindexed:
            self.lost.append(base_physical_offset)
        self.after_delete()
        return self.segments.pop(0).size_bytes

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise self.failures[call]
