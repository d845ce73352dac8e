# SPDX-License-Identifier: Apache-2.0
"""append sends a message with a delay level to the schedule topic, byte for byte as RocketMQ 5.3."""

from collections.abc import Iterable

import pytest
from reput.commitlog.v1 import append_service_pb2

from libs.formats import java
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import delay_level, properties, record
from libs.kernel import layout
from libs.kernel.append.topic_table import TopicTable
from tests.support import reference
from tests.support.golden import golden
from tests.support.records import BORN_TIME_MS
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import LIMITS, Appender, entry, make_table, message, request

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)

SCHEDULE = delay_level.SCHEDULE_TOPIC


def string(raw: bytes, *parts: bytes, topic: bytes = b"TopicTest", queue_id: int | None = 3) -> bytes:
    """A message with a property string."""
    return message(topic, length_delimited(5, raw), *parts, queue_id=queue_id)


def stored(appender: Appender, *messages: bytes) -> list[record.Record]:
    """The records of a batch, with checked checksums."""
    position = appender.position
    assert appender.append(request(*messages)) > 0
    found = []
    while position < appender.position:
        found.append(record.decode(appender.segment, position))
        position += found[-1].size_bytes
    return found


def test_golden_record(build: Build) -> None:
    """The message of the golden delayed record gives the golden record."""
    wire = append_service_pb2.AppendMessage(
        topic="TopicTest", queue_id=3, body=b"later", property_string=b"DELAY\x013\x02TAGS\x01TagA\x02",
        born_time_ms=BORN_TIME_MS,
    )  # fmt: skip
    appender = Appender(build, base_physical_offset=0)
    assert appender.append(request(wire.SerializeToString())) == 165
    assert appender.segment[:165] == golden("commit_log/v1/delayed_record.hex")
    assert appender.placed() == [(2, 0, 0)]
    assert appender.table.counters() == [(SCHEDULE.encode(), 2, 1)]


DELAYED = [
    b"DELAY\x011\x02",
    b"DELAY\x011",
    b"DELAY\x01+5\x02A\x01b\x02",
    b"DELAY\x0119\x02",
    b"DELAY\x012147483647\x02TAGS\x01t",
    b"DELAY\x017\x02DELAY\x0199\x02",
    b"DELAY\x0199\x02DELAY\x017\x02",
    b"DELAY\x010\x02DELAY\x0118\x02",
    b"REAL_TOPIC\x01Mine\x02REAL_QID\x01999\x02DELAY\x012\x02REAL_TOPIC\x01Other\x02",
    b"__CRC32#\x010123456789\x02DELAY\x012\x02KEYS\x01a b\x02",
    "DELAY\x012\x02имя\x01значение😀\x02😀\x01x\x02".encode(),
    b"".join(b"name%d\x01v\x02" % number for number in range(90)) + b"DELAY\x014\x02",
]


@pytest.mark.parametrize("crc_property", [False, True])
def test_properties_are_those_of_the_reference(build: Build, subtests: pytest.Subtests, crc_property: bool) -> None:
    """String and map give the properties of libs.formats, with any properties around DELAY.

    REAL_TOPIC and REAL_QID of the client are dropped.
    """
    for raw in DELAYED:
        with subtests.test(repr(raw)):
            expected = reference.delayed_properties(raw, topic=b"TopicTest", queue_id=3)
            as_map = message(b"TopicTest", *(entry(*pair) for pair in properties.pieces(raw)), queue_id=3)
            for one in stored(Appender(build, crc_property=crc_property), string(raw), as_map, string(raw)):
                assert properties.remove(one.properties, properties.CRC32) == expected
                assert len(one.properties) == len(expected) + 20 * crc_property
                assert properties.decode(one.properties)["REAL_TOPIC"] == "TopicTest"
                assert (one.topic, one.queue_id) == (SCHEDULE, min(18, int(properties.decode(raw)["DELAY"])) - 1)


def test_order_is_that_of_a_hash_map(build: Build) -> None:
    """Properties that came in RocketMQ's order are stored in RocketMQ's order."""
    names = [
        "KEYS",
        "UNIQ_KEY",
        "TAGS",
        "WAIT",
        "CLUSTER",
        "MSG_REGION",
        "TRACE_ON",
        "z",
        "é",
        "订单",
        "user_id",
        "DELAY",
    ]
    given = dict.fromkeys(reference.hash_map_order(names), "1")
    after = [name for name in given if java.hash_map_bucket(name) > java.hash_map_bucket("REAL_TOPIC")]
    assert after
    (one,) = stored(Appender(build), string(properties.encode(given)))
    places = {"REAL_TOPIC": "TopicTest", "REAL_QID": "3"}
    assert one.properties == reference.java_properties({**given, **places})


def levels(places: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Queue id and queue offset of each placed message."""
    return [place[:2] for place in places]


def test_queue_offsets_are_those_of_the_schedule_topic(build: Build) -> None:
    """Delayed messages of all topics take queue offsets of their level's queue.

    Other messages take the offsets of their own queue, as before.
    """
    appender = Appender(build)
    first = string(b"DELAY\x011\x02")
    stored(appender, first, message(), string(b"DELAY\x011\x02", topic=b"Other"), string(b"DELAY\x015\x02"))
    assert levels(appender.placed()) == [(0, 0), (1, 0), (0, 1), (4, 0)]
    stored(appender, first, message())
    assert levels(appender.placed()) == [(0, 2), (1, 1)]
    assert sorted(appender.table.counters()) == [(b"SCHEDULE_TOPIC_XXXX", 0, 3), (b"SCHEDULE_TOPIC_XXXX", 4, 1),
                                                 (b"TopicTest", 1, 2)]  # fmt: skip


def real_queues(records: Iterable[record.Record]) -> list[int]:
    """Queues in which the messages will be delivered."""
    return [int(properties.decode(one.properties)["REAL_QID"]) for one in records]


def test_server_chooses_the_real_queue(build: Build) -> None:
    """Round robin is over the real topic's queues, from batch to batch.

    The hash of a sharding key counts as without a delay.
    """
    appender = Appender(build)
    free = string(b"DELAY\x011\x02", queue_id=None)
    assert real_queues(stored(appender, free, free, free) + stored(appender, free) + stored(appender, free)) == [
        0, 1, 2, 3, 0,
    ]  # fmt: skip
    (one,) = stored(appender, string(b"DELAY\x011\x02__SHARDINGKEY\x01order-17\x02", queue_id=None))
    assert real_queues([one]) == [abs(java.string_hash("order-17")) % 4]
    wide = make_table()
    wide.put_topic(b"Wide", write_queue_count=65535, is_writable=True)
    appender = Appender(build, table=wide)
    for queue_id in (9, 10, 65534):
        assert real_queues(stored(appender, string(b"DELAY\x011", topic=b"Wide", queue_id=queue_id))) == [queue_id]


def test_transactions(build: Build) -> None:
    """A committed message waits; prepared and rolled back messages stay in their topic, with their DELAY."""
    raw = b"DELAY\x0199\x02REAL_TOPIC\x01x\x02"
    kinds = [record.TRANSACTION_COMMIT, record.TRANSACTION_PREPARED, record.TRANSACTION_ROLLBACK]
    commit, prepared, rollback = stored(Appender(build), *(string(raw, int_field(7, kind)) for kind in kinds))
    assert (commit.topic, commit.queue_id, commit.sys_flag) == (SCHEDULE, 17, record.TRANSACTION_COMMIT)
    for one in (prepared, rollback):
        assert (one.topic, one.queue_id, one.queue_offset, one.properties) == ("TopicTest", 3, 0, raw)


def test_limits_count_what_is_added(build: Build) -> None:
    """The largest properties that fit with REAL_TOPIC and REAL_QID are accepted, and a byte more is refused.

    The same holds for the size of the record.
    """
    for topic, queue_id in ((b"TopicTest", 3), (b"Other", None)):
        added = len(reference.delayed_properties(b"DELAY\x0199\x02", topic=topic, queue_id=queue_id or 0))
        size = 32767 - added - 3
        fits = string(b"DELAY\x0199\x02A\x01" + b"v" * size + b"\x02", topic=topic, queue_id=queue_id)
        assert len(stored(Appender(build), fits)[0].properties) == 32767
        appender = Appender(build)
        over = string(b"DELAY\x0199\x02A\x01" + b"v" * (size + 1) + b"\x02", topic=topic, queue_id=queue_id)
        assert appender.append(request(over)) == layout.E_PROPERTIES_SIZE
        assert appender.columns.error_value == 32768
    data = request(string(b"DELAY\x013\x02"))
    size = Appender(build).append(data)
    limits = {**LIMITS, "record_size_bytes_max": size}
    assert Appender(build, limits={**limits, "body_size_bytes_max": 6}).append(data) == size
    limits["record_size_bytes_max"] -= 1
    small = Appender(build, limits={**limits, "body_size_bytes_max": 6})
    assert (small.append(data), small.columns.error_value) == (layout.E_RECORD_SIZE, size)


def test_refusals_are_those_of_the_real_topic(build: Build) -> None:
    """A message with a bad topic or queue is refused, although it waits elsewhere.

    Clients may not append to the schedule topic itself.
    """
    raw = b"DELAY\x011\x02"
    for data, code in (
        (string(raw, queue_id=4), "E_QUEUE"),
        (string(raw, topic=b"Closed"), "E_TOPIC_FORBIDDEN"),
        (string(raw, topic=b"nobody"), "E_TOPIC_UNKNOWN"),
        (string(raw, topic=b"nobody", queue_id=None), "E_TOPIC_UNKNOWN"),
        (string(raw, topic=SCHEDULE.encode(), queue_id=0), "E_TOPIC_FORBIDDEN"),
        (message(SCHEDULE.encode(), queue_id=0), "E_TOPIC_FORBIDDEN"),
    ):
        appender = Appender(build)
        rows = appender.table.rows.tolist()
        assert appender.append(request(string(raw), data)) == getattr(layout, code)
        assert (appender.table.rows.tolist(), appender.table.counters()) == (rows, [])


def test_other_levels(build: Build) -> None:
    """With fewer or more levels than the default, the last level is the limit.

    A table with fewer queues than levels is refused.
    """
    table = make_table()
    appender = Appender(build, table=table, limits={**LIMITS, "delay_level_count": 2})
    (one,) = stored(appender, string(b"DELAY\x013\x02"))
    assert (one.queue_id, properties.decode(one.properties)["DELAY"]) == (1, "2")
    more = {**LIMITS, "delay_level_count": 30}
    with pytest.raises(ValueError, match="fewer queues than 30"):
        Appender(build, table=table, limits=more).append(request(message()))
    table.put_topic(SCHEDULE.encode(), write_queue_count=30, is_writable=False)
    (one,) = stored(Appender(build, table=table, limits=more), string(b"DELAY\x0130\x02"))
    assert one.queue_id == 29


def test_table_without_a_schedule_topic(build: Build) -> None:
    """A delayed message is refused if the table has no schedule topic."""
    table = TopicTable()
    table.put_topic(b"TopicTest", write_queue_count=4, is_writable=True)
    appender = Appender(build, table=table)
    assert appender.append(request(string(b"DELAY\x012\x02"))) == layout.E_DELAY
    assert (appender.columns.error_field, appender.columns.error_value) == (5, 2)
