# SPDX-License-Identifier: Apache-2.0
"""The shards of a store: each is a store of its own, and some questions go to all of them at once."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from reput.indexer.v1.queue_service_pb2 import ListQueuesRequest
from reput_client.core.call import PAGE_SIZE

from libs.runtime.peer.shards import shards_of
from services.console.ask.operate.service_states import service_states
from services.console.ask.store import Asking, Store, each
from services.console.config import ConsoleConfig
from services.console.pages.page import Gap, merged
from services.console.pages.shards.layout import Seen
from services.console.pages.shards.overview import Contents, ShardRow, ShardsPage, shard_row, shards_page

T = TypeVar("T")

SHARDS_ASKED_MAX = 32
"""Shards that a page asks, at the same time. It names the others."""
TOPICS_LISTED_MAX = QUEUES_LISTED_MAX = 20_000
QUEUES_OF_A_TOPIC_MAX = 256
"""Queues of a topic at a shard whose messages are counted."""


def first_store(config: ConsoleConfig) -> Store:
    """Return the store of the settings, of several shards the first, which knows all of them. Raises ConfigError."""
    stores = {name: Store.connected(config, name, places) for name, places in shards_of(config.shards_file).items()}
    for store in stores.values():
        store.shards = stores
    return next(iter(stores.values())) if stores else Store.connected(config)


async def at_others(store: Store, call: Callable[[Store], Awaitable[T]]) -> tuple[dict[str, T], tuple[Gap, ...]]:
    """Call a function for each other shard, and return the answers by name, and a gap for shards that are too many."""
    others = [one for one in store.shards.values() if one is not store]
    left = ", ".join(one.shard for one in others[SHARDS_ASKED_MAX - 1 :])
    gaps = (Gap(f"shards {left}", f"{SHARDS_ASKED_MAX} shards are asked at most"),) if left else ()
    return {one.shard: answer for one, answer in await each(others[: SHARDS_ASKED_MAX - 1], call)}, gaps


def of_shard(shard: str, gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """Return gaps with the name of their shard."""
    return tuple(Gap(f"{gap.subject} at shard {shard}", gap.reason) for gap in gaps)


async def shards(store: Store) -> ShardsPage:
    """Return the page of all shards. A shard that does not answer has its reason."""
    own, (others, left) = await asyncio.gather(_row(store), at_others(store, _row))
    known = {store.shard: own} | others
    found = [known[name] for name in store.shards if name in known]
    return shards_page([row for row, _ in found], merged((*(gap for _, gaps in found for gap in gaps), *left)))


async def _row(store: Store) -> tuple[ShardRow, tuple[Gap, ...]]:
    asking = Asking(store)
    page, contents = await asyncio.gather(service_states(store), _contents(asking))
    row = shard_row(store.shard, store.targets["commitlog"], page, contents)
    return row, of_shard(store.shard, (*page.gaps, *asking.gaps))


async def _contents(asking: Asking) -> Contents | None:
    """Return the topics and messages of a shard, None if they could not be asked, or are too many."""
    listed = asking.store.listed(ListQueuesRequest(page_size=PAGE_SIZE), lambda page: page.queues)
    (topics, has_more_topics), (queues, has_more_queues) = await asyncio.gather(
        asking.first("topics", asking.client.topics.list(), TOPICS_LISTED_MAX),
        asking.first("queues", listed, QUEUES_LISTED_MAX),
    )
    if has_more_topics or has_more_queues:
        asking.left_out("messages", f"{QUEUES_LISTED_MAX} topics and queues are counted at most")
    if asking.found_gaps:
        return None
    names = {topic.name for topic in topics}
    own = [queue for queue in queues if queue.topic in names]
    return Contents(len(names), len(own), sum(queue.max_queue_offset - queue.min_queue_offset for queue in own))


async def seen_elsewhere(store: Store, topic: str) -> tuple[dict[str, Seen], tuple[Gap, ...]]:
    """Return a topic at each other shard, and the gaps. Nothing for a store without shards."""

    async def look(other: Store) -> tuple[Seen, tuple[Gap, ...]]:
        asking = Asking(other)
        found = await asking.ask("the topic", asking.client.topics.get(topic))
        if found is None:
            return Seen(None, None), of_shard(other.shard, asking.gaps)
        queues, is_cut = await asking.first("the queues", asking.client.queues.list(topic), QUEUES_OF_A_TOPIC_MAX)
        known = None if asking.found_gaps and not queues else queues
        return Seen(found, known, are_all=not is_cut and not asking.found_gaps), of_shard(other.shard, asking.gaps)

    answers, left = await at_others(store, look)
    gaps = (*(gap for _, some in answers.values() for gap in some), *left)
    return {name: seen for name, (seen, _) in answers.items()}, gaps
