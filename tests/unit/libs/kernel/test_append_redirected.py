# SPDX-License-Identifier: Apache-2.0
"""append redirects timed messages and half messages to the topics where they wait, byte for byte as RocketMQ."""

import pytest
from reput.commitlog.v1 import append_service_pb2

from libs.formats.limits import TIMER_DELAY_MS_MAX
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import properties, record
from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from libs.kernel import layout
from tests.support import reference
from tests.support.golden import golden
from tests.support.records import BORN_TIME_MS, STORE_TIME_MS
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import LIMITS, Appender, entry, message, request

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)

T = b"TopicTest"


def string(raw: bytes, *parts: bytes, topic: bytes = T, queue_id: int | None = 3) -> bytes:
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


def waits(one: record.Record) -> tuple[str, int]:
    """The topic where a message waits, and TIMER_OUT_MS less the store time, or 0 without TIMER_OUT_MS."""
    out = properties.decode(one.properties).get("TIMER_OUT_MS")
    return one.topic, int(out) - STORE_TIME_MS if out else 0


@pytest.mark.parametrize(
    ("name", "body", "raw", "sys_flag"),
    [
        ("timed_record", b"at ten", b"TIMER_DELIVER_MS\x011700000010000\x02TAGS\x01TagA\x02", 0),
        ("half_record", b"half", b"PGROUP\x01payments\x02TRAN_MSG\x01true\x02", record.TRANSACTION_PREPARED),
    ],
)
def test_golden_records(build: Build, name: str, body: bytes, raw: bytes, sys_flag: int) -> None:
    """The messages of the golden records give the golden records."""
    wire = append_service_pb2.AppendMessage(
        topic="TopicTest", queue_id=3, body=body, property_string=raw, born_time_ms=BORN_TIME_MS, sys_flag=sys_flag
    )
    expected = golden(f"commit_log/v1/{name}.hex")
    appender = Appender(build, base_physical_offset=0)
    assert appender.append(request(wire.SerializeToString())) == len(expected)
    assert appender.segment[: len(expected)] == expected
    assert appender.placed() == [(0, 0, 0)]


# Properties of a message, and the part of its delay that TIMER_OUT_MS omits: the delay ends a whole second early.
TIMES = [
    (b"TIMER_DELAY_MS\x01877\x02", -123),
    (b"TIMER_DELAY_MS\x01878\x02", 877),
    (b"TIMER_DELAY_MS\x011\x02", -123),
    (b"TIMER_DELAY_SEC\x01+10\x02", 9877),
    (b"TIMER_DELIVER_MS\x011700000000124\x02", -123),
    (b"TIMER_DELIVER_MS\x011700000003000\x02", 1877),
    (b"TIMER_DELAY_MS\x013456000000\x02", TIMER_DELAY_MS_MAX - 123),
    (b"TIMER_DELAY_SEC\x013456000\x02", TIMER_DELAY_MS_MAX - 123),
    (b"TIMER_DELAY_SEC\x011\x02TIMER_DELAY_MS\x019000\x02TIMER_DELIVER_MS\x011\x02", 877),
    (b"TIMER_DELIVER_MS\x011\x02TIMER_DELAY_MS\x019000\x02", 8877),
    (b"TIMER_DELAY_MS\x019000\x02TIMER_DELAY_MS\x012000\x02", 1877),
    (b"DELAY\x010\x02TIMER_DELAY_MS\x012000\x02TIMER_DEL_UNIQKEY\x01a\x02", 1877),
]


@pytest.mark.parametrize("crc_property", [False, True])
def test_times(build: Build, subtests: pytest.Subtests, crc_property: bool) -> None:
    """A time in seconds takes precedence over milliseconds, and a delay over a time.

    The last of equal names counts. The bytes are the reference's.
    """
    for raw, out in TIMES:
        with subtests.test(repr(raw)):
            _check_time(build, raw, out, crc_property=crc_property)


def _check_time(build: Build, raw: bytes, out: int, *, crc_property: bool) -> None:
    raw = b"KEYS\x01k\x02" + raw + b"REAL_TOPIC\x01mine\x02\xd1\x8f\x01v\x02"
    added = {b"TIMER_OUT_MS": b"%d" % (STORE_TIME_MS + out), b"REAL_TOPIC": T, b"REAL_QID": b"3"}
    expected = reference.waiting_properties(properties.pieces(raw), added)
    as_map = message(T, *(entry(*pair) for pair in properties.pieces(raw)), queue_id=3)
    for one in stored(Appender(build, crc_property=crc_property), string(raw), as_map):
        assert properties.remove(one.properties, properties.CRC32) == expected
        assert (waits(one), one.queue_id) == ((TIMER_TOPIC, out), 0)


@pytest.mark.parametrize(
    "raw",
    [
        b"TIMER_DELIVER_MS\x011700000000123\x02",
        b"TIMER_DELIVER_MS\x01-5\x02",
        b"TIMER_DELAY_MS\x010\x02",
        b"TIMER_DELAY_SEC\x01-9000000000000\x02",
        b"TIMER_OUT_MS\x011\x02TIMER_DELAY_SEC\x0160\x02",
        b"TIMER_ENQUEUE_MS\x01x\x02TIMER_ROLL_TIMES\x011\x02TIMER_\x01x\x02",
        b"TRAN_MSG\x01yes\x02",
        b"TRAN_MSG\x01true\x02TRAN_MSG\x01false\x02",
    ],
)
def test_what_waits_for_nothing(build: Build, raw: bytes) -> None:
    """A message that waits for nothing is stored as any message.

    Its time has come, RocketMQ's wheel has delivered it, or it has only other properties.
    """
    (one,) = stored(Appender(build), string(raw))
    assert (one.topic, one.queue_id, one.properties) == ("TopicTest", 3, raw)


def test_level_goes_before_time(build: Build) -> None:
    """If a message has a delay level and a time, the level counts and the time is dropped, as in RocketMQ."""
    raw = (
        b"TIMER_DELAY_SEC\x0160\x02DELAY\x0199\x02TIMER_DELIVER_MS\x011\x02TIMER_OUT_MS\x011\x02TIMER_DELAY_MS\x015\x02"
    )
    (one,) = stored(Appender(build), string(raw))
    assert (one.topic, one.queue_id) == ("SCHEDULE_TOPIC_XXXX", 17)
    assert properties.decode(one.properties) == {
        "DELAY": "18", "TIMER_OUT_MS": "1", "REAL_TOPIC": "TopicTest", "REAL_QID": "3",
    }  # fmt: skip
    assert one.properties == reference.delayed_properties(raw, topic=T, queue_id=3)


def test_transactions(build: Build) -> None:
    """Prepared messages, and messages of no type, become half messages.

    A committed message waits only for its time.
    """
    half, time = b"TRAN_MSG\x01TruE\x02", b"TIMER_DELAY_SEC\x0160\x02"
    kinds = [0, record.TRANSACTION_PREPARED, record.TRANSACTION_COMMIT, record.TRANSACTION_ROLLBACK]
    found = stored(Appender(build), *(string(half + time, int_field(7, kind | 1)) for kind in kinds))
    assert [(one.topic, one.sys_flag) for one in found] == [
        (HALF_TOPIC, 1), (HALF_TOPIC, 1), (TIMER_TOPIC, 1 | kinds[2]), ("TopicTest", 1 | kinds[3]),
    ]  # fmt: skip
    assert [one.queue_offset for one in found] == [0, 1, 0, 0]
    assert found[0].properties == half + time + b"REAL_TOPIC\x01TopicTest\x02REAL_QID\x013\x02"
    (prepared,) = stored(Appender(build), string(time, int_field(7, record.TRANSACTION_PREPARED)))
    assert (prepared.topic, prepared.properties) == ("TopicTest", time)


def test_server_chooses_the_real_queue(build: Build) -> None:
    """Round robin goes over the real topic's queues, for messages that wait for any reason."""
    raws = [b"TIMER_DELAY_MS\x0150\x02", b"TRAN_MSG\x01true\x02", b"DELAY\x011\x02", b"A\x01b\x02"]
    found = stored(Appender(build), *(string(raw, queue_id=None) for raw in raws))
    assert [properties.decode(one.properties).get("REAL_QID") for one in found] == ["0", "1", "2", None]
    assert found[3].queue_id == 3


def test_services_append_to_these_topics(build: Build) -> None:
    """A message that a service appends to these topics is stored as it is; clients may not append to them."""
    for topic in (TIMER_TOPIC, HALF_TOPIC):
        raw = b"TRAN_MSG\x01true\x02REAL_TOPIC\x01orders\x02REAL_QID\x017\x02TIMER_DELAY_SEC\x0160\x02"
        data = string(raw, topic=topic.encode(), queue_id=0)
        assert Appender(build).append(request(data)) == layout.E_TOPIC_FORBIDDEN
        (one,) = stored(Appender(build, limits={**LIMITS, "is_internal": True}), data)
        assert (one.topic, one.queue_id, one.properties) == (topic, 0, raw)


def test_refusals_are_those_of_the_real_topic(build: Build) -> None:
    """The topic and queue that the message names must be good, and nothing has changed if they are not."""
    for raw in (b"TIMER_DELAY_MS\x0150\x02", b"TRAN_MSG\x01true\x02"):
        for data, code in (
            (string(raw, queue_id=4), "E_QUEUE"),
            (string(raw, topic=b"Closed"), "E_TOPIC_FORBIDDEN"),
            (string(raw, topic=b"nobody"), "E_TOPIC_UNKNOWN"),
        ):
            appender = Appender(build)
            rows = appender.table.rows.tolist()
            assert appender.append(request(string(raw), data)) == getattr(layout, code)
            assert (appender.table.rows.tolist(), appender.table.counters()) == (rows, [])


@pytest.mark.parametrize(
    ("head", "most"), [(b"TIMER_DELAY_SEC\x0160\x02A\x01", 32767 - 256), (b"TRAN_MSG\x01true\x02A\x01", 32767 - 512)]
)
def test_limits_count_what_is_added(build: Build, head: bytes, most: int) -> None:
    """The largest properties that fit with the added properties are accepted, and a byte more is refused.

    Properties are added when the message is stored, and while it waits.
    """
    (small,) = stored(Appender(build), string(head + b"v\x02"))
    size = most - len(small.properties) + 1
    (large,) = stored(Appender(build), string(head + b"v" * size + b"\x02"))
    assert len(large.properties) == most
    assert Appender(build).append(request(string(head + b"v" * (size + 1) + b"\x02"))) == layout.E_PROPERTIES_SIZE


def test_topics_that_are_missing(build: Build) -> None:
    """A message that has to wait is refused if its topic for waiting messages is missing in the table."""
    appender = Appender(build)
    for redirect in (layout.REDIRECT_TIMER, layout.REDIRECT_HALF):
        appender.table.redirect_rows[redirect] = -1
    for raw in (b"TIMER_DELAY_MS\x0150\x02", b"TRAN_MSG\x01true\x02"):
        assert appender.append(request(string(raw))) == layout.E_DELAY
