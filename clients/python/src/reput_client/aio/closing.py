# SPDX-License-Identifier: Apache-2.0
"""AsyncClosing: what the end of a block closes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class AsyncClosing(ABC):
    """What is closed at the end of a block of `async with`."""

    @abstractmethod
    async def close(self) -> None:
        """End it. May be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
