# SPDX-License-Identifier: Apache-2.0
"""The owners of the files that the Janitor decides about, as protocols. rpc/owner_clients.py speaks to the real ones.

Every method raises OwnerUnavailable if the owner can't be reached or can't answer; the ones that change something raise
OwnerRefused if it says no.
"""

from typing import Protocol

from services.janitor.engine.policy import SegmentFacts


class LogOwner(Protocol):
    """The CommitLog: owns the segments."""

    async def list_segments(self) -> list[SegmentFacts]:
        """Return all segments, oldest first."""
        ...

    async def delete_segment(self, base_physical_offset: int) -> int:
        """Delete the oldest segment and return the bytes that were freed. A segment that is gone already frees 0."""
        ...


class IndexOwner(Protocol):
    """The Indexer: owns queues and index files."""

    async def indexed_physical_offset(self) -> int:
        """Return the end of what is indexed and synced, exclusive."""
        ...

    async def trim_to(self, min_physical_offset: int) -> int:
        """Forget entries of records below the offset and return the bytes that were freed."""
        ...
