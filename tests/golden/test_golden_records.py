# SPDX-License-Identifier: Apache-2.0
"""Golden records, ids and hashes, in both directions: the bytes give the values, and the values give the bytes."""

import tomllib

import pytest
from msgspec.structs import replace

from libs.formats import crc, java
from libs.formats.indexes import consume_queue, index_file
from libs.formats.records import message_id, properties, record
from libs.formats.records.host import Host
from libs.formats.records.record import Record
from tests.support import reference
from tests.support.golden import DATA, golden
from tests.support.records import IPV4_STORE, IPV6_BORN, IPV6_STORE, make_record

UNIQUE_ID = "C0A8010A1F9018B4AAC2000000640000"
PLAIN_PROPERTIES = {"UNIQ_KEY": UNIQUE_ID, "CLUSTER": "DefaultCluster", "TAGS": "TagA", "KEYS": "order-1001"}
REAL_PLACE = {"REAL_TOPIC": "TopicTest", "REAL_QID": "3"}
TAGS = b"TAGS\x01TagA\x02"

PLAIN = make_record(
    physical_offset=1_073_742_048, body=b"Hello RocketMQ", properties=reference.java_properties(PLAIN_PROPERTIES)
)
SMALL = make_record(queue_id=0, queue_offset=0, body=b"hi", properties=TAGS)
RECORDS: dict[str, Record] = {
    "plain_record": PLAIN,
    "plain_record_4_9": replace(PLAIN, properties=PLAIN.properties[:-1]),
    "v2_ipv6_record": replace(SMALL, version=2, sys_flag=0x30, born_host=IPV6_BORN, store_host=IPV6_STORE),
    "crc_property_record": replace(SMALL, properties=TAGS + b"__CRC32#\x012515922251\x02"),
    "delayed_record": make_record(
        topic="SCHEDULE_TOPIC_XXXX",
        queue_id=2,
        queue_offset=0,
        body=b"later",
        properties=properties.encode({"DELAY": "3", "TAGS": "TagA", "REAL_TOPIC": "TopicTest", "REAL_QID": "3"}),
    ),
    "timed_record": make_record(
        topic="rmq_sys_wheel_timer",
        queue_id=0,
        queue_offset=0,
        body=b"at ten",
        properties=reference.java_properties(
            {"TIMER_DELIVER_MS": "1700000010000", "TIMER_OUT_MS": "1700000009000", "TAGS": "TagA", **REAL_PLACE}
        ),
    ),
    "half_record": make_record(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        queue_id=0,
        queue_offset=0,
        body=b"half",
        properties=reference.java_properties({"TRAN_MSG": "true", "PGROUP": "payments", **REAL_PLACE}),
    ),
}


def test_manifest_lists_every_file() -> None:
    """Each golden file has a row in the manifest with its content, its source and its date."""
    rows = tomllib.loads((DATA / "manifest.toml").read_text())["file"]
    files = {str(path.relative_to(DATA)) for path in DATA.rglob("*") if path.is_file()} - {"manifest.toml"}
    assert {row["path"] for row in rows} == files
    assert all(row["holds"] and row["source"] and row["date"] for row in rows)


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    """Every golden record decodes to its fields and is written back byte for byte."""
    data = golden(f"commit_log/v1/{name}.hex")
    assert record.decode(data) == RECORDS[name]
    assert record.encode(RECORDS[name], crc_property=name == "crc_property_record") == data
    assert RECORDS[name].size_bytes == len(data)


def test_crc_property_digits() -> None:
    """The CRC property holds the masked CRC of all bytes before it, with reversed digits."""
    data = golden("commit_log/v1/crc_property_record.hex")
    assert crc.body_crc(data[:112]) == 1_522_295_152
    assert crc.crc_property(1_522_295_152) == data[112:]
    assert crc.crc_property_value(data[112:]) == 1_522_295_152
    assert crc.crc_property(42)[9:-1] == b"2400000000"
    assert crc.crc_property_value(crc.crc_property(42)) == 42


def test_blank() -> None:
    """A blank of 300 bytes has eight bytes, in both directions."""
    data = golden("commit_log/v1/blank.hex")
    assert record.encode_blank(300) == data
    assert record.is_blank(data)


def test_properties_stand_in_the_order_of_a_hash_map() -> None:
    """The plain record's properties are in HashMap(128) order, and HashMap(16) would order them differently."""
    assert list(properties.decode(record.decode(golden("commit_log/v1/plain_record.hex")).properties).items()) == [
        *PLAIN_PROPERTIES.items()
    ]
    shuffled = ["KEYS", "TAGS", "UNIQ_KEY", "CLUSTER"]  # the last two share a bucket and keep their order
    assert reference.hash_map_order(shuffled) == ["UNIQ_KEY", "CLUSTER", "TAGS", "KEYS"]
    assert reference.hash_map_order(shuffled, capacity=16) == ["KEYS", "UNIQ_KEY", "CLUSTER", "TAGS"]
    delayed = ["REAL_QID", "REAL_TOPIC", "TAGS", "DELAY"]
    assert reference.hash_map_order(delayed) == ["DELAY", "TAGS", "REAL_TOPIC", "REAL_QID"]


@pytest.mark.parametrize(
    ("text", "java_hash", "key_hash", "slot", "slot_position"),
    [
        (f"TopicTest#{UNIQUE_ID}", -1895470262, 1895470262, 470262, 1881088),
        ("TopicTest#order-1001", 1043804929, 1043804929, 3804929, 15219756),
        ("TopicTest#订单-1", -573861415, 573861415, 3861415, 15445700),
        ("polygenelubricants", -2147483648, 0, 0, 40),
    ],
)
def test_key_hashes(text: str, java_hash: int, key_hash: int, slot: int, slot_position: int) -> None:
    """Keys have Java's hash, over UTF-16, and the same slots."""
    assert java.string_hash(text) == java_hash
    assert index_file.key_hash(text) == key_hash
    assert key_hash % 5_000_000 == slot
    assert index_file.slot_position(key_hash, 5_000_000) == slot_position


def test_tag_hashes() -> None:
    """Tags codes of the golden units are Java's hashes of the tags."""
    assert consume_queue.tags_code("TagA") == 2_598_919
    assert consume_queue.tags_code("shipment") == -516_329_062
    assert reference.record_tags_code(PLAIN) == 2_598_919


@pytest.mark.parametrize(
    ("name", "host", "physical_offset"),
    [("offset_id_ipv4", IPV4_STORE, 1_073_742_048), ("offset_id_ipv6", IPV6_STORE, 0)],
)
def test_offset_ids(name: str, host: Host, physical_offset: int) -> None:
    """Offset ids are read and written in both directions."""
    text = golden(f"message_ids/v1/{name}.hex").hex().upper()
    assert message_id.encode_offset_id(host, physical_offset) == text
    assert message_id.decode_offset_id(text) == (host, physical_offset)
    assert message_id.decode_offset_id(text.lower()) == (host, physical_offset)
