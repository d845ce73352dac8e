# SPDX-License-Identifier: Apache-2.0
"""Topics: the Python client makes, changes and deletes topics all the time; a change that is answered as done lasts.

A topic has a single change under way at a time. After a change without an answer the topic may be in either state, and
no further change follows. Callers: a single event loop.
"""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Mapping

from reput_client import NotFoundError, Options, ReputError, RetryPolicy
from reput_client.aio import AsyncClient

from tests.crash.rounds.trio import Trio
from tests.support.patience import LIMIT_S

CLIENT_TIMEOUT_S = 4.0
PAUSE_S, AGAIN_S = 0.3, 0.2
QUEUE_COUNT = 3


class Topics:
    """The topics of a case."""

    def __init__(self, trio: Trio, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._trio, self._chance = trio, chance
        self._numbers = itertools.count()
        self._known: dict[str, int] = {}
        """Queues of each topic by its last answer; 0 for a deleted topic."""
        self._is_over = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Change topics for the length of a block. Raises TimeoutError."""
        self._is_over = False
        async with self._client() as client:
            task = asyncio.create_task(self._administer(client))
            try:
                yield
                self._is_over = True
                async with asyncio.timeout(LIMIT_S):
                    await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def check(self) -> list[str]:
        """Ask the leader for all topics once the cluster is whole. Returns the violations."""
        async with self._client(retries=1_000) as client:
            found = {name: await _queue_count(client, name) for name in self._known}
        return compare(self._known, found)

    def _client(self, retries: int = 0) -> AsyncClient:
        options = Options(commitlog=self._trio.targets, token=self._trio.token, timeout_s=CLIENT_TIMEOUT_S)
        return AsyncClient(options, RetryPolicy(retries=retries, delay_max_s=0.3))

    async def _administer(self, client: AsyncClient) -> None:
        while not self._is_over:
            name, queue_count = f"made-{next(self._numbers)}", QUEUE_COUNT
            while not self._is_over and await self._is_done(name, queue_count, self._change(client, name, queue_count)):
                if queue_count == 0:
                    break
                queue_count = self._chance.choice((0, queue_count + 1, queue_count + 1))
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(AGAIN_S)

    def _change(self, client: AsyncClient, name: str, queue_count: int) -> Awaitable[object]:
        """Make a topic, delete it, or change it."""
        if name not in self._known:
            return client.topics.create(name, read_queue_count=queue_count, write_queue_count=queue_count)
        if queue_count == 0:
            return client.topics.delete(name)
        return client.topics.update(name, write_queue_count=queue_count)

    async def _is_done(self, name: str, queue_count: int, change: Awaitable[object]) -> bool:
        self._known.pop(name, None)
        try:
            await change
        except ReputError:
            return False
        self._known[name] = queue_count
        self.counts["changes of topics answered"] += 1
        return True


def compare(known: Mapping[str, int], found: Mapping[str, int]) -> list[str]:
    """Compare the queues of topics with the answers; 0 where there is no topic. Returns the violations."""
    return [
        f"topic {name} has {found[name]} queues, and {queue_count} were answered as done"
        for name, queue_count in known.items()
        if found[name] != queue_count
    ]


async def _queue_count(client: AsyncClient, name: str) -> int:
    try:
        return (await client.topics.get(name)).write_queue_count
    except NotFoundError:
        return 0
