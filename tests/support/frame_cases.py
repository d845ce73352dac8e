# SPDX-License-Identifier: Apache-2.0
"""FRAME_CASES: buffers of records, good and hostile, with the result that every reader must return.

The same table goes through libs.formats and through both builds of the scan kernel. A reader starts at position 0 of
`data`, whose first byte has the physical offset `base_physical_offset`, and checks CRCs. It finds `record_count` good
records and then stops at `stop_position` with `outcome`: "ok" (reached the end of the data exactly), "truncated",
"bad_magic", "bad_length", "bad_crc", "bad_offset" or "blank".

Where several checks could fail, the first of this order counts: fewer than 8 bytes left, magic, total size too small,
total size past the end, the lengths inside, the stored physical offset, checksums.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from libs.formats.records import record
from tests.support.records import IPV4_BORN, IPV4_STORE, IPV6_BORN, IPV6_STORE, encoded, run_of

BASE = 2**40
"""Physical offset of most cases: it does not fit 32 bits."""

OK, TRUNCATED, BAD_MAGIC, BAD_LENGTH = "ok", "truncated", "bad_magic", "bad_length"
BAD_CRC, BAD_OFFSET, BLANK = "bad_crc", "bad_offset", "blank"


@dataclass(frozen=True, slots=True)
class FrameCase:
    """A buffer and the result that a reader must return for it."""

    name: str
    data: bytes
    outcome: str
    record_count: int = 0
    stop_position: int = 0
    base_physical_offset: int = BASE


def patched(data: bytes, position: int, replacement: bytes) -> bytes:
    """The data with other bytes at a position."""
    return data[:position] + replacement + data[position + len(replacement) :]


def flipped(data: bytes, position: int, bits: int) -> bytes:
    """The data with some bits of a byte inverted."""
    return patched(data, position, bytes([data[position] ^ bits]))


def _good() -> Iterator[FrameCase]:
    yield FrameCase("empty", b"", OK)
    shapes = {
        "v1": {},
        "v2": {"version": 2},
        "v1_born_ipv6": {"born_host": IPV6_BORN, "store_host": IPV4_STORE},
        "v1_store_ipv6": {"born_host": IPV4_BORN, "store_host": IPV6_STORE},
        "v2_both_ipv6": {"born_host": IPV6_BORN, "store_host": IPV6_STORE, "version": 2},
        "empty_body": {"body": b""},
        "no_properties": {"properties": b""},
        "nothing_but_a_topic": {"body": b"", "properties": b"", "topic": "t"},
        "no_last_separator": {"properties": b"TAGS\x01TagA\x02KEYS\x01a b"},
        "topic_of_127_bytes": {"topic": "t" * 127},
        "topic_of_300_bytes": {"topic": "t" * 300, "version": 2},
        "topic_not_ascii": {"topic": "订单"},
        "body_of_64_kib": {"body": bytes(range(256)) * 256},
        "prepared": {"sys_flag": record.TRANSACTION_PREPARED, "queue_offset": 0},
        "commit": {"sys_flag": record.TRANSACTION_COMMIT, "prepared_transaction_offset": 5},
        "rollback": {"sys_flag": record.TRANSACTION_ROLLBACK, "queue_offset": 0},
        "other_sys_flag_bits": {"sys_flag": 0x7C3},
        "extreme_numbers": {"flag": -(2**31), "born_time_ms": 2**63 - 1, "reconsume_times": 2**31 - 1},
    }
    for name, changes in shapes.items():
        for crc_property in (False, True):
            data = encoded(BASE, crc_property=crc_property, **changes)
            yield FrameCase(f"good_{name}{'_crc' * crc_property}", data, OK, 1, len(data))
    longest = encoded(BASE, properties=b"A\x01" + b"v" * (32767 - 3) + b"\x02")
    yield FrameCase("good_properties_of_32767_bytes", longest, OK, 1, len(longest))
    three = run_of(3, BASE)
    yield FrameCase("good_three_records", three, OK, 3, len(three))
    first = run_of(2, 0)
    yield FrameCase("good_first_segment", first, OK, 2, len(first), base_physical_offset=0)


def _ends() -> Iterator[FrameCase]:
    data = run_of(2, BASE)
    size = len(data)
    blank = record.encode_blank(108)
    yield FrameCase("blank_zero_filled", data + blank + bytes(100), BLANK, 2, size)
    yield FrameCase("blank_with_stale_bytes", data + blank + encoded(BASE)[:100], BLANK, 2, size)
    yield FrameCase("blank_of_8_bytes", data + record.encode_blank(8), BLANK, 2, size)
    yield FrameCase("blank_alone", blank + bytes(100), BLANK)
    yield FrameCase("blank_cut", data + blank[:7], TRUNCATED, 2, size)
    yield FrameCase("zero_tail", data + bytes(500), BAD_MAGIC, 2, size)
    yield FrameCase("zero_tail_of_8_bytes", data + bytes(8), BAD_MAGIC, 2, size)
    yield FrameCase("zero_tail_of_7_bytes", data + bytes(7), TRUNCATED, 2, size)
    yield FrameCase("all_zero", bytes(4096), BAD_MAGIC)
    yield FrameCase("all_ones", b"\xff" * 4096, BAD_MAGIC)
    one = len(run_of(1, BASE))
    for cut in (1, 4, 7, 8, 60, size - one - 1):
        yield FrameCase(f"second_record_cut_after_{cut}", data[: one + cut], TRUNCATED, 1, one)


def _truncations() -> Iterator[FrameCase]:
    data = encoded(BASE, crc_property=True)
    for size in range(1, len(data)):
        yield FrameCase(f"cut_after_{size}", data[:size], TRUNCATED)


def _sizes_and_magics() -> Iterator[FrameCase]:
    data = encoded(BASE, crc_property=True)
    size = len(data)
    total_sizes = {
        0: BAD_LENGTH, -1: BAD_LENGTH, -(2**31): BAD_LENGTH, 8: BAD_LENGTH, 90: BAD_LENGTH, 91: BAD_LENGTH,
        size - 1: BAD_LENGTH, size + 1: TRUNCATED, 2**31 - 1: TRUNCATED,
    }  # fmt: skip
    for value, outcome in total_sizes.items():
        yield FrameCase(f"total_size_{value}", patched(data, 0, struct.pack(">i", value)), outcome)
    longer = patched(data, 0, struct.pack(">i", size + 1)) + b"\x02"
    yield FrameCase("total_size_one_more_than_its_fields", longer, BAD_LENGTH)
    for magic in (0, 0xDAA320A6, 0xDAA320A8, 0xDAA320AA, 0xA720A3DA, 0xFFFFFFFF):
        yield FrameCase(f"magic_{magic:08x}", patched(data, 4, struct.pack(">I", magic)), BAD_MAGIC)
    yield FrameCase("magic_v2_on_v1", patched(data, 4, struct.pack(">i", record.MAGIC_V2)), BAD_LENGTH)
    yield FrameCase("magic_blank_on_record", patched(data, 4, struct.pack(">i", record.MAGIC_BLANK)), BLANK)
    shape = record.check_header(data)
    for value in (-1, -(2**31), size, 2**31 - 1, shape.body_size_bytes + 1, shape.body_size_bytes - 1):
        yield FrameCase(f"body_size_{value}", patched(data, shape.body_size_at, struct.pack(">i", value)), BAD_LENGTH)
    for value in (0, shape.topic_size_bytes - 1, shape.topic_size_bytes + 1, 127, 128, 255):
        yield FrameCase(f"topic_size_{value}", patched(data, shape.topic_size_at, bytes([value])), BAD_LENGTH)
    right = shape.properties_size_bytes
    for value in (0, right - 1, right + 1, 32767, -1, -32768):
        changed = patched(data, shape.properties_size_at, struct.pack(">h", value))
        yield FrameCase(f"properties_size_{value}", changed, BAD_LENGTH)
    wide = encoded(BASE, version=2, topic="t" * 300)
    for value in (-1, -32768, 32767):
        yield FrameCase(f"v2_topic_size_{value}", patched(wide, 88 + 37, struct.pack(">h", value)), BAD_LENGTH)


def _offsets() -> Iterator[FrameCase]:
    data = encoded(BASE, crc_property=True)
    for value in (0, BASE - 1, BASE + 1, BASE - 2**31, -1, -(2**63), 2**63 - 1):
        yield FrameCase(f"stored_offset_{value}", patched(data, 28, struct.pack(">q", value)), BAD_OFFSET)
    yield FrameCase("record_of_another_place", encoded(BASE + 4096), BAD_OFFSET)
    two = run_of(1, BASE)
    yield FrameCase("second_record_of_another_place", two + encoded(BASE), BAD_OFFSET, 1, len(two))


def _header_flip_outcome(data: bytes, position: int, bits: int) -> str:
    """The outcome of an inverted bit in the first 88 bytes of a V1 record with IPv4 hosts and CRC property."""
    if position < 4:
        total = struct.unpack_from(">i", flipped(data, position, bits))[0]
        return TRUNCATED if total > len(data) else BAD_LENGTH
    if position < 8:
        return BAD_MAGIC
    if 28 <= position < 36:
        return BAD_OFFSET
    if position == 39 and bits & 0x30:
        return BAD_LENGTH  # hosts of another size move every field behind them
    return BAD_LENGTH if 84 <= position < 88 else BAD_CRC


def _flips() -> Iterator[FrameCase]:
    data = encoded(BASE, crc_property=True)
    shape = record.check_header(data)
    for position in range(88):
        for bits in (0x01, 0x10, 0x80, 0xFF):
            outcome = _header_flip_outcome(data, position, bits)
            yield FrameCase(f"flip_{bits:02x}_at_{position}", flipped(data, position, bits), outcome)
    covered = [*range(88, shape.topic_size_at), *range(shape.topic_at, shape.properties_size_at)]
    covered += range(shape.properties_at, shape.crc_property_at)
    digits = range(shape.crc_property_at + 9, shape.end - 1)
    for position in (*covered, *digits):
        yield FrameCase(f"flip_01_at_{position}", flipped(data, position, 0x01), BAD_CRC)
    yield FrameCase("crc_digit_not_a_digit", flipped(data, digits[0], 0x80), BAD_CRC)
    plain = encoded(BASE)
    for position in (*range(8, 12), *range(88, 125)):
        yield FrameCase(f"plain_flip_at_{position}", flipped(plain, position, 0x01), BAD_CRC)
    # Without the CRC property these fields have no checksum, so each reader must accept them.
    for name, position in {"queue_id": 15, "flag": 19, "queue_offset": 27, "born_time": 47, "topic": 126}.items():
        yield FrameCase(f"plain_flip_in_{name}_unseen", flipped(plain, position, 0x01), OK, 1, len(plain))
    second = run_of(2, BASE)
    at = len(run_of(1, BASE))
    yield FrameCase("flip_in_second_record", flipped(second, at + 90, 0x01), BAD_CRC, 1, at)


FRAME_CASES: tuple[FrameCase, ...] = (
    *_good(),
    *_ends(),
    *_truncations(),
    *_sizes_and_magics(),
    *_offsets(),
    *_flips(),
)

assert len({case.name for case in FRAME_CASES}) == len(FRAME_CASES), "two cases have one name"
