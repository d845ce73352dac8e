# SPDX-License-Identifier: Apache-2.0
"""A clock that is set while messages of a delay level wait: each is delivered once, and none hours late."""

import pytest

from tests.support.fake_sink import delay
from tests.support.patience import eventually
from tests.unit.services.indexer.delay_world import World, settle

HOUR_MS = 3_600_000


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS], ids=["ahead", "back"])
async def test_a_step_while_a_message_waits(step_ms: int) -> None:
    """After a step back a message is delivered after its delay by monotonic time, plus a ninth at most."""
    world = World()
    delay(world.log, b"1", level=2)
    world.clock.set_now_ms(world.log.records[0].store_time_ms)
    async with world.delivering():
        await eventually(lambda: world.log.read_count > 0)
        await settle()
        assert world.sink.bodies == []
        world.clock.set_now_ms(world.clock.now_ms() + step_ms)
        if step_ms < 0:
            world.clock.advance(4_000)
            await settle()
            assert world.sink.bodies == []
        world.clock.advance(1_600)
        await eventually(lambda: world.sink.bodies == [b"1"])
        world.clock.set_now_ms(world.clock.now_ms() - step_ms)
        world.clock.advance(10_000)
        await settle()
    assert world.sink.bodies == [b"1"]
