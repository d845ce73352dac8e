# SPDX-License-Identifier: Apache-2.0
"""Rules of the small formats that golden bytes do not show: each refused input and its error."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from libs.formats import crc, java, protobuf_wire, store_layout
from libs.formats.config import config_json, consumer_offsets_json, topics_json
from libs.formats.errors import BadChecksum, BadField, BadLength, BadMagic, FormatError, Truncated
from libs.formats.indexes import batch_consume_queue, consume_queue, consume_queue_ext, index_file
from libs.formats.records import delay_level, message_id, properties, writer_stamp
from libs.formats.records.host import Host
from libs.formats.records.record import Record
from libs.formats.state import abort_file, checksummed, epoch_file, store_checkpoint
from libs.formats.state.abort_file import Abort
from libs.formats.state.store_checkpoint import StoreCheckpoint
from tests.support import reference
from tests.support.records import make_record


def topic(fields: str) -> topics_json.TopicsFile:
    """A topics file with a topic of these fields."""
    return topics_json.loads(f'{{"topicConfigTable":{{"t":{fields}}}}}')


def queues(table: str) -> object:
    """A consumer offsets file with the table of a group."""
    return consumer_offsets_json.loads(f'{{"offsetTable":{{"t@g":{table}}}}}')


STAMP = b"00000000000000ff000001f4deadbeef0000000000000007"
ENVELOPE = checksummed.wrap("kind", b"payload")
FLIPPED_VERSION = ENVELOPE[:7] + b"\2" + ENVELOPE[8:]

REFUSED: list[tuple[str, Callable[[], object], type[FormatError]]] = [
    ("stamp without an id", lambda: writer_stamp.decode(b"0" * 48), BadLength),
    ("stamp with a long id", lambda: writer_stamp.decode(b"0" * 48 + b"i" * 201), BadLength),
    ("stamp with other digits", lambda: writer_stamp.decode(b"0" * 47 + b"x" + b"id"), BadField),
    ("stamp with capital digits", lambda: writer_stamp.decode(b"A" * 48 + b"id"), BadField),
    ("stamp with a space in its id", lambda: writer_stamp.decode(STAMP + b"a b"), BadField),
    ("stamp of no bytes", lambda: writer_stamp.decode(b"0" * 48 + b"id"), BadField),
    ("stamp past 2**63", lambda: writer_stamp.decode(b"f" + STAMP[1:] + b"id"), BadField),
    ("file name too short", lambda: store_layout.parse_file_name("0" * 19), BadField),
    ("file name with sign", lambda: store_layout.parse_file_name("-" + "0" * 19), BadField),
    ("file name past 2**63", lambda: store_layout.parse_file_name("9" * 20), BadField),
    ("file name of other digits", lambda: store_layout.parse_file_name("٠" * 20), BadField),
    ("host without port", lambda: Host.parse("1.2.3.4"), BadField),
    ("host with port past 65535", lambda: Host.parse("1.2.3.4:65536"), BadField),
    ("host with five parts", lambda: Host.parse("1.2.3.4.5:1"), BadField),
    ("IPv6 host without brackets", lambda: Host.parse("2001:db8::5:1"), BadField),
    ("IPv6 host that is none", lambda: Host.parse("[::g]:1"), BadField),
    ("offset id of 31 digits", lambda: message_id.decode_offset_id("0" * 31), BadLength),
    ("offset id with a letter", lambda: message_id.decode_offset_id("0" * 31 + "G"), BadField),
    ("offset id with a space", lambda: message_id.decode_offset_id(" " + "0" * 31), BadField),
    ("offset id with a negative offset", lambda: message_id.decode_offset_id("0" * 16 + "F" * 16), BadField),
    ("property without name", lambda: properties.encode({"": "v"}), BadField),
    ("property without value", lambda: properties.encode({"n": ""}), BadField),
    ("property name with 0x01", lambda: properties.encode({"a\x01": "v"}), BadField),
    ("property value with 0x02", lambda: properties.encode({"a": "v\x02"}), BadField),
    ("queue unit cut", lambda: consume_queue.decode_unit(bytes(39), 20), Truncated),
    ("queue unit before the buffer", lambda: consume_queue.decode_unit(bytes(40), -20), Truncated),
    ("batch queue unit cut", lambda: batch_consume_queue.decode_unit(bytes(45)), Truncated),
    ("extension unit at the end mark", lambda: consume_queue_ext.decode_unit(b"\xff" * 20), BadLength),
    ("extension unit past the end", lambda: consume_queue_ext.decode_unit(b"\0\x1c" + bytes(17) + b"\x08"), Truncated),
    ("index header cut", lambda: index_file.decode_header(bytes(39)), Truncated),
    ("index header with negative count", lambda: index_file.decode_header(bytes(36) + b"\x80\0\0\0"), BadField),
    ("index entry before the buffer", lambda: index_file.decode_entry(bytes(40), -1), Truncated),
    ("checkpoint of 4095 bytes", lambda: store_checkpoint.decode(bytes(4095)), Truncated),
    ("epoch file of one line", lambda: epoch_file.decode(b"0\n"), Truncated),
    ("epoch file with a wrong count", lambda: epoch_file.decode(b"1\n0\n"), BadLength),
    ("epoch file with a wrong CRC", lambda: epoch_file.decode(b"0\n1\n"), BadChecksum),
    ("epoch file with a signed count", lambda: epoch_file.decode(b"-1\n0\n"), BadField),
    ("topics that are a list", lambda: topics_json.loads("[]"), BadField),
    ("topic that is a number", lambda: topics_json.loads('{"topicConfigTable":{"t":1}}'), BadField),
    ("topic under another name", lambda: topic('{"topicName":"u"}'), BadField),
    ("topic with 65536 queues", lambda: topic('{"readQueueNums":65536}'), BadField),
    ("topic with a queue count of true", lambda: topic('{"perm":true}'), BadField),
    ("topic with an unknown filter", lambda: topic('{"topicFilterType":7}'), BadField),
    ("topic with order as text", lambda: topic('{"order":"no"}'), BadField),
    ("version that is text", lambda: topics_json.loads('{"dataVersion":{"counter":"x"}}'), BadField),
    ("offsets without a group", lambda: consumer_offsets_json.loads('{"offsetTable":{"t":{}}}'), BadField),
    ("offsets of two groups", lambda: consumer_offsets_json.loads('{"offsetTable":{"t@g@h":{}}}'), BadField),
    ("offsets of a negative queue", lambda: queues("{-1:0}"), BadField),
    ("offsets of a named queue", lambda: queues('{"x":0}'), BadField),
    ("offset past 64 bits", lambda: queues("{0:9223372036854775808}"), BadField),
    ("envelope of another kind", lambda: checksummed.unwrap("other", ENVELOPE), BadField),
    ("envelope of another magic", lambda: checksummed.unwrap("kind", b"X" + ENVELOPE[1:]), BadMagic),
    ("envelope with a flipped version", lambda: checksummed.unwrap("kind", FLIPPED_VERSION), BadChecksum),
    ("envelope of version 0", lambda: checksummed.unwrap("kind", checksummed.wrap("kind", b"x", version=0)), BadField),
    ("envelope cut", lambda: checksummed.unwrap("kind", ENVELOPE[:-1]), Truncated),
    ("envelope with more behind it", lambda: checksummed.unwrap("kind", ENVELOPE + b"\0"), BadLength),
    ("envelope with a wrong payload", lambda: checksummed.unwrap("kind", ENVELOPE[:-1] + b"X"), BadChecksum),
    ("field number 0", lambda: list(protobuf_wire.fields(b"\0\0")), BadField),
    ("group", lambda: list(protobuf_wire.fields(b"\x0b")), BadField),
    ("varint without end", lambda: list(protobuf_wire.fields(b"\x08\x80")), Truncated),
    ("varint of eleven bytes", lambda: list(protobuf_wire.fields(b"\x08" + b"\x80" * 10 + b"\1")), BadLength),
    ("varint past 64 bits", lambda: list(protobuf_wire.fields(b"\x08" + b"\xff" * 9 + b"\2")), BadLength),
    ("bytes past the end", lambda: list(protobuf_wire.fields(b"\x12\x05abc")), Truncated),
    ("bytes of 2**63", lambda: list(protobuf_wire.fields(b"\x12" + b"\x80" * 9 + b"\1")), Truncated),
    ("fixed64 cut", lambda: list(protobuf_wire.fields(b"\x09" + bytes(7))), Truncated),
    ("delay that is no number", lambda: reference.record_tags_code(delayed("3x")), BadField),
    ("delay past 32 bits", lambda: reference.record_tags_code(delayed("2147483648")), BadField),
]  # fmt: skip


def delayed(level: str) -> Record:
    """A record of the schedule topic with this DELAY."""
    raw = properties.encode({"TAGS": "TagA", "DELAY": level})
    return make_record(topic=delay_level.SCHEDULE_TOPIC, properties=raw)


def test_refused(subtests: pytest.Subtests) -> None:
    """Each bad input raises its own error."""
    for name, decode, error in REFUSED:
        with subtests.test(name):
            with pytest.raises(FormatError) as caught:
                decode()
            assert type(caught.value) is error


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"A\x011\x02B\x012\x02", {"A": "1", "B": "2"}),
        (b"A\x011\x02B\x012", {"A": "1", "B": "2"}),
        (b"A\x011\x02A\x012\x02", {"A": "2"}),
        (b"A\x01b\x01c\x02", {"A": "b\x01c"}),
        (b"\x01v\x02A\x01\x02B\x02C\x01x", {"C": "x"}),
        (b"\x02\x02\x02", {}),
        (b"A\x01\xff\x02", {"A": "\ufffd"}),
        ("名\x01值\x02".encode(), {"名": "值"}),
    ],
)
def test_properties_are_read_as_5_3_reads_them(raw: bytes, expected: dict[str, str]) -> None:
    """Properties are read as RocketMQ 5.3 reads them.

    Cases: a missing last separator, duplicates, inner 0x01, empty names and values, and bytes that are not UTF-8.
    """
    assert properties.decode(raw) == expected
    for name, value in expected.items():
        if value != "\ufffd":
            assert properties.get(raw, name.encode()) == value.encode()
    assert properties.get(raw, b"missing") is None


def test_get_is_not_fooled_by_values_and_longer_names() -> None:
    """A name counts only where a property starts; an empty later duplicate does not hide an earlier value."""
    raw = b"XKEYS\x011\x02A\x01KEYS\x01no\x02KEYS\x01yes\x02KEYS\x01\x02"
    assert properties.get(raw, b"KEYS") == b"yes"
    assert properties.get(b"A\x01KEYS\x01no\x02", b"KEYS") is None


def test_keys_come_in_the_order_of_the_index() -> None:
    """The unique id first, then the pieces of KEYS; empty pieces skipped, duplicates kept."""
    assert properties.keys_of(b"KEYS\x01a  b a\x02UNIQ_KEY\x01u\x02") == [b"u", b"a", b"b", b"a"]
    assert properties.keys_of(b"TAGS\x01x\x02") == []


def test_remove_keeps_the_rest_byte_for_byte() -> None:
    """Only properties of the given name are removed."""
    assert properties.remove(b"A\x011\x02B\x012\x02A\x013", b"A") == b"B\x012"
    assert properties.remove(b"A\x011\x02", b"A") == b""
    assert properties.remove(b"A\x011\x02junk\x02", b"B") == b"A\x011\x02junk\x02"


def test_java_hash_uses_utf16_units() -> None:
    """Characters beyond the BMP count as two units; lone surrogates are taken as they are."""
    assert java.string_hash("") == 0
    assert java.string_hash("😀") == 31 * 0xD83D + 0xDE00
    assert java.string_hash("\ud83d") == 0xD83D


def test_hash_map_grows_past_three_quarters() -> None:
    """A map with capacity 16 and 13 names iterates as a map with capacity 32."""
    names = ["KEYS", "UNIQ_KEY", "CLUSTER", "TAGS", "WAIT", "DELAY", "REAL_TOPIC", "REAL_QID", "PGROUP", "TRAN_MSG"]
    names += ["TRACE_ON", "MSG_REGION", "RETRY_TOPIC"]
    assert reference.hash_map_order(names, capacity=16) == reference.hash_map_order(names, capacity=32)
    assert reference.hash_map_order(names[:12], capacity=16) != reference.hash_map_order(names[:12], capacity=32)


def test_properties_of_a_delivered_message() -> None:
    """A delivered message has the producer's properties in the order of the record.

    The delay and the store's own properties are removed.
    """
    sent = properties.encode({"TAGS": "TagA", "KEYS": "a b", "user_id": "7"})
    waiting = reference.delayed_properties(sent + b"DELAY\x0199", topic=b"T", queue_id=11)
    assert properties.decode(waiting) == {
        **properties.decode(sent), "DELAY": "18", "REAL_TOPIC": "T", "REAL_QID": "11"
    }  # fmt: skip
    assert delay_level.delivered_properties(waiting) == sent
    odd = waiting + b"TIMER_OUT_MS\x011\x02__CRC32#\x010123456789\x02half"
    assert delay_level.delivered_properties(odd) == sent


def test_delay_levels() -> None:
    """Levels 1 to 18 have RocketMQ's delays; a higher level counts as the last level, and 0 as no delay."""
    assert reference.delivery_time_ms(0, 1) == 1000
    assert reference.delivery_time_ms(0, 5) == 60_000
    assert delay_level.parse_levels("0s 2s 3m 4h 5d") == (0, 2_000, 180_000, 14_400_000, 432_000_000)
    assert reference.delivery_time_ms(5, 9, (1, 2)) == 7
    for text in (
        "",
        " ",
        "1s  2s",
        "1s ",
        "1",
        "s",
        "-1s",
        "1S",
        "1.5s",
        "1s,2s",
        "1w",
        "1s " * 256 + "1s",
        "9999999999s",
        "١s",
    ):
        with pytest.raises(BadField):
            delay_level.parse_levels(text)
    assert reference.delivery_time_ms(0, 18) == reference.delivery_time_ms(0, 99) == 7_200_000
    tag = consume_queue.tags_code("TagA")
    assert reference.record_tags_code(delayed("0")) == tag
    assert reference.record_tags_code(delayed("-1")) == tag
    assert reference.record_tags_code(make_record(properties=b"DELAY\x01x\x02")) == 0


def test_unit_validity() -> None:
    """Zeros are the end of a queue; a pre-blank is valid for RocketMQ and recognized as a pre-blank."""
    assert not consume_queue.decode_unit(bytes(20)).is_valid
    blank = consume_queue.decode_unit(consume_queue.PRE_BLANK)
    assert (blank.is_valid, blank.is_pre_blank) == (True, True)
    assert not batch_consume_queue.decode_unit(bytes(46)).is_valid


def test_extension_addresses_and_hashes_are_disjoint() -> None:
    """No tag's hash is taken for an address."""
    assert not consume_queue_ext.is_address(-(2**31))
    assert consume_queue_ext.is_address(reference.extension_address(2**31))


def test_offsets_and_names() -> None:
    """Segments are named by the offset of their first byte, index files by the moment of their creation."""
    assert store_layout.segment_base(2**30 + 5, 2**30) == 2**30
    assert store_layout.file_name(2**30) == "00000000001073741824"
    assert store_layout.parse_file_name(store_layout.file_name(2**63 - 1)) == 2**63 - 1
    name = store_layout.index_file_name(datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=UTC))
    assert name == "20231114221320123"
    assert store_layout.is_index_file_name(name)
    assert not store_layout.is_index_file_name("2023111422132012x")
    assert store_layout.cut_offset(store_layout.cut_name(2**30, 7)) == 2**30
    assert store_layout.cut_offset("7-7") is None


def test_index_time_differences() -> None:
    """Whole seconds, never negative, never past 32 bits, 0 without a begin."""
    assert index_file.time_difference_s(5999, 1000) == 4
    assert index_file.time_difference_s(500, 1000) == 0
    assert index_file.time_difference_s(5000, 0) == 0
    assert index_file.time_difference_s(2**62, 1) == 2**31 - 1
    assert index_file.decode_header(bytes(40)).entry_count == 0


def test_checkpoint_minimum() -> None:
    """Three seconds of margin, never negative; the index has none of its own."""
    assert StoreCheckpoint(1000, 9000, 5).min_time_ms == 0
    assert StoreCheckpoint(9000, 8000, 4000).min_time_ms == 5000


@pytest.mark.parametrize(
    "lines", [b"1-5\n1-6\n", b"2-5\n1-6\n", b"1-5\n2-4\n", b"1-5 \n", b"x\n", b"1-99999999999999999999\n"]
)
def test_epochs_must_grow(lines: bytes) -> None:
    """Lines with a right checksum are still refused where numbers or offsets do not grow."""
    data = f"{lines.count(10)}\n{crc.body_crc(lines)}\n".encode() + lines
    with pytest.raises(BadField):
        epoch_file.decode(data)


def test_json_reads_integer_keys_only_as_keys() -> None:
    """Unquoted and quoted integer keys are read the same; text that looks like such a key stays text."""
    text = '{"a{0:1}":"{1:\\"2:3",5 :[{6:7}],\n -8\t:"9:"}'
    assert config_json.loads(text) == {"a{0:1}": '{1:"2:3', "5": [{"6": 7}], "-8": "9:"}


def test_json_is_written_as_fastjson_writes_it() -> None:
    """Tabs, no space after the colon, integer keys bare, empty blocks closed at once."""
    value = {"t@g": {0: 5}, "empty": {}, "list": [1, "订"], "none": None, "flag": True}
    text = config_json.dumps(value)
    assert text == (
        '{\n\t"t@g":{\n\t\t0:5\n\t},\n\t"empty":{},\n\t"list":[\n\t\t1,\n\t\t"订"\n\t],\n\t"none":null,\n\t"flag":true\n}'
    )
    assert config_json.loads(text) == {**value, "t@g": {"0": 5}}


def test_files_of_4_x_have_no_version() -> None:
    """Missing dataVersion and missing fields read as RocketMQ's defaults."""
    offsets_file = consumer_offsets_json.loads('{"offsetTable":{}}')
    assert offsets_file.data_version is None
    assert '"dataVersion"' not in consumer_offsets_json.dumps(offsets_file)
    found = topic("{}").topics["t"]
    assert (found.read_queue_count, found.write_queue_count, found.permission) == (16, 16, 6)


def test_protobuf_writers_agree_with_the_reader() -> None:
    """Fields come back with number, wire type and value; zero is left out, negative numbers take ten bytes."""
    data = (
        protobuf_wire.int_field(1, -1)
        + protobuf_wire.int_field(2, 0)
        + protobuf_wire.int_field(3, 300)
        + protobuf_wire.length_delimited(536870911, b"abc")
    )
    found = [
        (number, wire_type, bytes(value) if isinstance(value, memoryview) else protobuf_wire.signed(value))
        for number, wire_type, value in protobuf_wire.fields(data)
    ]
    assert found == [(1, 0, -1), (3, 0, 300), (536870911, 2, b"abc")]
    assert len(protobuf_wire.int_field(1, -1)) == 11


def test_a_writer_stamp_is_its_documented_bytes() -> None:
    """Name, four hexadecimal numbers of fixed width, the id; and back."""
    stamp = writer_stamp.WriterStamp("etl/0", 7, 0xDEADBEEF, 255, 500)
    raw = writer_stamp.encode_property(stamp)
    assert raw == b"REPUT_WRITER\x01" + STAMP + b"etl/0\x02"
    assert len(raw) == writer_stamp.property_size_bytes("etl/0")
    assert writer_stamp.decode(raw[13:-1]) == stamp
    assert stamp.end_physical_offset == 755
    assert properties.decode(raw)["REPUT_WRITER"].endswith("etl/0")


@pytest.mark.parametrize("text", ["", "a b", "ü", "a\x01", "a\x7f", "x" * 201])
def test_writer_ids_that_are_none(text: str) -> None:
    """A stamp must come back from a property, so its id has printable ASCII without spaces only."""
    assert not writer_stamp.is_writer_id(text)
    assert writer_stamp.is_writer_id("query-7/0/3")


@pytest.mark.parametrize(
    ("data", "abort"),
    [
        (b"4711\n", Abort(4711)),
        (b"4711 follows\n", Abort(4711, follows=True)),
        (b"4711 owed\n", Abort(4711, is_owed=True)),
        (b"4711 follows owed\n", Abort(4711, follows=True, is_owed=True)),
        (b"owed\n", Abort(is_owed=True)),
        (b"4711 follows owed behind\n", Abort(4711, follows=True, is_owed=True, is_behind=True)),
        (b"owed behind\n", Abort(is_owed=True, is_behind=True)),
        (b"behind\n", Abort(is_behind=True)),
    ],
)
def test_abort_files_of_reput(data: bytes, abort: Abort) -> None:
    """Each word that applies is in the file.

    A stop in order leaves the file only with the word for files that RocketMQ still has to recover.
    """
    assert (abort_file.encode(abort), abort_file.decode(data)) == (data, abort)
    assert abort.is_clean == (data in (b"owed\n", b"behind\n", b"owed behind\n"))


def test_abort_files_of_others() -> None:
    """RocketMQ writes no newline; other content is returned as noise, and never refused."""
    assert abort_file.decode(b"") == Abort(is_of_rocketmq=True)
    assert abort_file.decode(b"4711") == Abort(4711, is_of_rocketmq=True)
    assert abort_file.decode(b"no number") == Abort(is_of_rocketmq=True, noise=b"no number")
