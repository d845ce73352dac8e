# SPDX-License-Identifier: Apache-2.0
"""The index of the log, as the engine sees it; `rpc/log` implements it over gRPC."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from libs.formats.records.delivery_record import Place, Policy
from services.delivery.engine.ports.messages import Found, Measure, Part, Pulled, Stored, Wanted


class Index(Protocol):
    """Stored messages by queue offset, and offsets and policies of groups. All calls raise DependencyUnavailable."""

    async def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        wanted: Wanted,
        count: int,
        size_bytes: int,
        wait_s: float,
    ) -> Pulled:
        """Return messages from an offset on; wait for the first. An offset outside the queue moves to the border."""
        ...

    def passes(self, found: Found, wanted: Wanted) -> bool:
        """Return whether a message that was read passes a filter, with the same result as a pull. Makes no call."""
        ...

    async def journal(self, queue_offset: int, *, wait_s: float) -> tuple[list[Stored], int]:
        """Return records of the journal from a queue offset on, and the queue offset of the next read."""
        ...

    async def queue_end(self, topic: str, queue_id: int, *, wait_s: float) -> int:
        """Return the end of a queue; wait for its first message."""
        ...

    async def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """Return the first queue offset and the end of each queue of a topic that has messages."""
        ...

    async def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the first queue offset stored at or after a time."""
        ...

    async def measures(self, parts: Sequence[Part]) -> Sequence[Measure]:
        """Return the measures of parts of queues. A queue that does not exist has no bytes."""
        ...

    async def stored_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset that a group committed for a queue, None if it committed none."""
        ...

    async def stored_offsets(self) -> Mapping[Place, int]:
        """Return the offsets that all groups committed."""
        ...

    async def stored_policy(self, group: str) -> Policy | None:
        """Return the retry policy that RocketMQ had for a group, None if it is unknown."""
        ...

    async def store_policies(self, policies: Mapping[str, Policy | None]) -> None:
        """Store policies for RocketMQ. None: the group was deleted."""
        ...

    async def store_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets of a group, by topic and queue id."""
        ...
