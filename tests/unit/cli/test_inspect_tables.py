# SPDX-License-Identifier: Apache-2.0
"""Inspection of consume queue and index files: sound files are printed, structural damage is named by position."""

import struct
from pathlib import Path

import pytest

from cli.inspect.inspection import Finding, Item
from cli.inspect.store import inspect_file
from libs.formats.indexes import consume_queue, index_file
from libs.formats.indexes.index_file import ENTRY_SIZE_BYTES, SLOT_SIZE_BYTES, IndexEntry, IndexHeader
from tests.support import reference
from tests.support.frame_cases import flipped, patched
from tests.support.inspections import findings_in

BEGIN_TIME_MS = 1_700_000_000_000
SLOT_COUNT, ENTRY_CAPACITY = 25, 100


def queue_data(*, blank_count: int = 0, unit_count: int = 20, capacity: int = 40) -> bytes:
    """Units of records of 200 bytes with 50 bytes between them, after some pre-blanks, before unwritten space."""
    units = [reference.queue_unit(1000 + 250 * n, 200, consume_queue.tags_code(f"T{n}")) for n in range(unit_count)]
    return (consume_queue.PRE_BLANK * blank_count + b"".join(units)).ljust(20 * capacity, b"\0")


def queue_path(folder: Path, data: bytes, *, name: int = 0, topic: str = "TopicTest") -> Path:
    path = folder / "consumequeue" / topic / "3" / f"{name:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def findings_of(path: Path, kind: str | None = None) -> list[Finding]:
    return findings_in(inspect_file(path, kind=kind, limit=0))


def test_sound_queue_prints_its_units(tmp_path: Path) -> None:
    """Units have their queue offsets, and pre-blanks are marked.

    Nothing is found. The summary has the queue's range.
    """
    data = queue_data(blank_count=5)
    inspection = inspect_file(queue_path(tmp_path, data, name=len(data)), start=4, limit=2)
    items = [step for step in inspection if isinstance(step, Item)]
    assert inspection.kind == "consume_queue"
    assert inspection.is_sound
    assert [item.fields["queue_offset"] for item in items] == [44, 45]
    assert items[0].fields["is_pre_blank"] is True
    assert items[1].fields["physical_offset"] == 1000
    assert (inspection.summary["min_queue_offset"], inspection.summary["max_queue_offset"]) == (45, 65)


@pytest.mark.parametrize("blank_count", [0, 5])
@pytest.mark.parametrize("count", [1, 2, 20, 35])
def test_every_grave_flip_in_a_unit_names_the_unit(tmp_path: Path, blank_count: int, count: int) -> None:
    """The top bits of offset, size or tags code cannot flip unseen, and the finding lies in that unit."""
    data = queue_data(blank_count=blank_count, unit_count=count)
    for number in range(blank_count, blank_count + count):
        is_last = number >= blank_count + count - 2
        for field_at, bits in ((0, 0x80), (8, 0x80), (8, 0x40), (12, 0x40)):
            position = 20 * number + field_at
            if is_last and bits == 0x40 and field_at == 8:
                continue  # only units behind it could show that a record is not that long
            found = findings_of(queue_path(tmp_path, flipped(data, position, bits)))
            assert [(f.position, f.item) for f in found] == [(position, f"unit {number}")], (number, field_at, bits)


def test_units_out_of_order_name_the_culprit(tmp_path: Path) -> None:
    """Of two units whose records overlap, the unit that does not fit the other units either is named."""
    data = queue_data()
    for number in range(1, 20):
        for wrong in (0, 10**12) if number < 18 else (0,):
            found = findings_of(queue_path(tmp_path, patched(data, 20 * number, struct.pack(">q", wrong))))
            assert [(f.item, f.field) for f in found] == [(f"unit {number}", "physical offset")], (number, wrong)


def test_last_units_out_of_order_name_both(tmp_path: Path) -> None:
    """If no unit follows, either of two units may be wrong, and the finding names both."""
    found = findings_of(queue_path(tmp_path, patched(queue_data(), 20 * 18, struct.pack(">q", 10**12))))
    assert [(f.position, f.item) for f in found] == [(20 * 18, "unit 18 or unit 19")]


def test_zero_unit_in_the_middle_is_found(tmp_path: Path) -> None:
    """A unit of zeros with units behind it is damage, not the end."""
    found = findings_of(queue_path(tmp_path, patched(queue_data(), 20 * 7, bytes(20))))
    assert [(f.position, f.field) for f in found] == [(20 * 7 + 8, "record size")]


def test_alignment_of_size_and_name_is_checked(tmp_path: Path) -> None:
    """A file of broken units, or with a name that no file of this size can have, is found."""
    found = findings_of(queue_path(tmp_path, queue_data() + b"\0\0\0"))
    assert [(f.position, f.field) for f in found] == [(800, "size")]
    found = findings_of(queue_path(tmp_path, queue_data(), name=20))
    assert [(f.item, f.field) for f in found] == [("file", "name")]


def test_delivery_times_belong_to_the_schedule_topic(tmp_path: Path) -> None:
    """A tags code beyond 32 bits is a delivery time in the schedule topic and damage elsewhere."""
    data = reference.queue_unit(0, 165, BEGIN_TIME_MS) + bytes(20)
    assert findings_of(queue_path(tmp_path, data, topic="SCHEDULE_TOPIC_XXXX")) == []
    assert [f.field for f in findings_of(queue_path(tmp_path, data))] == ["tags code"]


def index_data(entry_count: int = 60) -> bytes:
    """An index file of 25 slots as its writer leaves it: an entry for each second, long chains."""
    slots = [0] * SLOT_COUNT
    entries = [b"\0" * ENTRY_SIZE_BYTES]
    for number in range(1, entry_count + 1):
        key_hash = index_file.key_hash(f"TopicTest#key-{number}")
        slot = key_hash % SLOT_COUNT
        entries.append(reference.index_entry(IndexEntry(key_hash, 1000 * number, number - 1, slots[slot])))
        slots[slot] = number
    end_time_ms = BEGIN_TIME_MS + 1000 * (entry_count - 1) + 300
    used = sum(slot > 0 for slot in slots)
    header = IndexHeader(BEGIN_TIME_MS, end_time_ms, 1000, 1000 * entry_count, used, entry_count + 1)
    data = reference.index_header(header) + struct.pack(f">{SLOT_COUNT}i", *slots) + b"".join(entries)
    return data.ljust(index_file.file_size_bytes(SLOT_COUNT, ENTRY_CAPACITY), b"\0")


def index_path(folder: Path, data: bytes) -> Path:
    path = folder / "index" / "20231114221320123"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("count", [1, 2, 60, 99])
def test_sound_index_file_prints_its_entries(tmp_path: Path, count: int) -> None:
    """Header and entries with their times; no findings, full or not."""
    inspection = inspect_file(index_path(tmp_path, index_data(count)), start=0, limit=5)
    items = [step for step in inspection if isinstance(step, Item)]
    assert inspection.kind == "index_file"
    assert inspection.is_sound
    assert items[0].kind == "header"
    assert [item.number for item in items[1:]] == list(range(1, min(count, 5) + 1))
    assert items[1].fields["time_ms"] == BEGIN_TIME_MS
    assert inspection.summary["entry_count"] == count


def test_empty_index_file_is_sound(tmp_path: Path) -> None:
    """A new file is all zero, or counts 1 as its next entry."""
    size = index_file.file_size_bytes(SLOT_COUNT, ENTRY_CAPACITY)
    assert findings_of(index_path(tmp_path, bytes(size))) == []
    assert findings_of(index_path(tmp_path, bytes(39) + b"\1" + bytes(size - 40))) == []


def test_old_count_of_slots_is_accepted(tmp_path: Path) -> None:
    """Before RocketMQ 4.7 the header counted every put as a used slot."""
    data = patched(index_data(60), index_file.SLOT_COUNT_AT, struct.pack(">i", 60))
    assert findings_of(index_path(tmp_path, data)) == []


def test_header_flips_are_named(tmp_path: Path) -> None:
    """Every flipped top bit of the header's fields, and every flip of its counts and offsets, is found."""
    data = index_data()
    wanted = {
        *((at, 0x80) for at in (0, 8, 16, 24)),
        *((at, bits) for at in range(16, 40) for bits in (0x01, 0x80, 0xFF)),
    }
    for position, bits in sorted(wanted):
        found = findings_of(index_path(tmp_path, flipped(data, position, bits)))
        near = [f for f in found if f.position // 8 * 8 in (position // 8 * 8, 0, 8) or "header" in f.item]
        assert near, (position, bits, found)


def test_every_flip_of_slots_and_links_is_named(tmp_path: Path) -> None:
    """A flip in a slot, a key hash or a link to the previous entry is found at that very place."""
    data = index_data()
    places = [40 + SLOT_SIZE_BYTES * slot for slot in range(SLOT_COUNT)]
    for number in range(1, 61):
        entry = index_file.entry_position(number, SLOT_COUNT)
        places += [entry + index_file.KEY_HASH_AT, entry + index_file.PREVIOUS_ENTRY_AT]
    for place in places:
        for position in range(place, place + 4):
            for bits in (0x01, 0x80):
                found = findings_of(index_path(tmp_path, flipped(data, position, bits)))
                assert found, (position, bits)
                assert place in [f.position for f in found], (position, bits, found)


def test_every_grave_flip_of_an_entry_is_named(tmp_path: Path) -> None:
    """Physical offsets out of order and times outside the file's are found at their entry."""
    data = index_data()
    for number in range(1, 61):
        entry = index_file.entry_position(number, SLOT_COUNT)
        for position, bits in ((entry + 4, 0x80), (entry + 8, 0x01), (entry + 12, 0x80), (entry + 13, 0x01)):
            if number == 1 and position == entry + 13:
                continue  # RocketMQ counts the first entry's time from the file before it
            found = findings_of(index_path(tmp_path, flipped(data, position, bits)))
            assert any(entry <= f.position < entry + 20 or f"entry {number}" in f.item for f in found), (number, found)


def test_entries_beyond_the_count_are_found(tmp_path: Path) -> None:
    """Entry 0 and the entry after the last are zero in a sound file."""
    data = index_data()
    for number in (0, 61):
        position = index_file.entry_position(number, SLOT_COUNT)
        found = findings_of(index_path(tmp_path, flipped(data, position + 5, 0x01)))
        assert [(f.position, f.item) for f in found] == [(position, f"entry {number}")]


def test_other_proportions_need_the_slot_count(tmp_path: Path) -> None:
    """A file without four entries per slot asks for the slot count, and is read if the count is given."""
    data = index_data()[: -20 * 3]
    assert [f.field for f in findings_of(index_path(tmp_path, data))] == ["size"]
    assert findings_of(index_path(tmp_path, data), kind=f"index_file:{SLOT_COUNT}") == []


def test_noise_gives_findings_and_no_exception(tmp_path: Path) -> None:
    """A file of any bytes ends in findings."""
    for byte in (b"\xff", b"\x01", b"\x7f", b"\x80"):
        assert findings_of(index_path(tmp_path, byte * len(index_data())))
        assert findings_of(queue_path(tmp_path, byte * 800))
