# SPDX-License-Identifier: Apache-2.0
"""Checks: transactions whose producers are to be asked how they end, by producer group; each is asked of one of them.

Callers: the event loop's thread. Memory: an id for each transaction that nobody took.
"""

import asyncio
import itertools
from collections.abc import Iterable, Iterator


class Checks:
    """See the module."""

    def __init__(self) -> None:
        self._offered: dict[str, dict[str, None]] = {}
        self._news = asyncio.Event()

    def offer(self, producer_group: str, name: str) -> None:
        """Let somebody be asked."""
        self._offered.setdefault(producer_group, {})[name] = None
        news, self._news = self._news, asyncio.Event()
        news.set()

    def drop(self, producer_group: str, name: str) -> None:
        """Let nobody be asked any more."""
        names = self._offered.get(producer_group, {})
        names.pop(name, None)
        if not names:
            self._offered.pop(producer_group, None)

    def take(self, producer_groups: Iterable[str], count: int) -> list[str]:
        """Return up to so many transactions, which nobody else is asked about until they are offered again."""
        return list(itertools.islice(self._taken(producer_groups), count))

    async def wait(self) -> None:
        """Return when something was offered."""
        await self._news.wait()

    def _taken(self, producer_groups: Iterable[str]) -> Iterator[str]:
        for group in producer_groups:
            while names := self._offered.get(group):
                name = next(iter(names))
                self.drop(group, name)
                yield name
