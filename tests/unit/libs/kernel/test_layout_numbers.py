# SPDX-License-Identifier: Apache-2.0
"""Assumptions behind the kernel's numbers. `make lint` compares the numbers with the formats."""

from libs.formats import crc, java, limits
from libs.formats.records import properties
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.kernel import layout
from libs.kernel.scan import scan_columns


def test_columns_have_room() -> None:
    """The stride of a table is behind the last of its columns."""
    for prefix in ("PLAN_", "ARROW_", "QUEUE_ROW_"):
        columns = {name: value for name, value in vars(layout).items() if name.startswith(prefix)}
        assert columns.pop(f"{prefix}STRIDE") == len(columns) == len(set(columns.values()))


def test_limits_of_scan() -> None:
    """The keys of a record always fit, and the names inside the scan are the real names."""
    assert scan_columns.KEY_COUNT_PER_RECORD_MAX >= limits.KEY_COUNT_MAX - 1
    assert (len(SCHEDULE_TOPIC), SCHEDULE_TOPIC) == (19, "SCHEDULE_TOPIC_XXXX")
    assert java.hash_map_bucket("REAL_QID") == java.HASH_MAP_CAPACITY - 1  # so append writes it last
    assert crc.CRC_PROPERTY_PREFIX == properties.CRC32 + b"\x01"
