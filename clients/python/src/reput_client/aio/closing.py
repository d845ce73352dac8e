# SPDX-License-Identifier: Apache-2.0
"""AsyncClosing: the base of objects that the end of a block closes. AsyncOwner: the base of clients."""

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self


class AsyncClosing(ABC):
    """An object that the end of an `async with` block closes."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object. May be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class _Closes(Protocol):
    """A part that closes in two steps, so that all producers of a client wait for their outcomes at the same time."""

    def begin_close(self) -> None:
        """Accept no more messages."""


class AsyncOwner(AsyncClosing):
    """A client that closes its parts, the last part first."""

    def __init__(self) -> None:
        self._closers = AsyncExitStack()
        self._producers: list[_Closes] = []

    async def close(self) -> None:
        """Close producers and writers (waits for their messages), consumers and connections. May be repeated."""
        self._begin_close()
        await self._closers.aclose()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._begin_close()
        await self._closers.__aexit__(kind, error, traceback)

    def _begin_close(self) -> None:
        """Let all producers send their collected messages at the same time."""
        for producer in self._producers:
            producer.begin_close()
