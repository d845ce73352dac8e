# SPDX-License-Identifier: Apache-2.0
"""Every way to refuse a request: its code, the field at fault, and nothing changed."""

import pytest

from libs.formats import limits
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.kernel import layout
from tests.support.records import STORE_TIME_MS
from tests.unit.libs.kernel.builds import BUILDS, Build, label
from tests.unit.libs.kernel.requests import Appender, entry, message, request

T = b"TopicTest"
DELAY_MS_MAX = limits.TIMER_DELAY_MS_MAX
TOO_FAR_MS = STORE_TIME_MS + DELAY_MS_MAX + 1
LONG_VARINT = b"\xff" * 10 + b"\x01"


def string(raw: bytes) -> bytes:
    """A request with this property string."""
    return request(message(T, length_delimited(5, raw)))


def host(*parts: bytes) -> bytes:
    """A request with this born host."""
    return request(message(T, length_delimited(9, b"".join(parts))))


# Per name: the request, the code, the field at fault, and the value if the error has a value.
REFUSALS: dict[str, tuple[bytes, str, int, int | None]] = {
    "nothing": (b"", "E_EMPTY", 1, 0),
    "only_durability": (request(durability=1), "E_EMPTY", 1, 0),
    "too_many": (request(*[message()] * 101), "E_TOO_MANY", 1, 101),
    "unknown_durability": (request(message(), durability=4), "E_FIELD", 2, 4),
    "negative_durability": (request(message(), durability=-1), "E_FIELD", 2, -1),
    "cut_tag": (request(message()) + b"\x80", "E_WIRE", 0, None),
    "cut_length": (b"\x0a\x80", "E_WIRE", 0, None),
    "length_past_the_end": (b"\x0a\x05abc", "E_WIRE", 0, None),
    "length_of_64_bits": (b"\x0a" + b"\xff" * 9 + b"\x01", "E_WIRE", 0, None),
    "field_number_0": (request(message()) + b"\x00\x01", "E_WIRE", 0, None),
    "tag_of_33_bits": (request(message()) + b"\x80\x80\x80\x80\x10\x01", "E_WIRE", 0, None),
    "group": (request(message()) + b"\x1b\x1c", "E_WIRE", 0, None),
    "wire_type_6": (request(message()) + b"\x1e", "E_WIRE", 0, None),
    "wire_type_7": (request(message()) + b"\x1f", "E_WIRE", 0, None),
    "overlong_varint": (request(message()) + b"\x10" + LONG_VARINT, "E_WIRE", 0, None),
    "varint_of_65_bits": (request(message()) + b"\x10" + b"\x80" * 9 + b"\x02", "E_WIRE", 0, None),
    "cut_fixed64": (request(message()) + b"\x19" + bytes(7), "E_WIRE", 0, None),
    "cut_fixed32": (request(message()) + b"\x1d" + bytes(3), "E_WIRE", 0, None),
    "messages_as_number": (b"\x08\x01", "E_WIRE", 1, None),
    "durability_as_bytes": (request(message()) + b"\x12\x01a", "E_WIRE", 2, None),
    **{
        f"field_{number}_as_bytes": (request(message(T, bytes([number << 3 | 2, 0]))), "E_WIRE", 0, None)
        for number in (2, 6, 7, 8, 10, 11)
    },
    **{
        f"field_{number}_as_number": (request(message(T, bytes([number << 3, 1]))), "E_WIRE", 0, None)
        for number in (1, 3, 4, 5, 9)
    },
    "cut_inside_a_message": (length_delimited(1, message()[:-1]), "E_WIRE", 0, None),
    "cut_map_entry": (request(message(T, b"\x22\x02\x0a\x05")), "E_WIRE", 0, None),
    "map_key_as_number": (request(message(T, b"\x22\x02\x08\x05")), "E_WIRE", 0, None),
    "cut_host": (request(message(T, b"\x4a\x02\x0a\x04")), "E_WIRE", 0, None),
    "host_port_as_bytes": (request(message(T, b"\x4a\x02\x12\x00")), "E_WIRE", 0, None),
    "host_address_as_number": (request(message(T, b"\x4a\x02\x08\x00")), "E_WIRE", 0, None),
    # Unknown or repeated fields: millions of them are never read.
    "unknown_fields_of_the_request": (request(message()) + int_field(9, 1) * 68, "E_WIRE", 0, None),
    "unknown_fields_of_a_message": (request(message(T, int_field(99, 1) * 73)), "E_WIRE", 0, None),
    "topics_of_a_message": (request(message(T, length_delimited(1, T) * 73)), "E_WIRE", 0, None),
    "unknown_fields_of_an_entry": (request(message(T, length_delimited(4, int_field(9, 1) * 9))), "E_WIRE", 0, None),
    "unknown_fields_of_a_host": (host(int_field(9, 1) * 9), "E_WIRE", 0, None),
    "entries": (request(message(T, entry(b"__CRC32#", b"1") * 16_385)), "E_WIRE", 0, None),
    "long_string": (string(b"__CRC32#\x01" + b"1" * 65_526 + b"\x02"), "E_PROPERTIES_SIZE", 5, 65_536),
    "no_topic": (request(length_delimited(3, b"body")), "E_TOPIC_NAME", 1, 0),
    "empty_topic": (request(message(b"")), "E_TOPIC_NAME", 1, 0),
    "topic_of_128": (request(message(b"t" * 128)), "E_TOPIC_NAME", 1, 128),
    **{
        f"topic_{index}": (request(message(name)), "E_TOPIC_NAME", 1, len(name))
        for index, name in enumerate([b"../x", b"a b", b"a/b", b"a.b", b"a\x00", "ü".encode(), b"a\xff", b"a:b", b"^a"])
    },
    "topic_closed": (request(message(b"Closed")), "E_TOPIC_FORBIDDEN", 1, 0),
    "topic_unknown": (request(message(b"nobody")), "E_TOPIC_UNKNOWN", 1, 0),
    "topic_that_begins_like_one": (request(message(b"TopicTes")), "E_TOPIC_UNKNOWN", 1, 0),
    "queue_4": (request(message(queue_id=4)), "E_QUEUE", 2, 4),
    "queue_negative": (request(message(queue_id=-1)), "E_QUEUE", 2, -1),
    "queue_of_32_bits": (request(message(queue_id=2**32)), "E_QUEUE", 2, 2**32),
    "queue_smallest": (request(message(queue_id=-(2**63))), "E_QUEUE", 2, -(2**63)),
    "body_4097": (request(message(body=bytes(4097))), "E_BODY_SIZE", 3, 4097),
    "both_forms": (request(message(T, entry(b"A", b"b"), length_delimited(5, b"A\x01b\x02"))), "E_PROPERTIES", 5, None),
    **{
        f"string_{index}": (string(raw), "E_PROPERTIES", 5, None)
        for index, raw in enumerate(
            [
                b"A",
                b"\x02",
                b"A\x02",
                b"A\x01\x02",
                b"\x01b\x02",
                b"A\x01b\x02\x02",
                b"A\x01b\x02C",
                b"\x01",
                b"\x01\x02",
                b"A\x01\xff\x02",
                b"\xc0\x80\x01b\x02",
                b"A\x01\xed\xa0\x80\x02",
                b"A\x01\xf4\x90\x80\x80\x02",
                b"A\x01\xe2\x82\x02",
                b"A\x01\xe2\x82",
                b"DELAY\x01x\x02",
                b"DELAY\x01 1\x02",
                b"DELAY\x01+\x02",
                b"DELAY\x012147483648\x02",
                b"DELAY\x01" + b"9" * 30 + b"\x02",
                b"INNER_NUM\x011\x02",
                b"X__CRC32#\x010123456789\x02",
                b"A\x01x__CRC32#\x010123456789\x02",
                b"X__CRC32#\x01abc\x02d\x01efgh\x02",
                b"A\x01\x01__CRC32#\x01abc\x02d\x01efgh\x02",
            ]
        )
    },
    **{
        f"entry_{index}": (request(message(T, entry(name, value))), "E_PROPERTIES", 4, None)
        for index, (name, value) in enumerate(
            [
                (b"", b"v"),
                (b"A", b""),
                (b"A\x01", b"v"),
                (b"A\x02", b"v"),
                (b"A", b"v\x02"),
                (b"\xff", b"v"),
                (b"A", b"\xff"),
                (b"A\xe2\x82", b"\xac"),
                (b"INNER_NUM", b"2"),
                (b"DELAY", b"abc"),
                (b"X__CRC32#", b"0123456789"),
                (b"A", b"__CRC32#\x010123456789"),
                (b"A", b"\x01__CRC32#\x01"),
            ]
        )
    },
    "empty_entry": (request(message(T, b"\x22\x00")), "E_PROPERTIES", 4, None),
    "entry_without_value": (
        request(message(T, length_delimited(4, length_delimited(1, b"A")))),
        "E_PROPERTIES",
        4,
        None,
    ),
    "properties_32768": (string(b"A\x01" + b"v" * 32765 + b"\x02"), "E_PROPERTIES_SIZE", 5, 32768),
    "properties_32768_unended": (string(b"A\x01" + b"v" * 32765), "E_PROPERTIES_SIZE", 5, 32768),
    "map_32768": (request(message(T, entry(b"A", b"v" * 32765))), "E_PROPERTIES_SIZE", 4, 32768),
    "timer_no_number": (string(b"TIMER_DELAY_MS\x01soon\x02"), "E_DELAY", 5, 0),
    "timer_empty_sign": (string(b"DELAY\x011\x02TIMER_DELIVER_MS\x01-\x02"), "E_DELAY", 5, 0),
    "timer_of_20_digits": (string(b"TIMER_DELIVER_MS\x01" + b"9" * 20 + b"\x02"), "E_DELAY", 5, 0),
    "timer_ms_too_far": (string(b"TIMER_DELAY_MS\x013456000001\x02"), "E_DELAY", 5, DELAY_MS_MAX + 1),
    "timer_s_too_far": (string(b"TIMER_DELAY_SEC\x013456001\x02"), "E_DELAY", 5, DELAY_MS_MAX + 1000),
    "timer_at_too_far": (string(b"TIMER_DELIVER_MS\x01%d\x02" % TOO_FAR_MS), "E_DELAY", 5, DELAY_MS_MAX + 1),
    "delete_too_late": (string(b"TIMER_DEL_UNIQKEY\x01a\x02TIMER_DELIVER_MS\x011\x02"), "E_DELAY", 5, None),
    "light": (string(b"A\x011\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"), "E_LIGHT", 5, None),
    "light_entry": (request(message(T, entry(b"INNER_MULTI_DISPATCH", b"%LMQ%a"))), "E_LIGHT", 4, None),
    "timer_entry": (request(message(T, entry(b"TIMER_DELIVER_MS", b"x"))), "E_DELAY", 4, 0),
    "empty_host": (host(), "E_HOST", 9, 0),
    "host_of_5_bytes": (host(length_delimited(1, bytes(5))), "E_HOST", 9, 5),
    "port_65536": (host(length_delimited(1, bytes(4)), int_field(2, 65536)), "E_HOST", 9, 65536),
    "port_negative": (host(length_delimited(1, bytes(16)), int_field(2, -1)), "E_HOST", 9, -1),
    "flag_of_33_bits": (request(message(T, int_field(6, 2**31))), "E_FIELD", 6, 2**31),
    "flag_below_32_bits": (request(message(T, int_field(6, -(2**31) - 1))), "E_FIELD", 6, -(2**31) - 1),
    "sys_flag_negative": (request(message(T, int_field(7, -1))), "E_FIELD", 7, -1),
    "sys_flag_unwrap": (request(message(T, int_field(7, 0x40))), "E_FIELD", 7, 0x40),
    "sys_flag_inner_batch": (request(message(T, int_field(7, 0x80))), "E_FIELD", 7, 0x80),
    "sys_flag_of_33_bits": (request(message(T, int_field(7, 2**32))), "E_FIELD", 7, 2**32),
    "born_time_negative": (request(message(T, int_field(8, -1))), "E_FIELD", 8, -1),
    "reconsume_negative": (request(message(T, int_field(10, -1))), "E_FIELD", 10, -1),
    "reconsume_of_32_bits": (request(message(T, int_field(10, 2**31))), "E_FIELD", 10, 2**31),
    "prepared_negative": (request(message(T, int_field(11, -5))), "E_FIELD", 11, -5),
}
WHOLE_REQUEST = {"E_EMPTY", "E_TOO_MANY", "E_FULL"}


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_refused_request_leaves_no_trace(build: Build, subtests: pytest.Subtests) -> None:
    """The right code, field and value; segment and counters as before, also when good messages come first."""
    for name, refusal in REFUSALS.items():
        with subtests.test(name):
            _check_refused(build, *refusal)


def _check_refused(build: Build, data: bytes, code: str, field: int, value: int | None) -> None:
    prefix = request(message(), message(queue_id=None)) if code not in WHOLE_REQUEST else b""
    appender = Appender(build)
    assert appender.append(request(message(), message(queue_id=None))) > 0
    before = bytes(appender.segment), appender.table.counters(), appender.table.rows.tolist()
    assert appender.append(prefix + data) == getattr(layout, code)
    columns = appender.columns
    assert (columns.count, columns.error_field) == (0, field)
    assert value is None or columns.error_value == value
    whole = code in WHOLE_REQUEST or (code == "E_FIELD" and field == 2)
    assert code == "E_WIRE" or columns.error_index == (-1 if whole else 2)
    assert (bytes(appender.segment), appender.table.counters(), appender.table.rows.tolist()) == before


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_durability_that_is_refused_now(build: Build) -> None:
    """A durability is refused before anything is written, and before an unknown topic is reported.

    Other faults come first.
    """
    appender = Appender(build)
    appender.limits["refused_durabilities"] = 0b1001
    for durability in (0, 3):
        for data in (request(message(), durability=durability), request(message(b"unknown"), durability=durability)):
            assert appender.append(data) == layout.E_DURABILITY
            columns = appender.columns
            assert (columns.error_index, columns.error_field, columns.error_value) == (-1, 2, durability)
            assert not any(appender.segment)
        assert appender.append(request(message(b"a b"), durability=durability)) == layout.E_TOPIC_NAME
    assert appender.append(request(message(), durability=1)) > 0
    assert appender.append(request(message(), durability=2)) > 0
    appender.limits["refused_durabilities"] = 0
    assert appender.append(request(message(), durability=3)) > 0


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_a_request_that_needs_a_refused_request(build: Build) -> None:
    """It is refused before anything is written, and before an unknown topic is reported. Other faults come first."""
    appender = Appender(build)
    needs, needs_not = int_field(4, 1), b"\x20\x00"
    assert appender.append(request(message()) + needs) > 0
    appender.limits |= {"is_behind_refused": True, "refused_durabilities": 1}
    before = bytes(appender.segment), appender.table.counters()
    for data in (request(message()), request(message(b"unknown"))):
        assert appender.append(data + needs) == layout.E_BEHIND
        assert appender.append(needs + data) == layout.E_BEHIND
        assert (appender.columns.count, appender.columns.error_index, appender.columns.error_field) == (0, -1, 4)
    assert appender.append(request(message(b"a b")) + needs) == layout.E_TOPIC_NAME
    assert (bytes(appender.segment), appender.table.counters()) == before
    appender.limits["refused_durabilities"] = 0
    for end in (b"", needs_not, needs + needs_not, length_delimited(4, b"1")):
        assert appender.append(request(message()) + end) > 0


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_a_topic_of_the_store(build: Build) -> None:
    """Only the store itself appends to an internal topic; a closed topic refuses the store, too."""
    appender = Appender(build)
    appender.table.put_topic(b"State", write_queue_count=2, is_writable=False, is_internal=True)
    assert appender.append(request(message(b"State"))) == layout.E_TOPIC_FORBIDDEN
    assert not any(appender.segment)
    appender.limits["is_internal"] = True
    assert appender.append(request(message(b"Closed"))) == layout.E_TOPIC_FORBIDDEN
    assert appender.append(request(message(b"State"))) > 0


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_crc_property_counts(build: Build) -> None:
    """The store's 20 bytes count in the limit of the properties."""
    for size, fits in ((32747, True), (32748, False)):
        appender = Appender(build, crc_property=True)
        outcome = appender.append(string(b"A\x01" + b"v" * (size - 3) + b"\x02"))
        assert (outcome > 0) is fits
        assert fits or (outcome, appender.columns.error_value) == (layout.E_PROPERTIES_SIZE, size + 20)


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_record_that_can_never_fit(build: Build) -> None:
    """A record over the limit is told apart from a full segment."""
    limits = {"body_size_bytes_max": 4096, "record_size_bytes_max": 4100, "message_count_max": 10}
    assert Appender(build, limits=limits).append(request(message(body=bytes(4000)))) == 100 + 4000
    over = Appender(build, limits=limits)
    assert over.append(request(message(), message(body=bytes(4001)))) == layout.E_RECORD_SIZE
    assert (over.columns.error_index, over.columns.error_value) == (1, 4101)
    full = Appender(build, limits=limits, segment=bytearray(113))
    assert full.append(request(message(body=bytes(4000)))) == layout.E_FULL


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_every_cut_of_a_request(build: Build) -> None:
    """A request that ends early is refused as malformed or empty, or is a shorter good request; it never crashes."""
    data = request(message(T, entry(b"A", b"b"), length_delimited(9, b"\x0a\x04abcd\x10\x07")), message(), durability=1)
    first_end = len(request(message(T, entry(b"A", b"b"), length_delimited(9, b"\x0a\x04abcd\x10\x07"))))
    good = {first_end: 1, len(data) - 2: 2, len(data): 2}
    for size in range(len(data) + 1):
        appender = Appender(build)
        outcome = appender.append(data[:size])
        assert appender.columns.count == good.get(size, 0)
        assert size in good or outcome in (layout.E_WIRE, layout.E_EMPTY)
