# SPDX-License-Identifier: Apache-2.0
"""What transactions need of the index, as the engine sees it. `rpc/log` has it over gRPC."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from libs.formats.records.transaction_record import Ended, Half


@dataclass(frozen=True, slots=True)
class Halves:
    """What a pull of the half topic found, and where it ended."""

    found: Sequence[Half]
    next_queue_offset: int
    max_queue_offset: int


@dataclass(frozen=True, slots=True)
class Ends:
    """What a pull of the topic of the ended ones found, and where it ended."""

    found: Sequence[Ended]
    next_queue_offset: int
    max_queue_offset: int


class HalfIndex(Protocol):
    """The two topics of transactions. All raise DependencyUnavailable."""

    async def halves(self, queue_offset: int, *, wait_s: float) -> Halves:
        """Return half messages from a queue offset on, waiting for the first one. Outside: goes to the border."""
        ...

    async def ends(self, queue_offset: int) -> Ends:
        """Return what was said of half messages, from a queue offset on."""
        ...

    async def message(self, half: Half) -> Any | None:
        """Return a half message as it is stored, None if it is gone."""
        ...

    async def how_ended(self, name: str) -> str | None:
        """Return how the transaction of this id ended, "" if its end does not say, None if it did not."""
        ...

    async def half_end(self) -> int:
        """Return the end of the half topic's queue."""
        ...

    async def indexed(self) -> int:
        """Return the physical offset up to which the log is indexed."""
        ...

    async def floors(self) -> tuple[int, int]:
        """Return the stored queue offsets from which on both topics have to be read."""
        ...

    async def store_floors(self, half_offset: int, ended_offset: int) -> None:
        """Store them."""
        ...
