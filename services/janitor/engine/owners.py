# SPDX-License-Identifier: Apache-2.0
"""The owners of the files that the Janitor decides about, as protocols. rpc/owner_clients.py calls the real owners.

Every method raises DependencyUnavailable if the owner can't be reached or can't answer. Methods that change files raise
OwnerRefused if the owner refuses.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.janitor.engine.facts import Expiry, IndexFacts, LogFacts, TopicRule, Trimmed


class LogOwner(Protocol):
    """The CommitLog: owns the segments."""

    async def log_facts(self) -> LogFacts:
        """Return all segments, oldest first, the replicated offset, and the disks."""
        ...

    async def topic_rules(self) -> Sequence[TopicRule]:
        """Return the topics with a rule of their own, by name."""
        ...

    async def expire(self, begins: Mapping[str, int]) -> None:
        """Take the messages of topics below these physical offsets away from readers."""
        ...

    async def report_disk(self, *, is_full: bool, used_percent: int) -> None:
        """Report the verdict on the disks. The CommitLog refuses appends while the disk is full."""
        ...

    async def delete_segment(self, base_physical_offset: int, *, allow_unindexed: bool) -> int:
        """Delete the oldest segment and return the freed bytes. A segment that is already deleted frees 0."""
        ...


class IndexOwner(Protocol):
    """The Indexer: owns queues and index files."""

    async def index_facts(self) -> IndexFacts:
        """Return the end of the indexed and synced records, and the disk."""
        ...

    async def expiry(self, rule: TopicRule, min_store_time_ms: int | None, *, with_consumers: bool = False) -> Expiry:
        """Return which messages of a topic expire: messages that are older, and the oldest messages above its bytes."""
        ...

    async def trim_to(self, min_physical_offset: int, *, is_dry_run: bool) -> Trimmed:
        """Drop index entries of records below the offset, or return the result of a dry run."""
        ...
