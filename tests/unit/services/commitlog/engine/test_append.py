# SPDX-License-Identifier: Apache-2.0
"""An append: the records that it writes, their places, and the requests that it refuses."""

from typing import Any

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb
from reput.common.v1 import message_pb2

from libs.formats.limits import BORN_TIME_MS_MAX, PROPERTIES_SIZE_BYTES_MAX
from libs.formats.records import record
from libs.formats.records.host import Host
from libs.log.state import topics_file
from libs.machine.failpoints import armed
from libs.requests.errors import BadArgument, BadTopicName, MalformedRequest, ServiceError, TopicNotFound
from libs.segments.errors import StoreFull
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.append import NEW_BATCH_TOPIC_COUNT_MAX
from services.commitlog.errors import (
    AppendsRefused,
    BadProperties,
    BatchEmpty,
    BatchTooLarge,
    DelayNotSupported,
    MessageTooLarge,
    PropertiesTooLarge,
    QueueOutOfRange,
    TopicForbidden,
)
from tests.support.commitlog import (
    BORN_HOST,
    BORN_HOST_IPV6,
    DATA_DIR,
    SEGMENT_SIZE,
    Machine,
    append,
    bodies,
    fill,
    message,
    records,
    request,
)


def column(raw: bytes, kind: str = "q") -> list[int]:
    """The numbers of a packed column."""
    return memoryview(raw).cast(kind).tolist()  # type: ignore[call-overload, no-any-return]


async def test_a_record_has_what_the_request_has() -> None:
    """Every field of a message is in its record, at the offsets of the answer."""
    machine = Machine()
    sent = message(
        b"content",
        properties={"TAGS": "red", "KEYS": "a b"},
        flag=-7,
        sys_flag=0x301,
        born_time_ms=123,
        reconsume_times=2,
        prepared_transaction_offset=99,
    )
    async with machine.running() as log:
        await append(log)
        batch = await append(log, sent, message(b"second", queue_id=3))
        first, second = records(log)[1:]
        assert [first.physical_offset, second.physical_offset] == column(batch.physical_offsets)
        assert [first.queue_offset, second.queue_offset] == column(batch.queue_offsets) == [1, 0]
        assert [first.queue_id, second.queue_id] == column(batch.queue_ids, "i") == [0, 3]
        assert batch.end_physical_offset == second.physical_offset + second.size_bytes
        assert (first.topic, first.body, first.flag, first.sys_flag) == ("orders", b"content", -7, 0x301)
        assert (first.born_time_ms, first.reconsume_times, first.prepared_transaction_offset) == (123, 2, 99)
        assert first.store_time_ms == second.store_time_ms == batch.store_time_ms == second.born_time_ms
        assert first.born_host.to_bytes() == BORN_HOST
        assert str(first.store_host) == "127.0.0.1:7101"
        assert first.version == 1


@pytest.mark.parametrize("has_crc", [True, False])
async def test_crc_property_is_a_setting(has_crc: bool) -> None:
    """The whole-record checksum is written by default, and can be left out."""
    machine = Machine(crc_property=has_crc)
    async with machine.running() as log:
        await append(log)
        shape = record.check_header(log.chain.segments[0].buffer)
        assert record.has_crc_property(log.chain.segments[0].buffer, shape) is has_crc


@pytest.mark.parametrize(("born", "store"), [(False, False), (True, False), (False, True), (True, True)])
async def test_hosts_of_both_families(born: bool, store: bool) -> None:
    """IPv6 addresses of the producer and of the store itself are kept whole."""
    store_host = "[2001:db8::5]:7101" if store else "10.0.0.5:7101"
    machine = Machine(store_host=store_host)
    async with machine.running() as log:
        born_host = BORN_HOST_IPV6 if born else BORN_HOST
        await log.pipeline.append(request(message(sys_flag=0x30)), born_host)
        named = message_pb2.Host(address=b"\x09\x08\x07\x06", port=5)
        await log.pipeline.append(request(message(born_host=named)), born_host)
        first, second = records(log)
        assert first.born_host.to_bytes() == born_host
        assert str(first.store_host) == store_host
        assert second.born_host == Host.parse("9.8.7.6:5")
    async with machine.running() as log:
        assert len(records(log)) == 2


async def test_store_time_never_goes_back() -> None:
    """When the clock steps back, batches get the newest store time so far."""
    machine = Machine()
    async with machine.running() as log:
        newest = (await append(log)).store_time_ms
        machine.clock.set_now_ms(newest - 5_000)
        assert (await append(log)).store_time_ms == newest
        machine.clock.set_now_ms(newest + 5)
        assert (await append(log)).store_time_ms == newest + 5


async def test_a_batch_that_does_not_fit_moves_whole_to_the_next_segment() -> None:
    """The rest of the segment is filled by a blank, and the batch stays contiguous."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, *(message(bytes(1000)) for _ in range(55)))
        end = log.chain.max_physical_offset
        batch = await append(log, *(message(bytes(1000)) for _ in range(20)))
        assert batch.start_physical_offset == SEGMENT_SIZE
        assert log.chain.segments[0].is_full
        assert bytes(log.chain.segments[0].buffer[end : end + 8]) == record.encode_blank(SEGMENT_SIZE - end)
        assert len(records(log)) == 75
        assert column(batch.queue_offsets) == list(range(55, 75))


@pytest.mark.parametrize(("spare", "segment_count"), [(8, 1), (7, 2)])
async def test_last_eight_bytes_of_a_segment(spare: int, segment_count: int) -> None:
    """A record fits if exactly eight bytes stay for the blank, and not if fewer do."""
    machine = Machine()
    async with machine.running() as log:
        empty = (await append(log, message(b""))).end_physical_offset
        body = bytes(SEGMENT_SIZE - empty - spare - empty)
        await append(log, message(body))
        assert len(log.chain.segments) == segment_count
        await append(log, message(b""))
        assert len(log.chain.segments) == segment_count + 1
        assert len(records(log)) == 3


async def test_first_append_after_a_start_with_a_full_segment() -> None:
    """The first append after a start with a full segment begins a new segment."""
    machine = Machine()
    async with machine.running() as log:
        await fill(log, 2)
    async with machine.running() as log:
        count = len(records(log))
        await append(log, message(b"after"))
        assert len(records(log)) == count + 1


REQUEST_SIZE_MAX = 1 << 20
HUGE_REQUEST = request(*[message(bytes(4096))] * 256)
LIMITS = [
    pytest.param(b"", BatchEmpty, "messages", None, None, id="no message"),
    pytest.param(b"\x0a\x05ab", MalformedRequest, None, None, None, id="truncated"),
    pytest.param(b"\x08\x01", MalformedRequest, None, None, None, id="wrong wire type"),
    pytest.param(request(message(topic="")), BadTopicName, "messages[0].topic", "", 127, id="topic empty"),
    pytest.param(
        request(message(topic="t" * 128)), BadTopicName, "messages[0].topic", "t" * 127, 127, id="topic too long"
    ),
    pytest.param(request(message(topic="../x")), BadTopicName, "messages[0].topic", "../x", 127, id="topic is a path"),
    pytest.param(request(message(topic="a.b")), BadTopicName, "messages[0].topic", "a.b", 127, id="topic with a dot"),
    pytest.param(request(message(topic="ä")), BadTopicName, "messages[0].topic", "ä", 127, id="topic not ASCII"),
    pytest.param(
        request(message(topic="SCHEDULE_TOPIC_XXXX")),
        TopicForbidden,
        "messages[0].topic",
        None,
        None,
        id="system topic",
    ),
    pytest.param(
        request(message(), message(queue_id=-1)), QueueOutOfRange, "messages[1].queue_id", -1, 3, id="queue negative"
    ),
    pytest.param(request(message(queue_id=4)), QueueOutOfRange, "messages[0].queue_id", 4, 3, id="queue too high"),
    pytest.param(
        request(message(b"x" * 4097)), MessageTooLarge, "messages[0].body", 4097, 4096, id="body above the maximum"
    ),
    pytest.param(
        request(message(property_string=b"a\x01" + b"v" * 32767 + b"\x02")),
        PropertiesTooLarge,
        "messages[0].property_string",
        32790,
        PROPERTIES_SIZE_BYTES_MAX,
        id="properties too long",
    ),
    pytest.param(
        request(message(properties={"": "v"})), BadProperties, "messages[0].properties", None, None, id="name empty"
    ),
    pytest.param(
        request(message(properties={"n": ""})), BadProperties, "messages[0].properties", None, None, id="value empty"
    ),
    pytest.param(
        request(message(properties={"n\x01": "v"})),
        BadProperties,
        "messages[0].properties",
        None,
        None,
        id="separator in a name",
    ),
    pytest.param(
        request(message(property_string=b"no separator")),
        BadProperties,
        "messages[0].property_string",
        None,
        None,
        id="property string without separators",
    ),
    pytest.param(
        request(message(property_string=b"a\x01\xff\x02")),
        BadProperties,
        "messages[0].property_string",
        None,
        None,
        id="property string is no text",
    ),
    pytest.param(
        request(message(property_string=b"TIMER_DELIVER_MS\x01noon\x02")),
        DelayNotSupported,
        "messages[0].property_string",
        "TIMER_DELIVER_MS=noon",
        3_456_000_000,
        id="timer",
    ),
    pytest.param(
        request(message(), message(properties={"a": "b", "TIMER_DELAY_MS": "3456000001"})) + b"\x0a\x7f",
        DelayNotSupported,
        "messages[1].properties",
        3_456_000_001,
        3_456_000_000,
        id="timer before bytes that are no message",
    ),
    pytest.param(
        request(message(born_host=message_pb2.Host(address=b"abc", port=1))),
        BadArgument,
        "messages[0].born_host",
        3,
        None,
        id="host of three bytes",
    ),
    pytest.param(
        request(message(born_host=message_pb2.Host(address=b"abcd", port=65536))),
        BadArgument,
        "messages[0].born_host",
        65536,
        None,
        id="port too high",
    ),
    pytest.param(
        request(message(reconsume_times=-1)), BadArgument, "messages[0].reconsume_times", -1, None, id="reconsume < 0"
    ),
    pytest.param(
        request(message(born_time_ms=-1)), BadArgument, "messages[0].born_time_ms", -1, BORN_TIME_MS_MAX, id="born < 0"
    ),
    pytest.param(request(message(sys_flag=0x80)), BadArgument, "messages[0].sys_flag", 0x80, None, id="inner batch"),
    pytest.param(
        request(message(prepared_transaction_offset=-1)),
        BadArgument,
        "messages[0].prepared_transaction_offset",
        -1,
        None,
        id="prepared offset < 0",
    ),
    pytest.param(
        pb.AppendRequest(messages=[message()], durability=9).SerializeToString(),
        BadArgument,
        "durability",
        9,
        None,
        id="durability unknown",
    ),
    pytest.param(request(*[message(b"")] * 32769), BatchTooLarge, "messages", 32769, 32768, id="too many messages"),
    pytest.param(
        request(*[message(bytes(4096))] * 16),
        BatchTooLarge,
        "messages",
        16 * (4096 + 91 + 6 + 20),
        SEGMENT_SIZE - 8,
        id="batch above a segment",
    ),
    pytest.param(HUGE_REQUEST, BatchTooLarge, "messages", len(HUGE_REQUEST), REQUEST_SIZE_MAX, id="request too large"),
]


def snapshot(log: OpenLog, machine: Machine) -> tuple[Any, ...]:
    """All that a refused append must leave as it was."""
    return (
        bytes(machine.segment_bytes()),
        log.chain.max_physical_offset,
        sorted(log.topics.table.counters()),
        log.topics.topic_count,
        machine.fs.read(DATA_DIR / "config" / "topics.json"),
    )


@pytest.mark.parametrize(("raw", "error", "field", "value", "limit"), LIMITS)
async def test_limits(raw: bytes, error: type[ServiceError], field: str | None, value: Any, limit: Any) -> None:
    """A bad batch is refused with the field at fault, the value and the limit, and leaves no trace."""
    machine = Machine(message_size_bytes_max=4096, append_request_size_bytes_max=REQUEST_SIZE_MAX)
    async with machine.running() as log:
        await append(log)
        before = snapshot(log, machine)
        with pytest.raises(error) as caught:
            await log.pipeline.append(raw, BORN_HOST)
        assert type(caught.value) is error
        assert getattr(caught.value, "field", None) == field
        assert getattr(caught.value, "value", None) == value
        assert getattr(caught.value, "limit", None) == limit
        assert snapshot(log, machine) == before


async def test_record_above_a_segment() -> None:
    """A message that no segment can hold is refused before any segment is closed for it (quirk Q12)."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        with pytest.raises(MessageTooLarge) as caught:
            await append(log, message(bytes(SEGMENT_SIZE)))
        assert caught.value.field == "messages[0]"
        assert len(log.chain.segments) == 1
        assert len(bodies(log)) == 1


async def test_topics_are_made_on_the_fly() -> None:
    """All unknown topics of a batch are created, durably, before its messages are written."""
    machine = Machine(default_queue_count=7)
    log = await machine.start()
    await append(log, message(topic="one"), message(topic="two", queue_id=6), message(topic="one"))
    machine.fs.crash()
    topics = topics_file.load(machine.fs, DATA_DIR).topics
    assert topics["one"].write_queue_count == topics["two"].read_queue_count == 7
    assert topics["one"].permission == 6
    await machine.kill(log)


async def test_no_topic_on_the_fly_when_forbidden() -> None:
    """With auto_create_topics off an unknown topic is refused by name."""
    machine = Machine(auto_create_topics=False)
    async with machine.running() as log:
        with pytest.raises(TopicNotFound, match="orders") as caught:
            await append(log, message())
        assert caught.value.field == "messages[0].topic"
        await log.topics.create("orders", read_queue_count=1, write_queue_count=1, is_readable=True, is_writable=True)
        await append(log, message())


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        pytest.param(message(topic="fresh", queue_id=4), QueueOutOfRange, id="queue above the default"),
        pytest.param(message(topic="fresh", flag=1, properties={"TIMER_DELAY_MS": "-"}), DelayNotSupported, id="timer"),
        pytest.param(message(topic="fresh", queue_id=4, properties={"DELAY": "1"}), QueueOutOfRange, id="delay"),
        pytest.param(message(bytes(SEGMENT_SIZE - 50), topic="fresh"), MessageTooLarge, id="too large"),
    ],
)
async def test_a_refused_batch_makes_no_topic(bad: pb.AppendMessage, error: type[ServiceError]) -> None:
    """A batch that names new topics and has a fault leaves no topic behind."""
    machine = Machine()
    async with machine.running() as log:
        count = log.topics.topic_count
        with pytest.raises(error):
            await append(log, message(topic="newer"), bad)
        assert log.topics.topic_count == log.topics.table.topic_count == count
        assert log.topics.find("newer") is None
        with pytest.raises(error):
            await append(log, message(topic="newer"), bad)


async def test_delayed_messages() -> None:
    """A delayed message is in its level's queue, which the answer names; its topic is created as for any message."""
    machine = Machine()
    log = await machine.start()
    batch = await append(
        log, message(topic="fresh", properties={"DELAY": "3"}), message(), message(properties={"DELAY": "99"})
    )
    assert memoryview(batch.queue_ids).cast("i").tolist() == [2, 0, 17]
    assert log.topics.find("fresh") is not None
    assert [(r.topic, r.queue_id, r.queue_offset) for r in records(log)] == [
        ("SCHEDULE_TOPIC_XXXX", 2, 0), ("orders", 0, 0), ("SCHEDULE_TOPIC_XXXX", 17, 0),
    ]  # fmt: skip
    await machine.kill(log)
    async with machine.running(message_delay_level=" ".join(["1s"] * 40)) as log:
        batch = await append(log, message(properties={"DELAY": "3"}), message(properties={"DELAY": "99"}))
        assert memoryview(batch.queue_ids).cast("i").tolist() == [2, 39]
        assert memoryview(batch.queue_offsets).cast("q").tolist() == [1, 0]


async def test_too_many_topics() -> None:
    """The number of topics is bounded; a batch that would pass the bound is refused whole."""
    machine = Machine(topic_count_max=6)
    async with machine.running() as log:
        await append(log, message(topic="a"))
        with pytest.raises(BadArgument) as caught:
            await append(log, message(topic="a"), message(topic="b"), message(topic="c"))
        assert (caught.value.field, caught.value.value, caught.value.limit) == ("messages[1].topic", 7, 6)
        assert log.topics.table.topic_count == log.topics.topic_count
        await append(log, message(topic="b"))
        assert log.topics.topic_count == 6


async def test_too_many_topics_of_a_batch_that_makes_one() -> None:
    """A batch that creates too many topics is refused whole; existing topics do not count."""
    async with Machine(segment_size_bytes=1 << 20).running() as log:
        messages = [message(topic=f"t{index}") for index in range(NEW_BATCH_TOPIC_COUNT_MAX + 1)]
        with pytest.raises(BatchTooLarge) as caught:
            await append(log, *messages)
        assert (caught.value.value, caught.value.limit) == (NEW_BATCH_TOPIC_COUNT_MAX + 1, NEW_BATCH_TOPIC_COUNT_MAX)
        assert log.topics.find("t0") is None
        await append(log, *messages[:-1])
        await append(log, messages[-1])
        await append(log, *messages)


async def test_deleted_topic_made_again_goes_on_counting() -> None:
    """A topic that is created again continues its queue offsets, because consumers store them."""
    machine = Machine()
    async with machine.running() as log:
        await append(log, message(), message())
        await log.topics.delete("orders")
        assert column((await append(log, message())).queue_offsets) == [2]


async def test_prepared_and_rolled_back_messages_take_no_queue_offset() -> None:
    """Only messages that are visible to consumers take a queue offset."""
    machine = Machine()
    async with machine.running() as log:
        batch = await append(log, message(), message(sys_flag=4), message(sys_flag=0xC), message(sys_flag=8))
        assert column(batch.queue_offsets) == [0, 0, 0, 1]


async def test_full_disk_refuses_appends_and_nothing_else() -> None:
    """Without room for the next segment appends are refused; stored messages stay readable, and free space heals it."""
    machine = Machine()
    async with machine.running() as log:
        count = await fill(log, 1)
        while log.chain.segments[0].size_bytes - log.chain.segments[0].wrote_position > 1200:
            await append(log, message(bytes(1000)))
            count += 1
        machine.fs.capacity_bytes = machine.fs.used_bytes() + 100
        with pytest.raises(StoreFull):
            await append(log, message(bytes(1200)))
        assert len(bodies(log)) == count
        machine.fs.capacity_bytes = 1 << 40
        await append(log, message(b"after"))
        assert bodies(log)[-1] == b"after"
    async with machine.running() as log:
        assert len(bodies(log)) == count + 1


async def test_disk_reserve() -> None:
    """Appends stop while the file system has less free space than the reserve, and continue afterwards."""
    machine = Machine(disk_reserve_bytes=1 << 20)
    async with machine.running() as log:
        await append(log)
        machine.fs.capacity_bytes = machine.fs.used_bytes() + (1 << 19)
        await log.disk.look()
        assert log.gate.refusals() == ["STORE_FULL"]
        with pytest.raises(AppendsRefused):
            await append(log)
        machine.fs.capacity_bytes = 1 << 40
        await log.disk.look()
        await append(log)


async def test_janitors_verdict() -> None:
    """A disk that the Janitor reports as full refuses appends until the Janitor reports otherwise."""
    machine = Machine()
    async with machine.running() as log:
        log.disk.report(is_full=True, used_ratio=0.95)
        with pytest.raises(AppendsRefused, match="Janitor"):
            await append(log)
        log.disk.report(is_full=False, used_ratio=0.5)
        await append(log)


async def test_a_failure_before_the_write_leaves_nothing() -> None:
    """If an append fails before its bytes are written, the log and the counters are as before."""
    machine = Machine()
    async with machine.running() as log:
        await append(log)
        before = snapshot(log, machine)
        with armed("append.before_write", "raise"), pytest.raises(OSError, match="failpoint"):
            await append(log)
        assert snapshot(log, machine) == before


async def test_a_batch_with_many_new_topics_is_one_change_of_the_file() -> None:
    """All new topics of a batch are created in a single change of the file's version."""
    machine = Machine()
    async with machine.running() as log:
        version = topics_file.load(machine.fs, DATA_DIR).data_version.counter
        await append(log, *(message(topic=f"topic-{index}") for index in range(500)))
        assert topics_file.load(machine.fs, DATA_DIR).data_version.counter == version + 1
