# SPDX-License-Identifier: Apache-2.0
"""Delayed messages of a log that loses its tail, is replaced or is damaged: no deliverable message is skipped."""

from typing import Any

from libs.requests.errors import RecordDamaged
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.log.source import RecordBlock
from tests.support.fake_log import FakeLog
from tests.support.fake_sink import FakeSink, delay
from tests.support.patience import eventually
from tests.unit.services.indexer.delay_world import World, settle


async def test_a_log_that_loses_its_tail() -> None:
    """Messages at the places of a lost tail are delivered."""
    world = World()
    delay(world.log, b"1")
    lost = delay(world.log, b"lost")
    world.clock.advance(1 << 40)
    async with world.delivering() as (indexer, _):
        await eventually(lambda: len(world.sink.bodies) == 2)
        await eventually(lambda: world.offsets() == {1: 2})
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == world.log.end_physical_offset)
        world.log.lose_tail(lost.physical_offset)
        delay(world.log, b"2")
        delay(world.log, b"3")
        await eventually(lambda: world.sink.bodies == [b"1", b"lost", b"2", b"3"])
        await eventually(lambda: world.offsets() == {1: 3})


async def test_a_tail_that_is_lost_during_an_append() -> None:
    """An append during a change of history does not count, so that messages at the lost places are not skipped."""
    world = World()
    delay(world.log, b"1")
    lost = delay(world.log, b"lost")
    world.clock.advance(1 << 40)
    async with world.delivering() as (indexer, delivery):
        changes = delivery.offsets.history_count

        async def lose_tail() -> None:
            world.sink.on_append = None
            world.log.lose_tail(lost.physical_offset)
            delay(world.log, b"2")
            delay(world.log, b"3")
            await eventually(lambda: delivery.offsets.history_count > changes)
            await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == world.log.end_physical_offset)

        await eventually(lambda: len(world.sink.bodies) == 2)
        await eventually(lambda: world.offsets() == {1: 2})
        delay(world.log, b"0")
        world.sink.on_append = lose_tail
        await eventually(lambda: world.sink.bodies[2:] == [b"0", b"2", b"3"])
        await eventually(lambda: world.offsets() == {1: 3})


async def test_another_log() -> None:
    """Offsets of another log do not count: once its indexes are rebuilt, all waiting messages are delivered."""
    world = World()
    for number in range(3):
        delay(world.log, b"old %d" % number)
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: world.offsets() == {1: 3})
    world.log = FakeLog(step_ms=0)
    world.log.history_id = "second"
    world.sink = FakeSink(world.log)
    for number in range(2):
        delay(world.log, b"new %d" % number)
    async with world.delivering() as (indexer, _):
        await eventually(lambda: indexer.follow.reput.state is ReputState.OTHER_LOG)
        assert world.sink.bodies == []
        indexer.follow.states.request_rebuild()
        await eventually(lambda: world.sink.bodies == [b"new 0", b"new 1"])
        await eventually(lambda: world.offsets() == {1: 2})


async def test_a_log_that_changes_while_it_is_read() -> None:
    """A record that is missing in the changed log was not lost, so its queue's messages are not stepped over."""
    world = World()
    delay(world.log, b"1")
    world.clock.advance(1 << 40)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: world.offsets() == {1: 1})
        old = world.log.read

        async def read(*asked: Any) -> RecordBlock:
            block = await old(*asked)
            delivery.offsets.change_history(False)
            world.log.read = old  # type: ignore[method-assign]
            return block._replace(sizes=block.sizes * 0)

        world.log.read = read  # type: ignore[assignment, method-assign]
        delay(world.log, b"2")
        await eventually(lambda: world.sink.bodies == [b"1", b"2"])
        assert delivery.statistics().lost_total == 0


async def test_a_damaged_record_holds_up_those_behind_it_only() -> None:
    """Messages before a damaged record are delivered; the record becomes the head, which the status reports."""
    world = World()
    for number in range(4):
        delay(world.log, b"%d" % number)
    damaged = world.log.records[2]
    world.clock.advance(1 << 40)
    old = world.log.read

    async def read(offsets: Any, sizes: Any = None) -> RecordBlock:
        if damaged.physical_offset in offsets:
            raise RecordDamaged(segment="0", position=damaged.physical_offset, reason="checksum")
        return await old(offsets, sizes)

    world.log.read = read  # type: ignore[assignment, method-assign]
    async with world.delivering() as (_, delivery):
        await eventually(lambda: world.sink.bodies == [b"0", b"1"])
        await eventually(lambda: world.offsets() == {1: 2})
        await eventually(lambda: "checksum" in delivery.last_error)
        assert delivery.statistics().blocked_level_count == 1


async def test_what_is_not_on_the_disk_may_come_again() -> None:
    """The file moves only with an append on the disk; messages lost from memory are delivered again."""
    world = World()
    world.sink.is_on_disk = False
    delay(world.log, b"1")
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: world.sink.bodies == [b"1"])
        await settle()
        await eventually(lambda: world.offsets() == {1: 0})
        world.log.lose_tail(world.log.records[1].physical_offset)
        await eventually(lambda: world.sink.bodies == [b"1", b"1"])
        world.sink.is_on_disk = True
        delay(world.log, b"2", level=2)
        await eventually(lambda: world.offsets() == {1: 1, 2: 1})
    assert world.sink.bodies == [b"1", b"1", b"2"]
