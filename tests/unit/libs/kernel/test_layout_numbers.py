# SPDX-License-Identifier: Apache-2.0
"""Numbers that the kernel repeats, because the compiler must see them, are those of the modules that own them."""

from typing import Any

import pytest

from libs.formats import crc, java, limits
from libs.formats.indexes import consume_queue, index_file
from libs.formats.records import host, properties, record
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.kernel.answer import arrow
from libs.kernel.append import append_columns, topic_table
from libs.kernel.scan import scan_columns
from tests.unit.libs.kernel.builds import BUILDS, SOURCES, Build, label

UNSIGNED = 2**32
ROOMS = {
    "text_cy": {},
    "message_cy": {"TOPIC_SIZE_MAX": limits.TOPIC_SIZE_BYTES_MAX},
    "place_cy": {
        "MAGIC_V1": record.MAGIC_V1 % UNSIGNED,
        "CRC_PROPERTY_NAME": int.from_bytes(properties.CRC32, "big"),
        "BORN_HOST_V6": record.BORN_HOST_V6_FLAG,
        "TRANSACTION_TYPE": record.TRANSACTION_MASK,
        "TRANSACTION_COMMIT": record.TRANSACTION_COMMIT,
        "REAL_TOPIC_BUCKET": java.hash_map_bucket("REAL_TOPIC"),
        "HASH_MAP_MASK": java.HASH_MAP_CAPACITY - 1,
        "PLAN_STRIDE": append_columns.PLAN_STRIDE,
    },
    "append_cy": {
        "RECORD_SIZE_MIN": limits.RECORD_SIZE_BYTES_MIN,
        "IPV6_EXTRA_SIZE": host.HOST_IPV6_SIZE_BYTES - host.HOST_IPV4_SIZE_BYTES,
        "BLANK_SIZE_MIN": limits.BLANK_SIZE_BYTES_MIN,
        "CRC_PROPERTY_SIZE": limits.CRC_PROPERTY_SIZE_BYTES,
        "PROPERTIES_SIZE_MAX": limits.PROPERTIES_SIZE_BYTES_MAX,
        "INT32_MAX": limits.INT32_MAX,
        "BORN_HOST_V6": record.BORN_HOST_V6_FLAG,
        "STORE_HOST_V6": record.STORE_HOST_V6_FLAG,
        "TRANSACTION_TYPE": record.TRANSACTION_MASK,
        "TRANSACTION_COMMIT": record.TRANSACTION_COMMIT,
        "REAL_SIZE_MIN": len(properties.REAL_TOPIC + properties.REAL_QID) + 4,
        "INNER_BATCH_FLAGS": record.NEED_UNWRAP_FLAG | record.INNER_BATCH_FLAG,
        "PLAN_STRIDE": append_columns.PLAN_STRIDE,
    },
    "record_cy": {
        "MAGIC_V1": record.MAGIC_V1,
        "MAGIC_V2": record.MAGIC_V2,
        "MAGIC_BLANK": record.MAGIC_BLANK,
        "RECORD_SIZE_MIN": limits.RECORD_SIZE_BYTES_MIN,
        "BLANK_SIZE_MIN": limits.BLANK_SIZE_BYTES_MIN,
        "CRC_PROPERTY_SIZE": limits.CRC_PROPERTY_SIZE_BYTES,
        "HOST_V4_SIZE": host.HOST_IPV4_SIZE_BYTES,
        "HOST_V6_SIZE": host.HOST_IPV6_SIZE_BYTES,
        "BORN_HOST_V6": record.BORN_HOST_V6_FLAG,
        "STORE_HOST_V6": record.STORE_HOST_V6_FLAG,
    },
    "scan_cy": {
        "TRANSACTION_TYPE": record.TRANSACTION_MASK,
        "TRANSACTION_PREPARED": record.TRANSACTION_PREPARED,
        "TRANSACTION_ROLLBACK": record.TRANSACTION_ROLLBACK,
        "INNER_BATCH_FLAG": record.INNER_BATCH_FLAG,
        "INT32_SPAN": scan_columns.BATCH_QUEUE_ID,
        "QUEUE_ROW_STRIDE": scan_columns.QUEUE_ROW_STRIDE,
        "TOPIC_START": scan_columns.TOPIC_START,
        "TOPIC_SIZE": scan_columns.TOPIC_SIZE,
        "QUEUE_ID": scan_columns.QUEUE_ID,
        "TOPIC_HASH": scan_columns.TOPIC_HASH,
        "SLOT": scan_columns.SLOT,
        "STAMP_STRIDE": scan_columns.STAMP_STRIDE,
    },
    "index_cy": {
        "UNIT_SIZE": consume_queue.UNIT_SIZE_BYTES,
        "HEADER_SIZE": index_file.HEADER_SIZE_BYTES,
        "SLOT_SIZE": index_file.SLOT_SIZE_BYTES,
        "ENTRY_SIZE": index_file.ENTRY_SIZE_BYTES,
    },
    "arrow_cy": {
        name: getattr(arrow, name)
        for name in (
            "KEY_START", "KEY_SIZE", "VALUE_START", "VALUE_SIZE", "TAG_START", "TAG_SIZE", "TOPIC_START", "TOPIC_SIZE",
            "PROPERTY_COUNT", "NAMES_SIZE", "VALUES_SIZE", "MESSAGE_ID_SIZE", "QUEUE_ID", "QUEUE_OFFSET",
            "PHYSICAL_OFFSET", "STORE_TIME", "BORN_TIME", "FLAG", "SYS_FLAG",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_repeated_numbers(room: str) -> None:
    """A number that a kernel source repeats equals the one of the module that owns it."""
    module = getattr(SOURCES, room)
    assert {name: getattr(module, name) for name in ROOMS[room]} == ROOMS[room]


@pytest.mark.parametrize("room", ["append_cy", "place_cy"])
def test_table_columns(room: str) -> None:
    """Both passes of append see the topic table's columns where it keeps them, and each other's plan."""
    module = vars(getattr(SOURCES, room))
    owned = vars(topic_table)
    shared = [name for name in module if name in owned and isinstance(module[name], int)]
    assert {"append_cy": 8, "place_cy": 6}[room] <= len(shared)
    assert {name: module[name] for name in shared} == {name: owned[name] for name in shared}
    plan = {name: value for name, value in module.items() if name.startswith("PLAN_") and name != "PLAN_STRIDE"}
    other = vars(SOURCES.place_cy)
    assert {name: other[name] for name in plan} == plan
    assert (plan["PLAN_ROW"], plan["PLAN_QUEUE_ID"]) == (append_columns.PLAN_ROW, append_columns.PLAN_QUEUE_ID)
    assert max(plan.values()) < append_columns.PLAN_STRIDE


def test_limits_of_scan() -> None:
    """One record's keys always fit, and the names inside the scan are the real ones."""
    assert scan_columns.KEY_COUNT_PER_RECORD_MAX >= limits.KEY_COUNT_MAX - 1
    assert (len(SCHEDULE_TOPIC), SCHEDULE_TOPIC) == (19, "SCHEDULE_TOPIC_XXXX")
    assert java.hash_map_bucket("REAL_QID") == java.HASH_MAP_CAPACITY - 1  # so append writes it last
    assert crc.CRC_PROPERTY_PREFIX == properties.CRC32 + b"\x01"


@pytest.mark.parametrize("build", BUILDS, ids=label)
def test_codes(build: Build) -> None:
    """Outcome codes are those of the contract, the same in both builds."""
    codes: list[Any] = [
        "WIRE", "FULL", "EMPTY", "TOO_MANY", "TOPIC_NAME", "TOPIC_UNKNOWN", "TOPIC_FORBIDDEN", "QUEUE", "BODY_SIZE",
        "PROPERTIES", "PROPERTIES_SIZE", "DELAY", "HOST", "FIELD", "RECORD_SIZE", "WRITER", "LIGHT", "QUEUES",
    ]  # fmt: skip
    assert [getattr(build.append_cy, f"E_{name}") for name in codes] == list(range(-1, -19, -1))
    names = ["END", "FULL", "BLANK", "TRUNCATED", "BAD_MAGIC", "BAD_LENGTH", "BAD_CRC", "BAD_OFFSET"]
    assert [getattr(build.scan_cy, f"S_{name}") for name in names] == list(range(8))
