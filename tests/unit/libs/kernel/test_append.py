# SPDX-License-Identifier: Apache-2.0
"""append writes records that libs.formats reads, places messages by the rules, and leaves no trace of a refusal."""

import pytest
from reput.commitlog.v1 import append_service_pb2

from libs.formats import java
from libs.formats.limits import BORN_TIME_MS_MAX
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import properties, record
from libs.formats.records.host import Host
from libs.formats.records.record import Record
from libs.kernel import layout
from tests.support.records import IPV4_BORN, IPV4_STORE, IPV6_BORN, IPV6_STORE, STORE_TIME_MS
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import Appender, entry, make_table, message, request

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)


def records_of(appender: Appender) -> list[Record]:
    """Every record of the segment, checksums checked."""
    found, position = [], 0
    while position < appender.position:
        found.append(record.decode(appender.segment, position))
        position += found[-1].size_bytes
    return found


def test_record_is_what_the_format_says(build: Build) -> None:
    """A message with every field set becomes the very bytes that libs.formats writes for it."""
    wire = append_service_pb2.AppendMessage(
        topic="TopicTest", queue_id=3, body=b"Hello", property_string=b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02", flag=-7,
        sys_flag=0x738, born_time_ms=1_600_000_000_000, reconsume_times=4, prepared_transaction_offset=77,
    )  # fmt: skip
    wire.born_host.address, wire.born_host.port = bytes([192, 0, 2, 1]), 65535
    for crc_property in (False, True):
        appender = Appender(build, crc_property=crc_property)
        assert appender.append(request(wire.SerializeToString())) > 0
        expected = Record(
            topic="TopicTest", queue_id=3, queue_offset=0, physical_offset=1 << 40, body=b"Hello",
            properties=wire.property_string, flag=-7, sys_flag=0x708, born_time_ms=1_600_000_000_000,
            born_host=Host.parse("192.0.2.1:65535"), store_time_ms=STORE_TIME_MS, store_host=IPV4_STORE,
            reconsume_times=4, prepared_transaction_offset=77,
        )  # fmt: skip
        assert appender.segment[: appender.position] == record.encode(expected, crc_property=crc_property)
        assert not any(appender.segment[appender.position :])


@pytest.mark.parametrize("born", [IPV4_BORN, IPV6_BORN])
@pytest.mark.parametrize("store", [IPV4_STORE, IPV6_STORE])
def test_hosts_of_both_families(build: Build, born: Host, store: Host) -> None:
    """The layout follows the hosts, with any family bits of the client's sys_flag.

    This holds for the client's own host and for the default.
    """
    explicit = length_delimited(9, length_delimited(1, born.address) + int_field(2, born.port))
    appender = Appender(build, born_host=born.to_bytes(), store_host=store.to_bytes())
    assert appender.append(request(message(b"TopicTest", explicit), message(b"TopicTest", int_field(7, 0x30)))) > 0
    assert [(one.born_host, one.store_host) for one in records_of(appender)] == [(born, store)] * 2


def test_born_times_end_with_the_year_9999(build: Build) -> None:
    """The last millisecond of the year 9999 is accepted.

    A later time is refused with its field and value, and nothing is written.
    """
    appender = Appender(build)
    assert appender.append(request(message(b"TopicTest", int_field(8, BORN_TIME_MS_MAX)))) > 0
    assert [one.born_time_ms for one in records_of(appender)] == [BORN_TIME_MS_MAX]
    for late in (BORN_TIME_MS_MAX + 1, 2**63 - 1):
        assert appender.append(request(message(b"TopicTest", int_field(8, late)))) == layout.E_FIELD
        assert (appender.columns.error_field, appender.columns.error_value) == (8, late)


def test_absent_values_get_their_defaults(build: Build) -> None:
    """A message without values gets the caller's host, the store's time and no properties."""
    appender = Appender(build)
    assert appender.append(request(message())) > 0
    (one,) = records_of(appender)
    assert (one.born_host, one.born_time_ms, one.store_time_ms) == (IPV4_BORN, STORE_TIME_MS, STORE_TIME_MS)
    assert (one.properties, one.flag, one.sys_flag, one.reconsume_times) == (b"", 0, 0, 0)


PROPERTY_FORMS = {
    "string": ([length_delimited(5, b"A\x01b\x02C\x01d\x01e\x02")], b"A\x01b\x02C\x01d\x01e\x02"),
    "string_without_end": ([length_delimited(5, b"A\x01b\x02C\x01d")], b"A\x01b\x02C\x01d\x02"),
    "string_with_crc": ([length_delimited(5, b"A\x01b\x02__CRC32#\x01123\x02C\x01d\x02")], b"A\x01b\x02C\x01d\x02"),
    "only_a_crc": ([length_delimited(5, b"__CRC32#\x010123456789\x02")], b""),
    "empty_string": ([length_delimited(5, b"")], b""),
    "map": ([entry(b"A", b"b"), entry(b"C", b"d\x01e")], b"A\x01b\x02C\x01d\x01e\x02"),
    "map_with_crc": ([entry(b"__CRC32#", b"x"), entry(b"C", b"d")], b"C\x01d\x02"),
    "map_and_empty_string": ([entry(b"A", b"b"), length_delimited(5, b"")], b"A\x01b\x02"),
    "not_ascii": ([entry("имя".encode(), "值😀".encode())], "имя\x01值😀\x02".encode()),
    "equal_names": ([entry(b"A", b"1"), entry(b"A", b"2")], b"A\x011\x02A\x012\x02"),
    "no_delay": ([entry(b"DELAY", b"0")], b"DELAY\x010\x02"),
    "negative_delay": ([entry(b"DELAY", b"-3")], b"DELAY\x01-3\x02"),
    "almost_a_crc": ([entry(b"X__CRC32#X", b"__CRC32#")], b"X__CRC32#X\x01__CRC32#\x02"),
}


@pytest.mark.parametrize("crc_property", [False, True])
def test_properties_are_stored_with_separators(build: Build, subtests: pytest.Subtests, crc_property: bool) -> None:
    """Map and string give the same bytes, ended by 0x02, without the client's CRC property, with the store's."""
    for form, (parts, stored) in PROPERTY_FORMS.items():
        appender = Appender(build, crc_property=crc_property)
        with subtests.test(form):
            assert appender.append(request(message(b"TopicTest", *parts), message(b"TopicTest", *parts))) > 0
            for one in records_of(appender):
                assert properties.remove(one.properties, properties.CRC32) == stored
                assert len(one.properties) == len(stored) + 20 * crc_property


def test_queues_and_offsets(build: Build) -> None:
    """A batch takes consecutive offsets per queue, in request order, and the next batch continues."""
    appender = Appender(build)
    messages = [message(queue_id=2), message(queue_id=0), message(queue_id=2), message(b"Other", queue_id=2)]
    appender.append(request(*messages, durability=2))
    starts = [1 << 40, (1 << 40) + 106, (1 << 40) + 212, (1 << 40) + 318]
    assert appender.placed() == list(zip([2, 0, 2, 2], [0, 0, 1, 0], starts, strict=True))
    assert appender.columns.durability == 2
    appender.append(request(message(queue_id=2)))
    assert appender.placed()[0][:2] == (2, 2)
    assert sorted(appender.table.counters()) == [(b"Other", 2, 1), (b"TopicTest", 0, 1), (b"TopicTest", 2, 3)]


def test_server_chooses_the_queue(build: Build) -> None:
    """The server chooses queues in turn per topic over all batches, or by the sharding key's hash if there is a key."""
    appender = Appender(build)
    for _ in range(2):
        appender.append(request(*[message(queue_id=None)] * 3, message(b"Other", queue_id=None)))
    assert [queue for queue, _, _ in appender.placed()] == [3, 0, 1, 1]
    for key in ("a", "order-17", "订单", "polygenelubricants"):
        appender.append(request(message(b"TopicTest", entry(b"__SHARDINGKEY", key.encode()), queue_id=None)))
        assert appender.placed()[0][0] == abs(java.string_hash(key)) % 4


def test_transactions_take_no_queue_offset(build: Build) -> None:
    """Prepared and rolled back messages store queue offset 0 and leave the counter alone."""
    appender = Appender(build)
    kinds = [
        record.TRANSACTION_NOT,
        record.TRANSACTION_PREPARED,
        record.TRANSACTION_ROLLBACK,
        record.TRANSACTION_COMMIT,
    ]
    appender.append(request(*[message(b"TopicTest", int_field(7, kind)) for kind in kinds * 2]))
    assert [one.queue_offset for one in records_of(appender)] == [0, 0, 0, 1, 2, 0, 0, 3]
    assert appender.table.next_queue_offset(b"TopicTest", 1) == 4


def test_protobuf_rules(build: Build) -> None:
    """Unknown fields are skipped, the last of equal fields counts, embedded hosts are merged."""
    unknown = b"\xf8\x01\x05" + b"\xfa\x01\x02ab" + b"\xf9\x01" + bytes(8) + b"\xfd\x01" + bytes(4)
    host = length_delimited(9, length_delimited(1, b"\x01\x02\x03\x04") + unknown) + length_delimited(9, b"\x10\x05")
    body = length_delimited(3, b"first") + length_delimited(3, b"last")
    long_zero = b"\x30" + b"\x80" * 9 + b"\x00"  # flag 0 in ten bytes
    twice = length_delimited(
        4, length_delimited(1, b"X") + unknown + length_delimited(1, b"A") + length_delimited(2, b"v")
    )
    data = request(message(b"Other", length_delimited(1, b"TopicTest"), unknown, host, body, long_zero, twice))
    appender = Appender(build)
    assert appender.append(unknown + data + unknown) > 0
    (one,) = records_of(appender)
    assert (one.topic, one.body, one.born_host, one.flag) == ("TopicTest", b"last", Host.parse("1.2.3.4:5"), 0)
    assert one.properties == b"A\x01v\x02"


def test_batch_fills_a_segment_to_the_last_blank(build: Build) -> None:
    """A batch fits if eight bytes stay for the blank; otherwise its refusal tells the needed size."""
    data = request(message(), message())
    size = Appender(build).append(data)
    fitting = Appender(build, segment=bytearray(size + 8))
    assert fitting.append(data) == size
    full = Appender(build, segment=bytearray(size + 7))
    assert full.append(data) == layout.E_FULL
    assert (full.columns.error_value, full.columns.count, full.table.counters()) == (size, 0, [])
    assert not any(full.segment)


def test_arguments_of_the_programmer(build: Build) -> None:
    """A position outside of the segment, a host of a strange size and a read-only segment are errors, not crashes."""
    for changes in ({"position": -1}, {"position": 101}, {"born_host": b"1234567"}, {"store_host": bytes(21)}):
        with pytest.raises(ValueError, match=r"segment|host"):
            Appender(build, **{"segment": bytearray(100), **changes}).append(request(message()))
    with pytest.raises((ValueError, TypeError, BufferError)):
        Appender(build, segment=bytes(1000)).append(request(message()))


def test_empty_table_knows_no_topic(build: Build) -> None:
    """E_TOPIC_UNKNOWN is returned for a table without topics, and for an unknown or removed topic.

    The answer has the topic's place.
    """
    for name in (b"nobody", b"Other"):
        appender = Appender(build)
        appender.table.remove_topic(b"Other")
        data = request(message(), message(name))
        assert appender.append(data) == layout.E_TOPIC_UNKNOWN
        start, size = appender.columns.topic_start, appender.columns.topic_size
        assert (data[start : start + size], appender.columns.error_index) == (name, 1)
    appender = Appender(build, table=type(make_table())())
    assert appender.append(request(message())) == layout.E_TOPIC_UNKNOWN


def test_topics_of_a_request(build: Build) -> None:
    """If a topic is unknown, all topics of the request are reported once each, with any fields between the messages."""
    appender = Appender(build)
    data = request(message(b"new", b"\xa0\x06\x01"), message(), message(b"Other"), message(b"new"), message(b"newer"))
    assert appender.append(b"\xa0\x06\x01" * 60 + data) == layout.E_TOPIC_UNKNOWN
    assert appender.columns.topics(b"\xa0\x06\x01" * 60 + data) == [b"new", b"TopicTest", b"Other", b"newer"]


def test_fields_of_newer_clients_are_passed_over(build: Build) -> None:
    """Unknown fields in the request and in each message are skipped."""
    newer = int_field(500, 5) + length_delimited(501, b"text")
    one = message(b"TopicTest", newer * 30, length_delimited(4, length_delimited(1, b"A") + newer + b"\x12\x01b"))
    assert Appender(build).append(request(*[one] * 100) + newer * 30) > 0


def test_unknown_topic_is_told_last(build: Build) -> None:
    """A request that is bad anyway never makes its caller create a topic."""
    appender = Appender(build)
    assert appender.append(request(message(b"nobody"), message(b"Closed"))) == layout.E_TOPIC_FORBIDDEN
    assert appender.append(request(message(b"nobody"), message(body=bytes(5000)))) == layout.E_BODY_SIZE
