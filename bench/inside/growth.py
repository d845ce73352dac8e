# SPDX-License-Identifier: Apache-2.0
"""Costs that should not grow: appends with the number of topics, starts and lookups with the store's size."""

from pathlib import Path

from bench.inside import filling, lookups
from bench.peers.peer import Durability
from bench.results import Figures
from bench.store import running

TOPIC_COUNT = 10_000
QUEUE_FILE_SIZE_BYTES = 20_000
BODY_SIZE_BYTES = 1_024
LARGE_MESSAGE_COUNT = 43_000_000
"""About 50 GiB of records."""


def many_topics(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Append the same to many topics and to a single topic, each time in an own store that has the queues already.

    Files of queues are small here: 40,000 of the usual size would need 240 GB at once.
    """
    figures = {}
    for name, topic_count in (("one_topic", 1), ("many_topics", TOPIC_COUNT)):
        (folder / name).mkdir()
        with running(folder / name, mode, REPUT_INDEXER_QUEUE_FILE_SIZE_BYTES=str(QUEUE_FILE_SIZE_BYTES)) as store:
            words = {"body": BODY_SIZE_BYTES, "seconds": 0, "topics": topic_count, "indexer": store.indexer}
            making = filling.load(store, "append", words)
            done = filling.load(store, "append", words | {"seconds": seconds})
        figures[f"{name}_made_s"] = filling.number(making, "index_lag_s")
        figures[f"{name}_messages_per_s"] = filling.rate(done)
        figures[f"{name}_index_lag_s"] = filling.number(done, "index_lag_s")
    return figures | {"share": figures["many_topics_messages_per_s"] / figures["one_topic_messages_per_s"]}


def large_start(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Fill 50 GiB, stop in order, start, and look up hot and cold."""
    del seconds
    with running(folder, mode) as store:
        empty_s = store.start_to_serving_s
        stored_count, filled_per_s = filling.fill(
            store, message_count=LARGE_MESSAGE_COUNT, body_size_bytes=BODY_SIZE_BYTES
        )
    filling.drop_page_cache(folder)
    with running(folder, mode) as store:
        started_s = store.start_to_serving_s
        figures = lookups.cold(store, stored_count) | lookups.hot(store, stored_count)
    return {
        "start_to_serving_s": started_s,
        "start_of_empty_store_s": empty_s,
        "indexed_messages_per_s": filled_per_s,
        **figures,
    }
