# SPDX-License-Identifier: Apache-2.0
"""The log that the journal is in, as the engine sees it; `rpc/log` implements it over gRPC."""

from collections.abc import Sequence
from typing import Protocol

from services.delivery.engine.ports.messages import JournaledMessage, Written


class Log(Protocol):
    """The log that the journal is in."""

    async def next_number(self) -> int:
        """Return the number that the journal's next record has to have. Raises DependencyUnavailable and LogFollows."""
        ...

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """Append a record to the journal, and these messages to their topics, all or nothing.

        `is_safe`: wait until it is as durable as the log promises, which covers all records before it, else for the
        log's memory. Raises DependencyUnavailable, LogFollows when the log does not lead, AppendRefused for messages
        that it never takes, and JournalLost when nobody knows whether it was appended, and when it was not because
        another process wrote the record of this number; as JournalNotDurable when it was, and a failover may undo it.
        """
        ...

    async def ahead_ms(self) -> int:
        """Return how far the log's time is ahead of its machine's clock. Raises DependencyUnavailable."""
        ...

    async def active_segment(self) -> int:
        """Return the physical offset of the segment that is written. Raises DependencyUnavailable.

        JournalLost where the log follows another one by now, so that nobody goes on by what it knows if it leads again.
        """
        ...

    async def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic are read. Raises TopicNotFound and DependencyUnavailable."""
        ...

    async def refusal(self, topic: str) -> str:
        """Return why a topic takes no messages of clients, "" if it does. Raises DependencyUnavailable."""
        ...
