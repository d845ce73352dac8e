# SPDX-License-Identifier: Apache-2.0
"""TopicStores on a disk in memory, and changes of their topics."""

from pathlib import Path

from libs.formats import store_layout
from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig
from libs.formats.state.topic_journal import TopicChange
from libs.log.state.topic_store import TopicStore
from libs.machine.fs import Fs
from libs.machine.testing.memory_fs import MemoryFs

DATA_DIR = Path("/store")
TOPICS, JOURNAL = DATA_DIR / store_layout.TOPICS, DATA_DIR / store_layout.TOPIC_JOURNAL
Queues = dict[str, int]


def new_disk() -> MemoryFs:
    """Return a disk with the directories of a store."""
    fs = MemoryFs()
    for name in (store_layout.CONFIG, store_layout.REPUT):
        fs.make_directory(DATA_DIR / name)
    return fs


def opened(fs: Fs) -> TopicStore:
    """Return the store of a disk, loaded."""
    store = TopicStore(fs, DATA_DIR)
    store.load()
    return store


def queues_of(store: TopicStore) -> Queues:
    """Return the queues of each topic."""
    return {name: topic.write_queue_count for name, topic in store.topics.items()}


def next_version(store: TopicStore) -> DataVersion:
    """Return the version of the next change."""
    return DataVersion(store.version.counter + 1, 5)


async def put(store: TopicStore, name: str, queue_count: int = 1) -> None:
    """Make a topic, or change it."""
    await store.change(TopicChange(store.version, next_version(store), {name: TopicConfig(name, 1, queue_count)}))


async def remove(store: TopicStore, name: str) -> None:
    """Remove a topic."""
    await store.change(TopicChange(store.version, next_version(store), removed=(name,)))
