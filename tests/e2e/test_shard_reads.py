# SPDX-License-Identifier: Apache-2.0
"""Spark's data source over the shards of a gateway: a plan for each, put together, also across a split."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput_spark.errors import BadOption, CallFailed, DataLoss
from reput_spark.read.options import parse
from reput_spark.read.reader import ReputReader
from reput_spark.read.stream import ReputStreamReader

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support import reput_up
from tests.support.served_gateway import Caller

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

COUNT, KEY_COUNT = 120, 12
COLUMNS = ("value", "partition", "offset")


class Sharded:
    """Two shards with a gateway, and the topic `orders`."""

    def __init__(self, store: reput_up.Store, client: Caller, file: Path) -> None:
        self.store, self.client, self.file = store, client, str(file)

    async def send(self, first: int, count: int = COUNT) -> None:
        """Send messages whose bodies are numbers, of some keys."""
        for number in range(first, first + count):
            message = self.client.message("orders", b"%d" % number, message_group=f"key-{number % KEY_COUNT}")
            assert (await self.client.send("orders", message)).status.code == wire.CODE_OK

    async def reput(self, *arguments: str) -> Any:
        """Run a command about the shards."""
        line = ("shards", *arguments, "--shards-file", self.file, "--json")
        result = await asyncio.to_thread(reput_up.run_here, *line)
        assert result.code == 0, result.errors
        return result.rows

    async def indexed(self, count: int) -> None:
        """Wait until the Indexers have so many messages of the topic."""
        while sum(row["messages"] for row in await self.reput("topic", "orders")) < count:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.1)

    def options(self, **options: str) -> dict[str, str]:
        """Return the options of a read over both shards."""
        return {"store": self.store.door, "shards": "a,b", "subscribe": "orders", **options}

    def rows(self, **options: str) -> list[tuple[int, int, int]]:
        """Return number, queue and offset of each row of a batch read."""
        reader = ReputReader(parse(self.options(**options)), COLUMNS)
        return rows_of(reader, reader.partitions())


def rows_of(reader: Any, partitions: list[Any]) -> list[tuple[int, int, int]]:
    """Read partitions."""
    rows = (row for one in partitions for batch in reader.read(one) for row in batch.to_pylist())
    return sorted((int(row["value"]), row["partition"], row["offset"]) for row in rows)


@pytest.fixture
async def sharded(tmp_path: Path) -> AsyncIterator[Sharded]:
    """Two shards, whose topic `orders` has four queues."""
    file = tmp_path / "store" / "shards.toml"
    with reput_up.store(tmp_path / "store", *reput_up.WITH_GATEWAY, "--shards", "2") as store:
        store.json("shards", "create", "orders", "--queues", "4", "--shards-file", str(file))
        async with grpc.aio.insecure_channel(store.door) as channel:
            yield Sharded(store, Caller(channel), file)


async def test_a_batch_reads_all_shards(sharded: Sharded) -> None:
    """Each message is a row once, in the queues of both shards, also across a split; positions need no shard."""
    await sharded.send(0)
    await sharded.reput("split", "orders", "1", "--to", "a", "--to", "b")
    await sharded.send(COUNT)
    await sharded.indexed(2 * COUNT)
    rows = await asyncio.to_thread(sharded.rows)
    assert [number for number, _, _ in rows] == list(range(2 * COUNT))
    ends = Counter(queue_id for _, queue_id, _ in rows)
    assert set(ends) >= {0, 2, 3}
    assert set(ends) & {4, 5}, "the queues of the split"
    starts = {str(queue_id): count // 2 for queue_id, count in ends.items()}
    later = await asyncio.to_thread(sharded.rows, startingOffsets=json.dumps({"orders": starts}))
    assert later == [row for row in rows if row[2] >= starts[str(row[1])]]
    only = await asyncio.to_thread(sharded.rows, queues="0,3")
    assert only == [row for row in rows if row[1] in {0, 3}]


async def test_a_stream_finds_the_queues_of_a_split(sharded: Sharded) -> None:
    """Micro-batches have each message once, before, across and after a split and a move."""
    reader = ReputStreamReader(parse(sharded.options(startingOffsets="earliest"), is_stream=True), COLUMNS)
    at = await asyncio.to_thread(reader.initialOffset)
    found: list[tuple[int, int, int]] = []
    changes = [(), ("split", "orders", "2", "--to", "a", "--to", "b"), ("move", "orders", "0", "--to", "b")]
    for round_number, change in enumerate(changes):
        if change:
            await sharded.reput(*change)
        await sharded.send(round_number * COUNT)
        await sharded.indexed((round_number + 1) * COUNT)
        end = await asyncio.to_thread(reader.following, at, None)
        found += await asyncio.to_thread(lambda start=at, end=end: rows_of(reader, reader.partitions(start, end)))
        at = end
    assert [number for number, _, _ in sorted(found)] == list(range(3 * COUNT))
    assert await asyncio.to_thread(reader.following, at, None) == at


async def test_what_is_refused(sharded: Sharded) -> None:
    """A topic that no shard has, a position outside of its queue, and options that contradict each other."""
    await sharded.send(0, KEY_COUNT)
    await sharded.indexed(KEY_COUNT)
    with pytest.raises(CallFailed, match="TOPIC_NOT_FOUND"):
        await asyncio.to_thread(sharded.rows, subscribe="nothing")
    with pytest.raises(DataLoss):
        await asyncio.to_thread(sharded.rows, startingOffsets='{"orders": {"3": 999}}')
    with pytest.raises(BadOption, match="combined"):
        parse(sharded.options(shard="a"))
    with pytest.raises(BadOption, match="name of a shard"):
        parse(sharded.options(shards="a,b c"))
    with pytest.raises(CallFailed, match="shards a, b"):
        await asyncio.to_thread(sharded.rows, shards="a,c")
    alone = ReputReader(parse({"store": sharded.store.door, "shard": "b", "subscribe": "orders"}), COLUMNS)
    rows = await asyncio.to_thread(lambda: rows_of(alone, alone.partitions()))
    assert {queue_id for _, queue_id, _ in rows} <= {2, 3}


async def test_a_topic_that_is_at_a_single_shard(sharded: Sharded) -> None:
    """It is read together with a topic that is at all shards."""
    await sharded.send(0)
    await sharded.indexed(COUNT)
    made = await asyncio.to_thread(
        reput_up.run_here, "--store", sharded.store.door, "--shard", "b", "topics", "create", "solo", "--json"
    )
    assert made.code == 0, made.errors
    message = sharded.client.message("solo", b"1000")
    assert (await sharded.client.send("solo", message)).status.code == wire.CODE_OK
    async with asyncio.timeout(30):
        while len(rows := await asyncio.to_thread(sharded.rows, subscribe="orders,solo")) <= COUNT:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert [number for number, _, _ in rows] == [*range(COUNT), 1000]
