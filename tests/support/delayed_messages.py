# SPDX-License-Identifier: Apache-2.0
"""A store in memory with a topic for delayed messages, and the delivered texts."""

from libs.machine.testing.manual_clock import ManualClock
from tests.support.memory_delivery import MemoryStore

TOPIC = "t"


def made(clock: ManualClock) -> MemoryStore:
    """A store whose topic has a single queue."""
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    store.timers.now_ms = clock.now_ms
    return store


def texts(store: MemoryStore) -> list[str]:
    """The texts of delivered messages."""
    return [found.message.text for found in store.queues(TOPIC)[0]]
