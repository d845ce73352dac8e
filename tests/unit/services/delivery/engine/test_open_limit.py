# SPDX-License-Identifier: Apache-2.0
"""The limit of messages in flight holds for all groups together."""

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.ports.messages import Wanted
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S


async def test_a_receive_takes_no_more_than_is_left() -> None:
    """A receive for more messages than the limit of all groups leaves gets only these, also of another group."""
    store = MemoryStore()
    for body in "abcdefgh":
        await store.append("t", body)
    async with delivering(store, ManualClock(), open_count_max=5) as owner:
        engine = await engine_of(owner)
        for group, count, expected in (("g", 3, 3), ("other", 8, 2)):
            found = await engine.receive(group, "t", count=count, invisible_ms=None, wanted=Wanted("*"), wait_s=LIMIT_S)
            assert len(found) == expected
        assert engine.groups.open_count == 5
