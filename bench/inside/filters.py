# SPDX-License-Identifier: Apache-2.0
"""How soon a group has the few messages that a filter lets through, behind all that it does not."""

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from reput_client import Client, NewMessage, ReputError, connect

from bench import batches
from bench.inside import filling
from bench.load import reading
from bench.peers.peer import Durability
from bench.results import Figures
from bench.store import delivering, running

BODY_SIZE_BYTES = 100
RARE_SHARE = 0.001
RARE_TAG, RARE_REGION = "rare", "north"
FILTERS = {"tag": (RARE_TAG, ""), "where": ("*", f"region = '{RARE_REGION}'")}
"""Tags and a condition: a tag, which the queues have, and a property, for which each record is read."""
WAIT_S = 30.0


def rare(message_count: int) -> Callable[[Path, Durability, float], Figures]:
    """Fill a topic with so many messages, of which the filters let the last thousandth through."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        del seconds  # it ends with the topic
        rare_count = int(message_count * RARE_SHARE)
        with running(folder, mode) as store, delivering(store) as (delivery, _):
            filling.fill(store, message_count=message_count - rare_count, body_size_bytes=BODY_SIZE_BYTES)
            with connect(commitlog=store.commitlog, indexer=store.indexer, delivery=delivery) as client:
                _send_rare(client, rare_count)
                return {
                    f"{name}_{figure}": value
                    for name, (tags, where) in FILTERS.items()
                    for figure, value in _received(client, tags, where, rare_count).items()
                }

    return measure


def _send_rare(client: Client, count: int) -> None:
    message = NewMessage(batches.TOPIC, bytes(BODY_SIZE_BYTES), tag=RARE_TAG, properties={"region": RARE_REGION})
    with client.producer() as producer:
        for outcome in producer.send_batch([message] * count).result():
            if isinstance(outcome, ReputError):
                raise outcome
    reading.wait_indexed(client)


def _received(client: Client, tags: str, where: str, count: int) -> dict[str, float]:
    """Receive all that a filter lets through as a new group. Returns seconds until the first, all, and no lag."""
    group = f"filters-{uuid.uuid4().hex}"
    start_s = time.perf_counter()
    with client.share_consumer(batches.TOPIC, group=group, tags=tags, where=where) as consumer:
        first = consumer.receive(1, WAIT_S)
        first_s = time.perf_counter() - start_s
        consumer.ack(*first)
        got = len(first)
        while got < count and (received := consumer.receive(count, WAIT_S)):
            consumer.ack(*received)
            got += len(received)
        all_s = time.perf_counter() - start_s
        if got != count:
            raise RuntimeError(f"{tags} {where} let {got} messages through, expected {count}")
        while any(queue.lag for queue in client.share_groups.get(group).queues):
            if time.perf_counter() - start_s > all_s + WAIT_S:
                raise TimeoutError(f"the group of {tags} {where} stands before the end of the topic")
    return {"first_s": first_s, "all_s": all_s, "no_lag_s": time.perf_counter() - start_s}
