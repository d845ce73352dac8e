# SPDX-License-Identifier: Apache-2.0
"""QueueBegins: one question per queue and second, and the last answer while the index is away."""

from typing import Any

import pytest

from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.ports.messages import Pulled
from services.delivery.engine.receive import queue_begins
from services.delivery.engine.receive.queue_begins import QueueBegins
from tests.support.memory_delivery import MemoryStore


class PurgedStore(MemoryStore):
    """A store whose queues begin at `begin`."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.ask_count, self.is_away = 0, 0, False

    async def pull(self, topic: str, queue_id: int, queue_offset: int, **how: Any) -> Pulled:
        """See Index."""
        self.ask_count += 1
        if self.is_away:
            raise DependencyUnavailable("indexer", "it is away")
        return Pulled([], queue_offset, self.begin, self.begin)


async def test_it_asks_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks again only after CHECK_S, and keeps the last answer when the index does not answer."""
    store = PurgedStore()
    begins = QueueBegins(store, "t")
    store.begin = 5
    assert [await begins.of(0), await begins.of(0), store.ask_count] == [5, 5, 1]
    store.begin = 9
    assert [await begins.of(0), await begins.of(1), store.ask_count] == [5, 9, 2]
    monkeypatch.setattr(queue_begins, "CHECK_S", 0.0)
    assert [await begins.of(0), store.ask_count] == [9, 3]
    store.is_away = True
    assert [await begins.of(0), store.ask_count] == [9, 4]
    begins.note(0, 11)
    assert await begins.of(0) == 11
