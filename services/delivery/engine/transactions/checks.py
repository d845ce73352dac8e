# SPDX-License-Identifier: Apache-2.0
"""Checks: the transactions whose producers are to be asked how they end, by producer group.

A single producer of the group is asked about each. Callers: the event loop's thread. Memory: an id for each transaction
that no producer has taken.
"""

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator


class Checks:
    """The transactions that are offered to producers."""

    def __init__(self) -> None:
        self._offered: dict[str, OrderedDict[str, None]] = {}
        self._news = asyncio.Event()

    def offer(self, producer_group: str, name: str) -> None:
        """Offer a transaction to the producers of its group."""
        self._offered.setdefault(producer_group, OrderedDict())[name] = None
        news, self._news = self._news, asyncio.Event()
        news.set()

    def drop(self, producer_group: str, name: str) -> None:
        """Withdraw a transaction: no producer is asked any more."""
        names = self._offered.get(producer_group)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self._offered[producer_group]

    def take(self, producer_groups: Iterable[str], count: int) -> list[str]:
        """Remove and return up to `count` transactions. No other producer gets them until they are offered again."""
        return list(itertools.islice(self._taken(producer_groups), count))

    async def wait(self) -> None:
        """Wait until a transaction is offered."""
        await self._news.wait()

    def _taken(self, producer_groups: Iterable[str]) -> Iterator[str]:
        for group in producer_groups:
            while names := self._offered.get(group):
                name = next(iter(names))
                self.drop(group, name)
                yield name
