# SPDX-License-Identifier: Apache-2.0
"""Splitting: splits, moves and merges queues of the topics of clients, a change after the other, while they run."""

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping

from reput_client import Client, connect

from cli.commands.shards.changer import Changer
from cli.commands.shards.plans import Plan, merging, moving, splitting
from cli.commands.shards.shares import read
from libs.runtime.trust.tokens import find_local_token
from libs.shards.shards_file import Shard

PAUSE_S = 0.3
OPEN_COUNT_MAX = 24
"""A topic with so many open queues gets fewer by merges."""


@contextlib.asynccontextmanager
async def changing(shards: Mapping[str, Shard]) -> AsyncIterator[Counter[str]]:
    """Change topics within the block. Yields the number of changes by kind."""
    counts: Counter[str] = Counter()
    with contextlib.ExitStack() as opened:
        clients = {
            name: opened.enter_context(
                connect(commitlog=shard.commitlog, indexer=shard.indexer, token=find_local_token((shard.commitlog,)))
            )
            for name, shard in shards.items()
        }
        task = asyncio.create_task(_change(clients, counts))
        try:
            yield counts
            if task.done():
                task.result()  # its error
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _change(clients: Mapping[str, Client], counts: Counter[str]) -> None:
    chance = random.Random(7)
    while True:
        await asyncio.sleep(PAUSE_S)
        if (kind := await asyncio.to_thread(_change_one, clients, chance)) is not None:
            counts[kind] += 1


def _change_one(clients: Mapping[str, Client], chance: random.Random) -> str | None:
    """Change a topic by chance. Returns the kind of the change, None without a topic over shards."""
    names = [topic.name for topic in next(iter(clients.values())).topics.list() if topic.share is not None]
    if not names:
        return None
    name = chance.choice(names)
    kind, plan = _chosen(clients, name, chance)
    Changer(clients, name).make(plan)
    return kind


def _chosen(clients: Mapping[str, Client], name: str, chance: random.Random) -> tuple[str, Plan]:
    shares = read(clients, name).shares
    is_open = [queue for share in shares.values() for queue in share.queues if not queue.is_sealed]
    is_open.sort(key=lambda queue: queue.first_hash)
    at, shards = chance.randrange(len(is_open)), list(clients)
    if len(is_open) > OPEN_COUNT_MAX:
        pair = is_open[max(at - 1, 0) : max(at - 1, 0) + 2]
        return "merges", merging([queue.queue_id for queue in pair], chance.choice(shards))
    queue_id = is_open[at].queue_id
    home = next(shard for shard, share in shares.items() if queue_id in share.open_ids)
    if chance.random() < 0.3:
        return "moves", moving(queue_id, chance.choice([shard for shard in shards if shard != home]))
    return "splits", splitting(queue_id, chance.choices(shards, k=2), shards)
