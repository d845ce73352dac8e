# SPDX-License-Identifier: Apache-2.0
"""Inspection of an index file: header against entries, slots in range, chains that lead back, hashes that fit.

Layout: docs/formats/index_file.md. Every entry must be reached exactly once, from its slot or from a later entry of its
bucket. This rule, the order of entries and the header's ranges show nearly every damaged byte. Runs over slices of the
mapped file: besides them it keeps a byte per entry.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from cli.inspect.inspection import Data, Finding, Inspection, Item, Steps, Window
from libs.formats.errors import FormatError
from libs.formats.indexes import index_file
from libs.formats.indexes.index_file import (
    ENTRY_ARRAY,
    ENTRY_PHYSICAL_OFFSET_AT,
    ENTRY_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    KEY_HASH_AT,
    PREVIOUS_ENTRY_AT,
    SLOT_SIZE_BYTES,
    TIME_DIFFERENCE_AT,
    IndexHeader,
)

_CHUNK_COUNT = 1 << 19
_FIELD_AT = {
    "": 0,
    "key hash": KEY_HASH_AT,
    "physical offset": ENTRY_PHYSICAL_OFFSET_AT,
    "time difference": TIME_DIFFERENCE_AT,
    "previous entry": PREVIOUS_ENTRY_AT,
}
_FINDING_COUNT_MAX = 1000
"""Per check and slice: a file of noise would give millions."""
_CHAIN_LENGTH_MAX = 1 << 20
_SLOT, _ENTRY = "slot", "entry"

Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class _Link(NamedTuple):
    """A link that leads from a slot or an entry of a bucket to an entry of another bucket."""

    source: str
    number: int
    bucket: int
    target: int


class _File(Struct):
    """The file and the results of its chains so far."""

    data: Data
    slot_count: int
    header: IndexHeader
    entry_count: int
    reference_counts: npt.NDArray[np.uint8]
    wrong_links: list[_Link] = field(default_factory=list)
    reported_buckets: set[int] = field(default_factory=set)

    def entry_at(self, number: int) -> int:
        """Return the byte position of an entry."""
        return index_file.entry_position(number, self.slot_count)

    def slot_at(self, slot: int) -> int:
        """Return the byte position of a slot."""
        return HEADER_SIZE_BYTES + SLOT_SIZE_BYTES * slot

    def entries(self, start: int, end: int) -> npt.NDArray[np.void]:
        """Return a copy of these entries, so that no array keeps the mapping alive."""
        return np.frombuffer(self.data[self.entry_at(start) : self.entry_at(end)], ENTRY_ARRAY)

    def buckets(self, numbers: Numbers) -> Numbers:
        """Return the slot that the key hash of each of these entries belongs to, -1 for a negative hash."""
        with memoryview(self.data) as view:
            words = np.frombuffer(view, ">i4", count=len(view) // 4)
            hashes = words[self.entry_at(0) // 4 + numbers * (ENTRY_SIZE_BYTES // 4)].astype(np.int64)
            del words
        return np.where(hashes < 0, -1, hashes % self.slot_count)

    def finding(self, number: int, field: str, message: str) -> Finding:
        """Return a finding about a field of an entry."""
        return Finding(self.entry_at(number) + _FIELD_AT[field], f"entry {number}", field, message)

    def link_finding(self, source: str, number: int, message: str) -> Finding:
        """Return a finding about the link of a slot or an entry."""
        if source == _SLOT:
            return Finding(self.slot_at(number), f"slot {number}", "newest entry", message)
        return self.finding(number, "previous entry", message)


def inspect_index_file(data: Data, inspection: Inspection) -> Steps:
    """Yield header, entries and findings. Unless the number of slots is given, it is of RocketMQ's proportions."""
    slot_count = inspection.slot_count or index_file.guess_slot_count(len(data))
    entries_size = len(data) - HEADER_SIZE_BYTES - SLOT_SIZE_BYTES * slot_count
    if not slot_count or entries_size < ENTRY_SIZE_BYTES or entries_size % ENTRY_SIZE_BYTES:
        message = f"{len(data)} bytes do not tell the number of slots; give the kind as index_file:SLOTS"
        yield Finding(0, "file", "size", message)
        return
    capacity = entries_size // ENTRY_SIZE_BYTES
    try:
        header = index_file.decode_header(data)
    except FormatError as error:
        yield Finding(error.position, "header", error.field, error.reason)
        header = IndexHeader(*index_file.HEADER.unpack_from(data))
    inspection.summary.update(slot_count=slot_count, entry_capacity=capacity, entry_count=header.entry_count)
    yield Item("header", 0, 0, {**header._asdict(), "entry_count": header.entry_count})
    count = max(0, min(header.entry_count, capacity - 1))
    file = _File(data, slot_count, header, count, np.zeros(count + 1, np.uint8))
    yield from _header(file, capacity)
    yield from _items(file, inspection.window)
    yield from _chains(file, inspection)
    yield from _entries(file)


def _header(file: _File, capacity: int) -> Steps:
    header = file.header
    if header.next_entry > capacity:
        message = f"{header.next_entry}, but the file has room for {capacity - 1} entries"
        yield Finding(index_file.ENTRY_COUNT_AT, "header", "entry count", message)
    if header.begin_time_ms > header.end_time_ms or header.begin_time_ms < 0:
        message = f"{header.begin_time_ms} is not before the end time {header.end_time_ms}"
        yield Finding(index_file.BEGIN_TIME_AT, "header", "begin time", message)
    if header.begin_physical_offset > header.end_physical_offset or header.begin_physical_offset < 0:
        message = f"{header.begin_physical_offset} is not before the end {header.end_physical_offset}"
        yield Finding(index_file.BEGIN_PHYSICAL_OFFSET_AT, "header", "begin physical offset", message)
    if any(file.data[file.entry_at(0) : file.entry_at(1)]):
        yield Finding(file.entry_at(0), "entry 0", "", "it is never used, but is not zero")
    yield from _header_against_entries(file)
    end = file.entry_count + 1
    if end < capacity and any(file.data[file.entry_at(end) : file.entry_at(end + 1)]):
        yield file.finding(end, "", f"it is not zero, but the header counts {file.entry_count} entries")


def _items(file: _File, window: Window) -> Steps:
    for index in window.clip(file.entry_count):
        number = index + 1
        position = file.entry_at(number)
        entry = index_file.decode_entry(file.data, position)
        time_ms = file.header.begin_time_ms + 1000 * entry.time_difference_s
        fields = {**entry._asdict(), "slot": entry.key_hash % file.slot_count, "time_ms": time_ms}
        yield Item("entry", number, position, fields)


def _header_against_entries(file: _File) -> Steps:
    """Compare the header's begin with the first entry's, and its end with the last entry's."""
    if file.entry_count == 0:
        return
    header = file.header
    first = index_file.decode_entry(file.data, file.entry_at(1))
    last = index_file.decode_entry(file.data, file.entry_at(file.entry_count))
    if first.physical_offset != header.begin_physical_offset:
        message = f"{header.begin_physical_offset}, but the first entry has {first.physical_offset}"
        yield Finding(index_file.BEGIN_PHYSICAL_OFFSET_AT, "header or entry 1", "begin physical offset", message)
    if last.physical_offset != header.end_physical_offset:
        message = f"{header.end_physical_offset}, but the last entry has {last.physical_offset}"
        item = f"header or entry {file.entry_count}"
        yield Finding(index_file.END_PHYSICAL_OFFSET_AT, item, "end physical offset", message)
    expected = index_file.time_difference_s(header.end_time_ms, header.begin_time_ms)
    # RocketMQ counts the first entry of a successor file from the end of the file before it.
    if last.time_difference_s != expected and file.entry_count > 1:
        message = f"the last entry is {last.time_difference_s} s after the begin, the end time {expected} s"
        yield Finding(index_file.END_TIME_AT, f"header or entry {file.entry_count}", "begin or end time", message)


def _chains(file: _File, inspection: Inspection) -> Steps:
    """Follow every link once: from a slot to its newest entry, from an entry to the entry before it in the bucket."""
    used_count = 0
    for start in range(0, file.slot_count, _CHUNK_COUNT):
        end = min(file.slot_count, start + _CHUNK_COUNT)
        inspection.progress(file.slot_at(start))
        slots = np.frombuffer(file.data[file.slot_at(start) : file.slot_at(end)], ">i4").astype(np.int64)
        used_count += int(np.count_nonzero(slots))
        numbers, why = np.arange(start, end), f"is no entry of 1 to {file.entry_count}"
        yield from _links(file, _SLOT, numbers, numbers, slots, slots <= file.entry_count, why)
    for start in range(1, file.entry_count + 1, _CHUNK_COUNT):
        inspection.progress(file.entry_at(start))
        numbers = np.arange(start, min(file.entry_count + 1, start + _CHUNK_COUNT))
        previous = file.entries(start, start + len(numbers))["previous"].astype(np.int64)
        why = "is not an earlier entry"
        yield from _links(file, _ENTRY, numbers, file.buckets(numbers), previous, previous < numbers, why)
    yield from _wrong_links(file)
    inspection.summary["used_slot_count"] = used_count
    if file.header.used_slot_count not in (used_count, file.entry_count):
        message = f"{file.header.used_slot_count}, but {used_count} slots are used"
        yield Finding(index_file.SLOT_COUNT_AT, "header or slots", "used slot count", message)


def _links(
    file: _File, source: str, numbers: Numbers, buckets: Numbers, targets: Numbers, is_link: Flags, why: str
) -> Steps:
    """Follow the links of slots or entries with these numbers in these buckets. Targets of 0 are the ends of chains."""
    is_link = is_link & (targets >= 0)
    for index in _first(~is_link):
        file.reported_buckets.add(int(buckets[index]))
        yield file.link_finding(source, int(numbers[index]), f"{targets[index]} {why}")
    links = np.flatnonzero(is_link & (targets > 0))
    np.add.at(file.reference_counts, targets[links], 1)
    for index in links[_first(file.buckets(targets[links]) != buckets[links])].tolist():
        file.wrong_links.append(_Link(source, int(numbers[index]), int(buckets[index]), int(targets[index])))


def _wrong_links(file: _File) -> Steps:
    """Distinguish a wrong link from a wrong key hash.

    A wrong link leads to an entry to which another link leads, or leaves an entry of its own bucket without a link.
    """
    lost = np.flatnonzero(file.reference_counts[1:] == 0)[:_FINDING_COUNT_MAX] + 1
    lost_of_bucket = dict(zip(file.buckets(lost).tolist(), lost.tolist(), strict=True))
    wrongly_reached = {link.target for link in file.wrong_links}
    for source, number, bucket, target in file.wrong_links:
        if bucket in lost_of_bucket or file.reference_counts[target] > 1:
            file.reported_buckets.add(bucket)
            yield file.link_finding(source, number, f"it leads to entry {target} of another slot")
        elif source == _SLOT or number not in wrongly_reached:
            yield file.finding(target, "key hash", f"it does not belong where {source} {number} leads to it")
    for bucket, number in lost_of_bucket.items():
        if bucket not in (-1, *file.reported_buckets):
            yield _skipping_link(file, bucket, number)


def _skipping_link(file: _File, slot: int, lost: int) -> Finding:
    """Return the link of a slot's chain that skips this entry. Links only lead to earlier entries."""
    message = f"it jumps over entry {lost} of the same slot"
    number = int(index_file.SLOT.unpack_from(file.data, file.slot_at(slot))[0])
    if not lost <= number <= file.entry_count:
        return file.link_finding(_SLOT, slot, message)
    for _ in range(_CHAIN_LENGTH_MAX):
        previous = index_file.decode_entry(file.data, file.entry_at(number)).previous_entry
        if previous < lost:
            return file.finding(number, "previous entry", message)
        if previous >= number:
            break
        number = previous
    return file.finding(lost, "", f"the chain of its slot {slot} does not lead to it")


def _entries(file: _File) -> Steps:
    """Check values and order: entries are put in the order of the log."""
    header = file.header
    before = header.begin_physical_offset
    for start in range(1, file.entry_count + 1, _CHUNK_COUNT):
        end = min(file.entry_count + 1, start + _CHUNK_COUNT)
        entries = file.entries(start, end)
        for index in _first(entries["key_hash"] < 0):
            yield file.finding(start + index, "key hash", f"it is {entries['key_hash'][index]}")
        physical_offsets = entries["physical_offset"].astype(np.int64)
        earlier = np.concatenate(([before], physical_offsets[:-1]))
        later = np.concatenate(
            (physical_offsets[1:], [header.end_physical_offset if end > file.entry_count else 2**63 - 1])
        )
        is_between = (physical_offsets >= earlier) & (physical_offsets <= later)
        # A wrong offset makes its neighbour look wrong too; the culprit is the offset that is outside of both
        # neighbours.
        is_culprit = ~is_between & (earlier <= later)
        for index in _first(is_culprit):
            message = f"{physical_offsets[index]} is not between {earlier[index]} and {later[index]} of its neighbours"
            yield file.finding(start + index, "physical offset", message)
        before = int(physical_offsets[-1])
        differences = entries["time_difference_s"].astype(np.int64)
        is_late = header.begin_time_ms + differences * 1000 > max(header.end_time_ms, header.begin_time_ms)
        if start == 1:
            is_late[0] = False  # RocketMQ counts the first entry of a successor file from the file before it
        for index in _first((differences < 0) | is_late):
            yield file.finding(start + index, "time difference", f"{differences[index]} s is outside the file's time")


def _first(flags: Flags) -> list[int]:
    return [int(index) for index in np.flatnonzero(flags)[:_FINDING_COUNT_MAX]]
