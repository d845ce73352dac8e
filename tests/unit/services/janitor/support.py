# SPDX-License-Identifier: Apache-2.0
"""Owners in memory and builders for the Janitor's tests."""

from services.janitor.engine.policy import HOUR_MS, SegmentFacts
from services.janitor.errors import JanitorError

NOW_MS = 1_700_000_000_000
SIZE = 1000


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
    """Both owners; `calls` is what they were asked to change, in order. `failures` maps a call to an error."""

    def __init__(self, segments: list[SegmentFacts], *, indexed_physical_offset: int = 1 << 40) -> None:
        self.segments = segments
        self.indexed = indexed_physical_offset
        self.calls: list[tuple[str, int]] = []
        self.failures: dict[str, JanitorError] = {}

    async def list_segments(self) -> list[SegmentFacts]:
        self._fail("list_segments")
        return list(self.segments)

    async def indexed_physical_offset(self) -> int:
        self._fail("indexed_physical_offset")
        return self.indexed

    async def trim_to(self, min_physical_offset: int) -> int:
        self._fail(f"trim_to {min_physical_offset}")
        self.calls.append(("trim", min_physical_offset))
        return 7

    async def delete_segment(self, base_physical_offset: int) -> int:
        self._fail(f"delete_segment {base_physical_offset}")
        assert self.segments[0].base_physical_offset == base_physical_offset
        self.calls.append(("delete", base_physical_offset))
        return self.segments.pop(0).size_bytes

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise self.failures[call]
