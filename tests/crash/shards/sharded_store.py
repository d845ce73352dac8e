# SPDX-License-Identifier: Apache-2.0
"""ShardedStore: the processes of all shards, and the gateway before them."""

import random
from collections.abc import Sequence
from pathlib import Path

from libs.formats.limits import KIB
from libs.shards import shards_file
from libs.shards.shards_file import Shard
from tests.crash.live_store import LiveStore, Sizes
from tests.crash.nursery import Child, Nursery
from tests.support.surroundings import free_port

SERVICES = ("commitlog", "indexer", "delivery")
"""The services of a shard, in the order in which they start."""
SIZES = Sizes(
    segment_size_bytes=4096 * KIB, queue_file_size_bytes=20_000, index_slot_count=500, index_entry_capacity=2_000
)
SLOW_CHANCE, SLOW = 0.4, "queue.before_append=sleep:15"
"""Some Indexers are slow: a queue is sealed, and its index lacks the last messages for some time."""


class ShardedStore:
    """Shards by name, and the gateway. `children` are all processes that were ever started."""

    def __init__(
        self, nursery: Nursery, directory: Path, names: Sequence[str], mode: str, chance: random.Random
    ) -> None:
        self.children: list[Child] = []
        self._chance = chance
        self.file = directory / "shards.toml"
        self._mode = mode
        self.shards: dict[str, LiveStore] = {}
        entries: dict[str, Shard] = {}
        for name in names:
            ports = {service: free_port() for service in SERVICES}
            self.shards[name] = LiveStore(nursery, directory / name, SIZES, ports=ports)
            commitlog, indexer, delivery = (f"127.0.0.1:{ports[service]}" for service in SERVICES)
            entries[name] = Shard(commitlog=commitlog, indexer=indexer, delivery=delivery)
        self.front = LiveStore(nursery, directory / "front", SIZES, ports={"gateway": free_port()})
        self.file.write_text(shards_file.dumps(entries), encoding="utf-8")

    async def start(self) -> None:
        """Start all processes that do not run. Raises EndedEarly."""
        for shard in self.shards.values():
            for service in SERVICES:
                if not shard.is_running(service):
                    await self._start(shard, service)
        if not self.front.is_running("gateway"):
            await self.front.start_gateway(self.file)
            self.children.append(self.front.children["gateway"])

    async def close(self) -> None:
        """Kill all processes, and close all channels."""
        for store in (*self.shards.values(), self.front):
            await store.close()

    def last_words(self) -> str:
        """The last lines of each process on standard error."""
        words = [f"shard {name}\n{shard.last_words()}" for name, shard in self.shards.items()]
        return "\n".join([*words, self.front.last_words()])

    async def _start(self, shard: LiveStore, service: str) -> None:
        if service == "commitlog":
            await shard.start_commitlog(self._mode)
        elif service == "indexer":
            await shard.start_indexer(failpoints=SLOW if self._chance.random() < SLOW_CHANCE else "")
        else:
            await shard.start_delivery("--shards-file", str(self.file))
        self.children.append(shard.children[service])
