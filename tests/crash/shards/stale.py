# SPDX-License-Identifier: Apache-2.0
"""A producer that knows the queues as they were: it sends to sealed queues, straight to the log of their shard."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from reput_client import ReputError, RetryPolicy
from reput_client.aio import connect

from tests.crash.shards.history import History
from tests.crash.shards.load import TOPIC
from tests.crash.shards.sharded_store import ShardedStore

QUEUE_COUNT_MAX, TIMEOUT_S = 2, 5.0


async def send_to_sealed(
    store: ShardedStore, rows: Sequence[Mapping[str, Any]], history: History, chance: random.Random
) -> None:
    """Send a message to some of the sealed queues, and note each queue that takes it. A log may be away."""
    sealed = [row for row in rows if row["state"] == "sealed"]
    for row in chance.sample(sealed, min(QUEUE_COUNT_MAX, len(sealed))):
        target = store.shards[row["shard"]].target("commitlog")
        async with connect(commitlog=target, timeout_s=TIMEOUT_S, retry=RetryPolicy(retries=0)) as client:
            try:
                async with client.producer() as producer:
                    sent = await (await producer.send(TOPIC, b"stale", queue_id=row["queue_id"]))
            except ReputError:
                history.refused_count += 1
            else:
                history.taken.append(f"sealed queue {row['queue_id']} took a message, at {sent.queue_offset}")
