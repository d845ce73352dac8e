# SPDX-License-Identifier: Apache-2.0
"""HalfIndex: the index of transactions, as the engine sees it; `rpc/log` implements it over gRPC."""

from typing import Any, Protocol

from libs.formats.records.transaction_record import Ended, Half
from services.delivery.engine.ports.messages import Read


class HalfIndex(Protocol):
    """The two topics of transactions. All calls raise DependencyUnavailable."""

    async def halves(self, queue_offset: int, *, wait_s: float) -> Read[Half]:
        """Return half messages from a queue offset on; wait for the first. An offset outside moves to the border."""
        ...

    async def ends(self, queue_offset: int) -> Read[Ended]:
        """Return records about ended half messages, from a queue offset on."""
        ...

    async def message(self, half: Half) -> Any | None:
        """Return a half message as it is stored, None if it is gone."""
        ...

    async def how_ended(self, name: str) -> str | None:
        """Return how the transaction of this id ended, None if no end record names it; RocketMQ's name no id."""
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
        """Store the queue offsets from which on both topics have to be read."""
        ...
