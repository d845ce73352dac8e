# SPDX-License-Identifier: Apache-2.0
"""Log: the log that contains the journal, as the engine sees it; `rpc/log` implements it over gRPC."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from libs.formats.config.topic_share import Place as QueuePlace
from services.delivery.engine.ports.messages import JournaledMessage, Written


class TopicQueues(Struct, frozen=True):
    """The queues of a topic that the log has: all, or its share if the topic lies on several shards."""

    ids: Sequence[int]
    sealed: frozenset[int] = frozenset()
    """Queues that take no messages of clients any more: other queues have their keys."""
    parents: Mapping[int, Sequence[QueuePlace]] = field(default_factory=dict)
    """The sealed queues that had the keys of a queue before, at any shards, by the queue's number."""
    share_version: int = 0
    """Grows with each change of the share. 0 for a whole topic. A topic that is made again begins anew."""


class Log(Protocol):
    """The log that contains the journal."""

    async def next_number(self) -> int:
        """Return the number that the journal's next record has to have. Raises DependencyUnavailable and LogFollows."""
        ...

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """Append a record to the journal, and messages to their topics, all or nothing.

        `is_safe`: wait until the record is as durable as the log promises, which covers all records before it;
        otherwise wait until it is in the log's memory. Raises DependencyUnavailable, LogFollows when the log does not
        lead, AppendRefused for messages that the log never takes, and JournalLost when it is unknown whether the record
        was appended, or when another process wrote the record of this number. Raises JournalNotDurable when the record
        was appended and a failover may undo it.
        """
        ...

    async def ahead_ms(self) -> int:
        """Return how far the log's time is ahead of its machine's clock. Raises DependencyUnavailable."""
        ...

    async def active_segment(self) -> int:
        """Return the physical offset of the active segment. Raises DependencyUnavailable, and JournalLost.

        JournalLost: the log follows another log by now. Then this ownership ends, and does not continue with outdated
        state if the log leads again.
        """
        ...

    async def end_offset(self) -> int:
        """Return the physical offset of the end of the log. Raises DependencyUnavailable."""
        ...

    async def topic_queues(self, topic: str) -> TopicQueues:
        """Return the queues of a topic that are read. Raises TopicNotFound and DependencyUnavailable."""
        ...

    async def refusal(self, topic: str) -> str:
        """Return why a topic refuses messages of clients, "" if it accepts them. Raises DependencyUnavailable."""
        ...
