# SPDX-License-Identifier: Apache-2.0
"""scan and check_record: the shared table of frames, and columns with the values that libs.formats decodes."""

import struct
from typing import Any

import numpy as np
import pytest

from libs.formats.indexes import index_file
from libs.formats.records import properties, record
from libs.kernel import layout
from tests.support import reference
from tests.support.frame_cases import (
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BAD_OFFSET,
    BASE,
    BLANK,
    FRAME_CASES,
    OK,
    TRUNCATED,
    FrameCase,
)
from tests.support.records import encoded, run_of
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded, label

pytestmark = pytest.mark.parametrize("build", BUILDS, ids=label)
OUTCOMES = {
    OK: "S_END",
    TRUNCATED: "S_TRUNCATED",
    BAD_MAGIC: "S_BAD_MAGIC",
    BAD_LENGTH: "S_BAD_LENGTH",
    BAD_CRC: "S_BAD_CRC",
    BAD_OFFSET: "S_BAD_OFFSET",
    BLANK: "S_BLANK",
}
GUARDED = Guarded(1 << 20)


def scanned(build: Build, data: Any, *, base: int = BASE, room: int = 16, check_crc: bool = True) -> Any:
    """Columns of a scan over all of the data."""
    columns = build.scan_cy.ScanColumns(room, 16)
    build.scan_cy.scan(data, 0, len(data), base, check_crc, columns)
    return columns


def test_frames(build: Build, subtests: pytest.Subtests) -> None:
    """Every good and hostile buffer gives the outcome that the table states, to scan and to check_record."""
    for case in FRAME_CASES:
        with subtests.test(case.name):
            _check_frame(build, case)


def _check_frame(build: Build, case: FrameCase) -> None:
    data = GUARDED.hold(case.data)
    columns = scanned(build, data, base=case.base_physical_offset)
    expected = getattr(layout, OUTCOMES[case.outcome])
    assert (columns.status, columns.count, columns.end_position) == (expected, case.record_count, case.stop_position)
    assert columns.error_position == (-1 if case.outcome in (OK, BLANK) else case.stop_position)
    base, positions = case.base_physical_offset, [0]
    for _ in range(case.record_count):
        positions.append(positions[-1] + build.scan_cy.check_record(data, positions[-1], len(data), base, True))
    answer = build.scan_cy.check_record(data, positions[-1], len(data), base, True)
    assert (positions[-1], answer) == (case.stop_position, -expected)
    sizes = np.array([*np.diff(positions), 91], np.int32)
    assert build.scan_cy.check_records(data, np.array(positions), sizes, base) == case.record_count


@pytest.mark.parametrize("wrong", [-1, 91, 2**62, -(2**62)])
def test_check_records_of_wrong_places_and_sizes(build: Build, wrong: int) -> None:
    """The count stops before a position outside of the buffer or inside of a record, and before a size that differs."""
    data = GUARDED.hold(run_of(3, BASE))
    columns = scanned(build, data)
    positions, sizes = np.array(columns.positions[:3]), np.array(columns.record_sizes[:3])
    assert build.scan_cy.check_records(data, positions, sizes, BASE) == 3
    assert build.scan_cy.check_records(data, positions[:0], sizes[:0], BASE) == 0
    assert build.scan_cy.check_records(data, positions, sizes + np.array([0, 0, 1], np.int32), BASE) == 2
    assert build.scan_cy.check_records(data, positions, sizes, BASE + 1) == 0
    positions[1] = wrong
    assert build.scan_cy.check_records(data, positions, sizes, BASE) == 1
    with pytest.raises(ValueError, match="3 positions, 2 sizes"):
        build.scan_cy.check_records(data, positions, sizes[:2], BASE)


def test_checksums_only_on_request(build: Build) -> None:
    """Without check_crc a damaged body is not looked at; lengths and the stored offset are."""
    data = bytearray(run_of(2, BASE))
    data[90] ^= 1
    assert scanned(build, data, check_crc=False).count == 2
    data[30] ^= 1
    assert scanned(build, data, check_crc=False).status == layout.S_BAD_OFFSET


def test_columns(build: Build) -> None:
    """Each column holds the values that libs.formats decodes from each record."""
    shapes: list[dict[str, Any]] = [
        {"properties": b"UNIQ_KEY\x01u1\x02KEYS\x01a  b a \x02TAGS\x01shipment\x02"},
        {"topic": "订单", "queue_id": 9, "properties": "KEYS\x01ключ 😀\x02TAGS\x01订\x02".encode(), "sys_flag": 8},
        {"properties": b"KEYS\x01old\x02TAGS\x01old\x02KEYS\x01new\x02TAGS\x01new", "version": 2},
        {"properties": b"TAGS\x01\x02KEYS\x01\x02xx\x02\x01y\x02", "queue_offset": 2**40},
        {"properties": b"", "topic": "t", "queue_id": 2**31 - 1},
        {"properties": b"KEYS\x01a\x02", "sys_flag": record.TRANSACTION_PREPARED},
        {"properties": b"KEYS\x01a\x02TAGS\x01x\x02", "sys_flag": record.TRANSACTION_ROLLBACK},
        {"topic": "SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x013\x02TAGS\x01x\x02"},
    ]
    data = b""
    for changes in shapes:
        data += encoded(BASE + len(data), **changes)
    columns = scanned(build, data)
    assert (columns.status, columns.count) == (layout.S_END, len(shapes))
    key_at = 0
    for row in range(columns.count):
        one = record.decode(data, columns.positions[row])
        keys = [] if one.sys_flag & 0xC == record.TRANSACTION_ROLLBACK else properties.keys_of(one.properties)
        hashes = [index_file.key_hash(index_file.key_text(one.topic, key.decode())) for key in keys]
        assert columns.key_hashes[key_at : key_at + columns.key_counts[row]].tolist() == hashes
        key_at += len(hashes)
        queue = columns.queue_indexes[row]
        has_place = one.sys_flag & 0xC in (record.TRANSACTION_NOT, record.TRANSACTION_COMMIT)
        assert (columns.queues()[queue] if queue >= 0 else None) == (
            (one.topic.encode(), one.queue_id) if has_place else None
        )
        assert columns.tags_codes[row] == reference.record_tags_code(one)
        assert (columns.physical_offsets[row], columns.queue_offsets[row]) == (one.physical_offset, one.queue_offset)
        assert (columns.store_times_ms[row], columns.sys_flags[row]) == (one.store_time_ms, one.sys_flag)
        assert columns.record_sizes[row] == one.size_bytes
    assert key_at == columns.key_count


@pytest.mark.parametrize(
    ("delay", "added_ms"),
    [(b"1", 1_000), (b"4", 30_000), (b"5", 60_000), (b"14", 600_000), (b"15", 1_200_000), (b"16", 1_800_000),
     (b"17", 3_600_000), (b"18", 7_200_000), (b"99", 7_200_000), (b"+2", 5_000)],
)  # fmt: skip
def test_delivery_time_of_the_schedule_topic(build: Build, delay: bytes, added_ms: int) -> None:
    """The tags code of a delayed record is its delivery time, level by level."""
    raw = b"TAGS\x01x\x02DELAY\x01" + delay
    columns = scanned(build, encoded(BASE, topic="SCHEDULE_TOPIC_XXXX", properties=raw))
    assert columns.tags_codes[0] == columns.store_times_ms[0] + added_ms


def test_delivery_time_by_other_levels(build: Build) -> None:
    """The levels of the columns count; the last of them for all above it."""
    data = b""
    for level in (b"1", b"2", b"3"):
        data += encoded(BASE + len(data), topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x01" + level)
    columns = build.scan_cy.ScanColumns(3, 1, (7, 86_400_000 * 365))
    build.scan_cy.scan(data, 0, len(data), BASE, True, columns)
    times = [columns.tags_codes[row] - columns.store_times_ms[row] for row in range(3)]
    assert times == [7, 86_400_000 * 365, 86_400_000 * 365]


@pytest.mark.parametrize("delay", [b"0", b"-1", b"x", b"99999999999", b"1 "])
def test_delay_that_delays_nothing(build: Build, delay: bytes) -> None:
    """Level 0, negative levels and text leave the tag's hash; so does a level in another topic."""
    raw = b"TAGS\x01x\x02DELAY\x01" + delay
    assert scanned(build, encoded(BASE, topic="SCHEDULE_TOPIC_XXXX", properties=raw)).tags_codes[0] == ord("x")
    assert scanned(build, encoded(BASE, topic="T", properties=b"TAGS\x01x\x02DELAY\x013")).tags_codes[0] == ord("x")


def test_full_columns_go_on(build: Build) -> None:
    """A scan of many records through small columns, in several calls, gives all of them once."""
    data = run_of(7, BASE)
    columns = build.scan_cy.ScanColumns(3, 1)
    position, found, statuses = 0, [], []
    while True:
        statuses.append(build.scan_cy.scan(data, position, len(data), BASE, True, columns))
        found += columns.physical_offsets[: columns.count].tolist()
        position = columns.end_position
        if statuses[-1] != layout.S_FULL:
            break
    assert statuses == [layout.S_FULL, layout.S_FULL, layout.S_END]
    assert [offset - BASE for offset in found] == [len(data) // 7 * row for row in range(7)]


def test_full_keys_stop_before_a_record(build: Build) -> None:
    """A record whose keys do not all fit is left as a whole for the next call.

    The record with the most keys always fits into empty columns.
    """
    many = b"KEYS\x01" + b"a " * 16380 + b"a\x02"
    first, second = encoded(BASE), b""
    second = encoded(BASE + len(first), properties=many)
    third = encoded(BASE + len(first) + len(second), properties=many[:-2] + b"bb\x02" if len(many) < 32767 else many)
    data = first + second + third
    columns = build.scan_cy.ScanColumns(10, 1)
    assert build.scan_cy.scan(data, 0, len(data), BASE, True, columns) == layout.S_FULL
    assert (columns.count, columns.key_count) == (2, 16382)
    assert build.scan_cy.scan(data, columns.end_position, len(data), BASE, True, columns) == layout.S_END
    assert (columns.count, columns.key_counts[0]) == (1, 16381)


def test_many_queues(build: Build) -> None:
    """The columns have each queue, with as many queues as records, and a second scan starts without queues."""
    data = b""
    for number in range(40):
        data += encoded(BASE + len(data), topic=f"t{number % 20}", queue_id=number // 20)
    columns = scanned(build, data, room=64)
    assert columns.queues() == [(b"t%d" % (number % 20), number // 20) for number in range(40)]
    build.scan_cy.scan(data, 0, len(data) // 2, BASE, True, columns)
    assert columns.queues() == [(b"t%d" % number, 0) for number in range(20)]
    assert columns.queue_indexes[:20].tolist() == list(range(20))


def test_range_outside_of_the_buffer(build: Build) -> None:
    """Positions that are not in the buffer are the caller's error."""
    columns = build.scan_cy.ScanColumns(1, 1)
    for position, end in ((-1, 5), (6, 5), (0, 11)):
        with pytest.raises(ValueError, match="outside"):
            build.scan_cy.scan(bytes(10), position, end, 0, True, columns)
        with pytest.raises(ValueError, match="outside"):
            build.scan_cy.check_record(bytes(10), position, end, 0, True)


def test_end_in_front_of_good_bytes(build: Build) -> None:
    """Bytes behind `end` are not scanned, even if they are a good record."""
    data = run_of(2, BASE)
    columns = build.scan_cy.ScanColumns(9, 9)
    assert build.scan_cy.scan(data, 0, len(data) - 1, BASE, True, columns) == layout.S_TRUNCATED
    assert columns.count == 1
    assert struct.unpack_from(">i", data, columns.end_position)[0] == columns.record_sizes[0]


def test_records_of_unknown_sizes(build: Build) -> None:
    """A record within its known bytes is checked in full; of a longer one the claimed size is told, negative."""
    good = encoded(100)
    data, size = good + encoded(900), len(good)
    sizes = np.zeros(2, np.int32)

    def check(places: list[int], ends: list[int], offsets: list[int], held: Any = data) -> int:
        columns = (np.array(column, np.int64) for column in (places, ends, offsets))
        return int(build.scan_cy.check_placed(held, *columns, sizes))

    assert check([size, 0], [2 * size, 2 * size], [900, 100]) == 2
    assert sizes.tolist() == [size, size]
    assert check([0, size], [size - 1, size + 4], [100, 900]) == 2
    assert sizes.tolist() == [-size, -size]
    for place, end, offset in ((0, 3, 100), (-1, size, 99), (0, 2 * size + 1, 100), (1, 0, 100), (0, size, 101)):
        assert check([size, place], [2 * size, end], [900, offset]) == 1
    room = Guarded(4096)
    for at in range(size):
        changed = bytearray(good)
        changed[at] ^= 0x10
        held = room.hold(bytes(changed))
        is_good = build.scan_cy.check_record(held, 0, size, 100, True) == size
        is_longer = int.from_bytes(changed[:4], signed=True) > size
        assert check([0, 0], [size, size], [100, 100], held) == (2 if is_good or is_longer else 0)
    with pytest.raises(ValueError, match="lengths"):
        check([0], [1], [1])
