# SPDX-License-Identifier: Apache-2.0
"""The owners of the files that the Janitor decides about, as protocols. rpc/owner_clients.py speaks to the real ones.

Every method raises DependencyUnavailable if the owner can't be reached or can't answer; methods that change something
raise OwnerRefused if the owner says no.
"""

from typing import Protocol

from services.janitor.engine.facts import IndexFacts, LogFacts, Trimmed


class LogOwner(Protocol):
    """The CommitLog: owns the segments."""

    async def log_facts(self) -> LogFacts:
        """Return all segments, oldest first, what in-sync replicas have, and the disk."""
        ...

    async def report_disk(self, *, is_full: bool, used_percent: int) -> None:
        """Tell the verdict on the disks. A full disk refuses appends."""
        ...

    async def delete_segment(self, base_physical_offset: int, *, allow_unindexed: bool) -> int:
        """Delete the oldest segment and return the bytes that were freed. A segment that is gone already frees 0."""
        ...


class IndexOwner(Protocol):
    """The Indexer: owns queues and index files."""

    async def index_facts(self) -> IndexFacts:
        """Return the end of what is indexed and synced, and the disk."""
        ...

    async def trim_to(self, min_physical_offset: int, *, is_dry_run: bool) -> Trimmed:
        """Forget entries of records below the offset, or tell what that would be."""
        ...
