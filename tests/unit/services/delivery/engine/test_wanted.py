# SPDX-License-Identifier: Apache-2.0
"""While nobody calls, deliveries begin with the first message that needs nobody, and cost nothing before."""

import asyncio
from functools import partial

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.config import DeliveryConfig
from services.delivery.engine.owned import Owned
from services.delivery.engine.ownership import WANTED_LOOK_S, Ownership
from tests.support.memory_delivery import MemoryStore
from tests.support.patience import eventually


class Looked:
    """The ends of queues, of which it is counted how often somebody looked at them."""

    def __init__(self, store: MemoryStore) -> None:
        self.count = 0
        self._store = store

    async def end(self) -> int:
        """Return the end of the first queue of a topic."""
        self.count += 1
        return len(self._store.queues("timed")[0])


class PatientStore(MemoryStore):
    """Tells of nothing new before there is."""

    async def moved(self, physical_offset: int) -> int:
        """See Index."""
        while self.end <= physical_offset:
            await self.wait(1_000)
        return self.end


async def test_looks_when_something_is_indexed() -> None:
    """Once at the start, and then once for what comes; with a call it waits no longer."""
    store = PatientStore()
    looked = Looked(store)
    make = partial(
        Owned, log=store, index=store, halves=store.transactions, timers=store.timers, clock=ManualClock(),
        config=DeliveryConfig(),
    )  # fmt: skip
    ownership = Ownership(store, store, (looked.end,), make)
    ownership.start()
    await eventually(lambda: looked.count == 1)
    await asyncio.sleep(3 * WANTED_LOOK_S)
    assert looked.count == 1
    await store.append("orders", "m")
    await eventually(lambda: looked.count == 2)
    await asyncio.sleep(3 * WANTED_LOOK_S)
    assert looked.count == 2
    assert not store.journal_records
    await store.append("timed", "m")
    await eventually(lambda: bool(store.journal_records))
    assert looked.count == 3
    await ownership.stop()
