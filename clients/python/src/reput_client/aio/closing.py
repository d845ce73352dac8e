# SPDX-License-Identifier: Apache-2.0
"""AsyncClosing: the base of objects that the end of a block closes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


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
