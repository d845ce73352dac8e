# SPDX-License-Identifier: Apache-2.0
"""The compiled kernel and its uncompiled source give the same answers, also for bytes that make no sense.

Buffers end at a page that may not be read, so an access past their end ends the test run.
Without extensions these tests still run, for a single build. They then show that nothing escapes and nothing hangs.
"""

import random
import struct
from array import array
from typing import Any

import numpy as np

from libs.formats.indexes.index_file import file_size_bytes
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.formats.records import record
from tests.support.records import IPV4_STORE, IPV6_BORN, IPV6_STORE, encoded
from tests.unit.libs.kernel.builds import BUILDS, Build, Guarded
from tests.unit.libs.kernel.requests import Appender, entry, make_table, message

TOPICS = [b"TopicTest", b"Other", b"Closed", b"SCHEDULE_TOPIC_XXXX", b"nobody", b"", b"../x", b"t" * 127, b"t" * 128]
NAMES = [
    b"A",
    b"KEYS",
    b"TAGS",
    b"DELAY",
    b"REAL_TOPIC",
    b"REAL_QID",
    b"TIMER_DELAY_SEC",
    b"TRAN_MSG",
    b"user_id",
    b"__CRC32#",
    b"__SHARDINGKEY",
    b"UNIQ_KEY",
    b"INNER_NUM",
    b"\xff",
    b"",
    b"x\x01",
    b"TIMER_DELAY_MS",
    b"TIMER_DELIVER_MS",
    b"TIMER_OUT_MS",
    b"TIMER_DEL_UNIQKEY",
]
VALUES = [
    b"v",
    b"a b",
    b"1",
    b"19",
    b"+3",
    b"true",
    b"1700000099000",
    b"0",
    b"-9",
    b"",
    "значение😀".encode(),
    b"\xc3",
    b"v\x02w",
    b"\x01",
    b"0123456789",
]
NUMBERS = [0, 1, 3, 4, 127, 128, 0x40, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -1, -(2**31), -(2**63)]
BUFFER_COUNT = 10_000


def likely(chance: random.Random, good: list[Any], all_values: list[Any], share: float = 0.9) -> Any:
    """A value that is mostly from `good`."""
    return chance.choice(good if chance.random() < share else all_values)


def some_message(chance: random.Random) -> bytes:
    """A mostly good message with fields in any order."""
    parts = [
        entry(likely(chance, NAMES[:3], NAMES), likely(chance, VALUES[:2], VALUES)) for _ in range(chance.randrange(4))
    ]
    if chance.random() < 0.4:
        pieces = [
            likely(chance, NAMES[:12], NAMES) + b"\x01" + likely(chance, VALUES[2:7], VALUES)
            for _ in range(chance.choice([1, 3, 6]))
        ]
        parts = [length_delimited(5, b"\x02".join(pieces) + b"\x02" * chance.randrange(2))]
    for number in (6, 7, 8, 10, 11):
        if chance.random() < 0.2:
            parts.append(int_field(number, likely(chance, [1, 3, 4, 8], NUMBERS)))
    if chance.random() < 0.2:
        address = bytes(likely(chance, [4, 16], [0, 3, 5, 17]))
        parts.append(length_delimited(9, length_delimited(1, address) + int_field(2, likely(chance, [1], NUMBERS))))
    if chance.random() < 0.1:
        parts.append(chance.choice([b"\xf8\x01\x05", b"\x1b", b"\x00", b"\xf9\x01" + bytes(8), b"\x12", b"\xff" * 11]))
    chance.shuffle(parts)
    queue_id = chance.choice([None, likely(chance, [0, 1, 2, 3], NUMBERS)])
    body = chance.randbytes(chance.choice([0, 1, 7, 60, 300]))
    return message(likely(chance, TOPICS[:2], TOPICS), *parts, body=body, queue_id=queue_id)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Return the data unchanged, cut, with bytes inverted, or with a piece of it moved."""
    changed = bytearray(data)
    kind = chance.randrange(6)
    if not changed or kind < 2:
        return data
    if kind == 2:
        return data[: chance.randrange(len(data))]
    if kind == 3:
        start = chance.randrange(len(data))
        return data[start:] + data[:start]
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(len(changed))] ^= chance.choice([1, 2, 8, 0x7F, 0x80, 0xFF])
    return bytes(changed)


def state_of(appender: Appender, outcome: int) -> tuple[Any, ...]:
    """Return the state that an append may change or return."""
    columns, table = appender.columns, appender.table
    errors = columns.error_index, columns.error_field, columns.error_value, columns.topic_start, columns.topic_size
    return (
        outcome, errors, columns.durability, appender.placed(), bytes(appender.segment), table.rows.tolist(),
        table.counter_values.tolist(),
    )  # fmt: skip


def test_append(chance: random.Random) -> None:
    """Both builds store or refuse random and hostile requests alike, byte for byte and counter for counter."""
    requests, segments = Guarded(1 << 20), [Guarded(1 << 14) for _ in BUILDS]
    appended = delayed = 0
    for number in range(1500):
        if number % 50 == 0:
            hosts = {
                "store_host": chance.choice([IPV4_STORE, IPV6_STORE]).to_bytes(),
                "crc_property": number % 100 == 0,
            }
            size = chance.choice([1000, 16000])
            appenders = [
                Appender(build, segment=room.hold(bytes(size)), table=make_table(), **hosts)
                for build, room in zip(BUILDS, segments, strict=True)
            ]
        batch = b"".join(length_delimited(1, some_message(chance)) for _ in range(chance.randrange(1, 5)))
        data = requests.hold(damaged(chance, batch + int_field(2, chance.choice([0, 0, 1, 2, 3, 4]))))
        states = [state_of(appender, appender.append(data)) for appender in appenders]
        assert all(state == states[0] for state in states)
        appended += states[0][0] > 0
        delayed += states[0][0] > 0 and b"REAL_QID" in states[0][4]
    assert appended > 20
    assert delayed > 10


def some_records(chance: random.Random) -> bytes:
    """A few records of all shapes, as they follow each other in a segment."""
    data = b""
    for _ in range(chance.randrange(1, 4)):
        pieces = [chance.choice(NAMES) + b"\x01" + chance.choice(VALUES) for _ in range(chance.randrange(5))]
        changes: dict[str, Any] = {
            "properties": b"\x02".join(pieces),
            "topic": chance.choice(["T", "TopicTest", "订单", "SCHEDULE_TOPIC_XXXX"]),
            "queue_id": chance.randrange(3),
            "sys_flag": chance.choice([0, 0, 4, 8, 12]),
            "version": chance.choice([1, 1, 2]),
            "store_time_ms": chance.choice([1, 2**63 - 1, 1_700_000_000_000]),
            "body": chance.randbytes(chance.choice([0, 1, 30])),
        }
        if chance.random() < 0.3:
            changes["born_host"] = IPV6_BORN
        data += encoded(len(data), crc_property=chance.random() < 0.3, **changes)
    return data + chance.choice([b"", bytes(8), record.encode_blank(16) + bytes(8), b"\x00\x00"])


def scan_of(build: Build, data: Any, base: int) -> tuple[Any, ...]:
    """Return all results of a scan, and of a check of the first record."""
    columns = build.scan_cy.ScanColumns(3, 16)
    status = build.scan_cy.scan(data, 0, len(data), base, True, columns)
    rows = [
        getattr(columns, name)[: columns.count].tolist()
        for name in (
            "physical_offsets", "queue_offsets", "tags_codes", "store_times_ms", "positions", "record_sizes",
            "queue_indexes", "sys_flags", "key_counts",
        )
    ]  # fmt: skip
    ends = status, columns.end_position, columns.error_position, columns.queues()
    first = build.scan_cy.check_record(data, 0, len(data), base, False)
    return (*ends, rows, columns.key_hashes[: columns.key_count].tolist(), columns.slots.tolist().count(0), first)


def answer_of(function: Any, *arguments: Any) -> Any:
    """The result of a function, or the text of the ValueError that it raises."""
    try:
        return function(*arguments)
    except ValueError as error:
        return str(error)


def test_scan_and_encode(chance: random.Random) -> None:
    """Both builds return the same columns, protobuf bytes and Arrow buffers for random, damaged and good buffers."""
    room = Guarded(1 << 16)
    good = 0
    for number in range(BUFFER_COUNT if len(BUILDS) == 2 else BUFFER_COUNT // 4):
        raw = chance.randbytes(chance.randrange(200)) if number % 4 == 0 else damaged(chance, some_records(chance))
        if number % 8 == 0 and len(raw) > 12:
            raw = struct.pack(">ii", chance.choice([len(raw), 91, 2**31 - 1]), record.MAGIC_V1) + raw[8:]
        data = room.hold(raw)
        scans = [scan_of(build, data, 0) for build in BUILDS]
        assert all(one == scans[0] for one in scans)
        good += scans[0][0] == 0
        if number % 5 == 0:
            rows = scans[0][4]
            positions, sizes = np.array([*rows[4], 1], np.int64), np.array([*rows[5], 100], np.int32)
            for count in (len(rows[4]), len(rows[4]) + 1):
                encodings = [
                    answer_of(one.encode_cy.encode_messages, data, positions, sizes, count, 5) for one in BUILDS
                ]
                assert all(one == encodings[0] for one in encodings)
                frames = [
                    answer_of(one.encode_cy.encode_records, data, positions, sizes, count, 5, b"head") for one in BUILDS
                ]
                assert all(one == frames[0] for one in frames)
                assert isinstance(frames[0], str) == isinstance(encodings[0], str)
                columns = [arrow_of(one, data, positions, sizes, count) for one in BUILDS]
                assert all(one == columns[0] for one in columns)
                few, kept = (positions[:count], sizes[:count]), [name for name in NAMES if name]
                values = [answer_of(one.values_cy.property_values, data, *few, kept) for one in BUILDS]
                assert all(one == values[0] for one in values)
    assert good > 100


def arrow_of(build: Build, data: Any, positions: Any, sizes: Any, count: int) -> Any:
    """Return all Arrow buffers as lists, or the text of the error."""
    names = sorted(build.arrow.COLUMN_NAMES)
    columns = answer_of(build.arrow.record_columns, data, positions, sizes, count, names)
    if isinstance(columns, str):
        return columns
    return [
        [None if part is None else part.tolist() for part in (one.validity, one.offsets, one.data)]
        for column in columns.values()
        for one in (column, *column.children)
    ]


def test_index(chance: random.Random) -> None:
    """Index files that both builds fill, and that are then damaged, stay equal and answer searches alike."""
    slots, capacity = 5, 40
    size = file_size_bytes(slots, capacity)
    rooms = [Guarded(size) for _ in BUILDS]
    for _ in range(150):
        files = [room.hold(bytes(size)) for room in rooms]
        for _ in range(6):
            counts = [chance.randrange(4) for _ in range(5)]
            columns = (
                0,
                array("q", [chance.randrange(2**40) for _ in counts]),
                array(
                    "q",
                    [chance.choice([0, -1, 2**63 - 1, 1_700_000_000_000 + chance.randrange(10**7)]) for _ in counts],
                ),
                array("i", counts),
                0,
                array("i", [chance.randrange(12) for _ in range(sum(counts))]),
                len(counts),
                slots,
                capacity,
            )
            answers = [
                answer_of(one.index_cy.put_index_entries, file, *columns)
                for one, file in zip(BUILDS, files, strict=True)
            ]
            assert all(one == answers[0] for one in answers)
            at, bits = chance.randrange(size), chance.choice([0, 0, 1, 0x80, 0xFF])
            for file in files:
                file[at] ^= bits
            assert all(bytes(file) == bytes(files[0]) for file in files)
            entry_number = chance.choice([0, 3, 99])
            arguments = (
                chance.randrange(12),
                chance.choice([0, 1_700_000_005_000, -(2**63)]),
                2**62,
                chance.choice([2**40, 2**62]),
                chance.choice([2**40, 2**20]),
            )
            found = []
            for build, file in zip(BUILDS, files, strict=True):
                lookup, out, counts = build.lookup_cy, array("q", bytes(8 * 7)), array("i", bytes(4 * 2))
                searched = [lookup.SearchedFile(file, slots)] * 2
                tally = array("q", [0, 0])
                answer = lookup.search(searched, 1, entry_number, *arguments, out, tally)
                hashes = array("i", [arguments[0], 3])
                room = array("q", bytes(8 * 6))
                many = lookup.search_many(searched, hashes, 0, 0, 2**62, 2**40, 3, room, counts, tally)
                found.append((answer, out, many, counts, tally))
            assert all(one == found[0] for one in found)
