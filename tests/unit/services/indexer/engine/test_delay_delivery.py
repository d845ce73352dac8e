# SPDX-License-Identifier: Apache-2.0
"""Delayed messages reach their topics when due, in order, and at least once; twice only after a failure."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from libs.formats.config import delay_offsets_json
from libs.formats.records import record
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.machine.failpoints import armed
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.follow.reput_state import ReputState, Stage
from services.indexer.engine.offline_rebuild import rebuild
from tests.support import reference
from tests.support.fake_log import FakeLog, properties_text
from tests.support.fake_sink import delay
from tests.support.indexer import (
    DATA_DIR,
    SEGMENT_SIZE_BYTES,
    SMALL,
    feed,
    make_indexer,
    write_log,
)
from tests.support.patience import eventually
from tests.support.records import IPV6_BORN
from tests.unit.services.indexer.delay_world import PATH, World, settle


async def test_a_message_arrives_as_it_was_sent() -> None:
    """Topic, queue and all fields of the producer are restored; no property of the delay stays."""
    world = World()
    odd: dict[str, Any] = {
        "flag": -7, "sys_flag": 0x708 | record.BORN_HOST_V6_FLAG, "born_time_ms": 1_600_000_000_000,
        "born_host": IPV6_BORN, "reconsume_times": 3, "prepared_transaction_offset": 77,
    }  # fmt: skip
    sent = delay(world.log, b"later", level=3, topic="Real", queue_id=5, **odd)
    plain = delay(world.log, b"plain", level=1)
    world.clock.set_now_ms(plain.store_time_ms)
    async with world.delivering():
        world.clock.advance(10_000)
        await eventually(lambda: len(world.sink.bodies) == 2)
    arrived = {made.topic: made for made in world.log.records}
    kept = properties_text(tag="red", keys="a b")
    assert arrived["Real"] == replace(
        sent, topic="Real", queue_id=5, queue_offset=0, properties=arrived["Real"].properties,
        physical_offset=arrived["Real"].physical_offset,
    )  # fmt: skip
    assert arrived["Real"].properties == arrived["T"].properties == kept
    assert (arrived["T"].flag, arrived["T"].queue_id, arrived["T"].born_host) == (0, 0, plain.born_host)


async def test_not_before_it_is_due() -> None:
    """A message waits for its whole delay and not much longer, and messages behind it in the queue wait for it."""
    world = World()
    first = delay(world.log, b"1", level=2)
    world.clock.set_now_ms(first.store_time_ms)
    async with world.delivering() as (_, delivery):
        world.clock.advance(4_999)
        await settle()
        assert world.sink.bodies == []
        await eventually(lambda: delivery.statistics().waiting_count == 1)
        delay(world.log, b"2", level=2, step_ms=1_000)
        world.clock.advance(1)
        await eventually(lambda: world.sink.bodies == [b"1"])
        await settle()
        assert world.sink.bodies == [b"1"]
        world.clock.advance(1_000)
        await eventually(lambda: world.sink.bodies == [b"1", b"2"])
        assert delivery.statistics().lateness_ms == 0


async def test_order_within_a_level_and_across_batches() -> None:
    """Messages of several levels are delivered once each, in batches, every level in its order."""
    world = World()
    for number in range(1_500):
        delay(world.log, b"%d" % number, level=1 + number % 3, queue_id=number % 2)
    world.clock.set_now_ms(world.log.records[-1].store_time_ms + 3_600_000)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: len(world.sink.bodies) == 1_500)
        await eventually(lambda: world.offsets() == {1: 500, 2: 500, 3: 500})
        assert delivery.statistics().delivered_total == 1_500
    for level in range(3):
        mine = [int(body) for body in world.sink.bodies if int(body) % 3 == level]
        assert mine == list(range(level, 1_500, 3))
    assert max(map(len, world.sink.batches)) > 50
    assert len(world.sink.batches) < 30


async def test_batches_are_bounded_by_bytes() -> None:
    """Large messages are delivered in several appends; a message larger than a batch is delivered alone."""
    world = World()
    world.log.segment_size_bytes = 1 << 26
    for size in (600_000, 600_000, 3, 700_000, 300_000, 1 << 21, 5):
        delay(world.log, bytes(size))
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: len(world.sink.bodies) == 7)
    assert [len(batch) for batch in world.sink.batches] == [1, 2, 2, 1, 1]


async def test_a_restart_goes_on() -> None:
    """After an orderly stop no message is delivered twice; the file is RocketMQ's."""
    world = World()
    delay(world.log, b"1")
    delay(world.log, b"2", level=18)
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: len(world.sink.bodies) == 2)
    text = world.fs.read(PATH).decode()
    assert text.endswith('"offsetTable":{\n\t\t1:1,\n\t\t18:1\n\t}\n}')
    delay(world.log, b"3")
    async with world.delivering():
        await eventually(lambda: len(world.sink.bodies) == 3)
        await settle()
    assert sorted(world.sink.bodies) == [b"1", b"2", b"3"]


async def test_a_store_that_has_delivered_nothing_yet_is_no_store_that_lost_its_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The file exists from a level's first message on.

    A restart while messages wait logs nothing.
    """
    world = World()
    delay(world.log, b"1", level=18)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: delivery.statistics().waiting_count == 1)
        await eventually(lambda: world.offsets() == {18: 0})
    caplog.clear()
    async with world.delivering():
        assert not caplog.records
    assert not world.sink.bodies


async def test_a_lost_file_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """After a loss of the file all messages in the log are delivered again, and the log says why.

    An empty store logs nothing.
    """
    world = World()
    async with world.delivering():
        assert not caplog.records
    delay(world.log, b"1")
    world.clock.advance(1 << 40)
    indexer = make_indexer(world.log, world.fs)
    feed(indexer, world.log)
    await indexer.close()
    caplog.clear()
    indexer = make_indexer(world.log, world.fs, sink=world.sink)
    [record] = caplog.records
    assert f"{PATH} is missing or empty" in record.getMessage()
    await indexer.close()


@pytest.mark.parametrize(
    "text",
    ['{"offsetTable":{1:2,3:0}}', '{"dataVersion":{"counter":9,"stateVersion":4,"timestamp":5},"offsetTable":{"1":2}}'],
)
async def test_a_file_of_rocketmq_counts(text: str) -> None:
    """Delivery begins at the offsets of RocketMQ's file, integer keys quoted or not, and keeps its version."""
    world = World()
    world.write_offsets(text)
    for number in range(4):
        delay(world.log, b"%d" % number)
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: world.offsets().get(1) == 4)
    assert world.sink.bodies == [b"2", b"3"]
    version = delay_offsets_json.loads(world.fs.read(PATH).decode()).data_version
    assert version is not None
    assert (version.counter, version.state_version) == ((1, 0) if "counter" not in text else (10, 4))


async def test_a_file_that_can_not_be_written_stops_delivery() -> None:
    """While the file cannot be written, the next batch waits, so that a crash repeats a single batch at most."""
    world = World()
    delay(world.log, b"1")
    world.clock.advance(1 << 40)
    async with world.delivering() as (_, delivery):
        with armed("delay_offsets.before_save", "raise"):
            await eventually(lambda: world.sink.bodies == [b"1"])
            delay(world.log, b"2")
            await eventually(lambda: delivery.statistics().blocked_level_count == 1)
            await asyncio.sleep(0.15)
            assert world.sink.bodies == [b"1"]
            assert "delay_offsets.before_save" in delivery.last_error
            assert world.offsets().get(1, 0) == 0
        await eventually(lambda: world.sink.bodies == [b"1", b"2"])
        await eventually(lambda: world.offsets() == {1: 2})


async def test_a_stop_that_can_not_write_it_leaves_nothing_running() -> None:
    """After a failed stop no loop continues with closed queues and a closed log."""
    world = World()
    delay(world.log, b"1")
    world.clock.advance(1 << 40)
    indexer = make_indexer(world.log, world.fs, clock=world.clock, sink=world.sink)
    indexer.start()
    with armed("delay_offsets.before_save", "raise"):
        await eventually(lambda: world.sink.bodies == [b"1"])
        with pytest.raises(OSError, match=r"delay_offsets\.before_save"):
            await indexer.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_end_between_append_and_file() -> None:
    """After a crash between the append and the file the batch is delivered again."""
    world = World()
    delay(world.log, b"1")
    delay(world.log, b"2")
    world.clock.advance(1 << 40)
    with armed("delay.after_append", "raise@1"):
        async with world.delivering():
            await eventually(lambda: world.offsets() == {1: 2})
    assert world.sink.bodies == [b"1", b"2"] * 2


async def test_a_refused_level_stands_still() -> None:
    """A refused message stays the head of its level and is reported; other levels continue; order is kept."""
    world = World()
    world.sink.refusals["Closed"] = "TOPIC_FORBIDDEN"
    for body, topic in ((b"1", "T"), (b"2", "Closed"), (b"3", "T")):
        delay(world.log, body, topic=topic)
    delay(world.log, b"other level", level=2)
    due_ms = reference.delivery_time_ms(world.log.records[1].store_time_ms, 1)
    world.clock.set_now_ms(due_ms + 60_000)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: delivery.statistics().blocked_level_count == 1)
        await eventually(lambda: sorted(world.sink.bodies) == [b"1", b"other level"])
        assert "TOPIC_FORBIDDEN" in delivery.last_error
        assert delivery.statistics().lateness_ms == 60_000
        assert world.offsets()[1] == 1
        world.sink.refusals.clear()
        await eventually(lambda: [body for body in world.sink.bodies if len(body) == 1] == [b"1", b"2", b"3"])
        await eventually(lambda: (delivery.statistics().blocked_level_count, delivery.last_error) == (0, ""))


async def test_a_queue_that_is_gone() -> None:
    """If the topic has fewer queues now, the log chooses a queue, and the message arrives."""
    world = World()
    world.sink.queue_count = 2
    for body, queue_id in ((b"1", 1), (b"2", 7), (b"3", 0)):
        delay(world.log, body, queue_id=queue_id)
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: world.sink.bodies == [b"1", b"2", b"3"])
    named = [message.HasField("queue_id") for batch in world.sink.batches for message in batch]
    assert named == [True, False, True]


async def test_a_log_that_takes_small_batches_only() -> None:
    """Batches get smaller until the log accepts them."""
    world = World()
    world.sink.message_count_max = 3
    for number in range(20):
        delay(world.log, b"%d" % number)
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: len(world.sink.bodies) == 20)
    assert world.sink.bodies == [b"%d" % number for number in range(20)]


async def test_records_that_say_no_place() -> None:
    """A record without REAL_TOPIC blocks its level after the messages before it; a half message is dropped."""
    world = World()
    delay(world.log, b"half", topic="RMQ_SYS_TRANS_HALF_TOPIC")
    delay(world.log, b"1")
    world.log.append(SCHEDULE_TOPIC, 0, properties=b"DELAY\x011\x02REAL_QID\x010\x02")
    delay(world.log, b"2")
    world.clock.advance(1 << 40)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: delivery.statistics().blocked_level_count == 1)
        assert world.sink.bodies == [b"1"]
        assert f"physical offset {world.log.records[2].physical_offset} can't be delivered" in delivery.last_error
        assert world.offsets() == {1: 2}


async def test_the_log_goes_away_and_comes_back() -> None:
    """While the log is down no message is delivered; afterwards each is delivered once."""
    world = World()
    delay(world.log, b"1")
    world.clock.set_now_ms(world.log.records[0].store_time_ms)
    async with world.delivering() as (indexer, _):
        await eventually(lambda: indexer.follow.reput.state is ReputState.LIVE)
        world.log.go_down()
        await eventually(lambda: indexer.follow.states.log_away is not None)
        world.clock.advance(1_000)
        await settle()
        assert world.sink.bodies == []
        assert world.offsets().get(1, 0) == 0
        world.log.is_up = True
        await eventually(lambda: world.offsets() == {1: 1})
        delay(world.log, b"2")
        world.clock.advance(2_000)
        await eventually(lambda: world.offsets() == {1: 2})
        await settle()
    assert world.sink.bodies == [b"1", b"2"]


async def test_messages_that_are_gone() -> None:
    """Messages that retention deleted before their delivery are stepped over and counted, as in RocketMQ."""
    world = World()
    for number in range(4):
        delay(world.log, b"%d" % number)
    world.log.trim(world.log.records[3].physical_offset)
    world.clock.advance(1 << 40)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: world.sink.bodies == [b"3"])
        await eventually(lambda: world.offsets() == {1: 4})
        assert delivery.statistics().lost_total in (0, 3)  # 0 if the queue was built without them
    world.write_offsets('{"offsetTable":{1:1}}')
    world.log.trim(world.log.end_physical_offset)
    async with world.delivering() as (_, delivery):
        await eventually(lambda: world.offsets() == {1: 4})


async def test_an_offset_past_the_end() -> None:
    """Once all of the log is indexed, an offset past the queue's end moves back to the end."""
    world = World()
    world.write_offsets('{"offsetTable":{1:100}}')
    delay(world.log, b"1")
    world.clock.advance(1 << 40)
    async with world.delivering():
        await eventually(lambda: world.offsets() == {1: 1})
        delay(world.log, b"2")
        await eventually(lambda: world.sink.bodies == [b"2"])


async def test_indexes_that_are_behind_do_not_move_the_offset() -> None:
    """While a queue is rebuilt and ends before the offset, the offset stays, and no message is repeated."""
    world = World()
    for number in range(100):
        delay(world.log, b"%d" % number)
    world.write_offsets('{"offsetTable":{1:100}}')
    world.clock.advance(1 << 40)
    indexer = make_indexer(world.log, world.fs, sink=world.sink)
    delivery = indexer.follow.delivery
    assert delivery is not None
    delivery.start()
    for stage in (Stage.CATCHING_UP, Stage.LIVE, Stage.CATCHING_UP):
        feed(indexer, world.log, end=world.log.records[40].physical_offset)
        indexer.follow.states.stage = stage
        indexer.follow.reput.confirmed_physical_offset = world.log.end_physical_offset
        await settle()
    assert delivery.offsets.next_of(0) == 100
    feed(indexer, world.log)
    indexer.follow.states.stage = Stage.LIVE
    await settle()
    await delivery.stop()
    assert (world.sink.bodies, world.offsets()) == ([], {1: 100})
    await indexer.close()


async def test_a_clock_that_is_behind() -> None:
    """A message is delivered after its delay and a ninth at most, although the clock is behind."""
    world = World()
    delay(world.log, b"1", level=2)
    world.clock.set_now_ms(world.log.records[0].store_time_ms - 3_600_000)
    async with world.delivering():
        await eventually(lambda: world.log.read_count > 0)
        await settle()
        world.clock.advance(4_000)
        await settle()
        assert world.sink.bodies == []
        world.clock.set_now_ms(world.clock.now_ms() - 86_400_000)
        world.clock.advance(1_600)
        await eventually(lambda: world.sink.bodies == [b"1"])


async def test_rebuilt_queues_are_due_by_the_configured_levels() -> None:
    """Indexes that are built from the log's files use the levels of the Indexer's own setting."""
    log, fs = FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES), MemoryFs()
    sent = [delay(log, b"1"), delay(log, b"2", level=2), delay(log, b"3", level=3)]
    write_log(log, fs)
    config = replace(SMALL, message_delay_level="7s 1d")
    await rebuild(fs, config, log_data_dir=DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, clock=ManualClock())
    indexer = make_indexer(log, fs, config)
    for queue_id, delay_ms in enumerate((7_000, 86_400_000, 86_400_000)):
        queue = indexer.indexes.queues.find(SCHEDULE_TOPIC, queue_id)
        assert queue is not None
        assert queue.read(0, 1).tags_codes.tolist() == [sent[queue_id].store_time_ms + delay_ms]
    await indexer.close()
