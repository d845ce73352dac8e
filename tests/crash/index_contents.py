# SPDX-License-Identifier: Apache-2.0
"""Whether two stores have the same indexes, as a crash test asks after the Indexer has caught up.

The comparison covers the consume queues, byte by byte, and the entries of all index files in turn. Index files may
begin at other records and have other names, because both depend on when a process ran; so a time is compared as the
moment that it stands for, known to the second. Inside of each file the chains must lead to all of its entries. Works on
any Fs and only reads. Layouts: docs/formats/consume_queue.md and docs/formats/index_file.md.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from libs.formats.indexes import index_file
from libs.formats.indexes.consume_queue import UNIT, UNIT_SIZE_BYTES
from libs.machine.fs import Fs

ENTRY = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_difference_s", ">i4"), ("previous", ">i4")])
assert ENTRY.itemsize == index_file.ENTRY_SIZE_BYTES
NO_ENTRY = 0

Queue = tuple[str, str]
"""Names of its directories: topic and queue id."""


def differences(fs: Fs, left: Path, right: Path, *, index_slot_count: int, min_physical_offset: int = 0) -> list[str]:
    """The differences between the indexes of two data directories, in words, none if they are equal.

    With a minimum only units and entries of records from there on count, because deleted records can't be indexed
    again. Without a minimum the files of the queues must be the same byte by byte.
    """
    found = [*_queue_differences(fs, left / "consumequeue", right / "consumequeue", min_physical_offset)]
    entries = [_entries(fs, directory / "index", index_slot_count) for directory in (left, right)]
    for directory, (_, broken) in zip((left, right), entries, strict=True):
        found += [f"{directory}: {text}" for text in broken]
    return [*found, *_entry_differences(entries[0][0], entries[1][0], min_physical_offset)]


def _queue_differences(fs: Fs, left: Path, right: Path, min_physical_offset: int) -> Iterator[str]:
    sides = [_queues(fs, left), _queues(fs, right)]
    for queue in sorted(sides[0].keys() | sides[1].keys()):
        name = "/".join(queue)
        files = [side.get(queue, {}) for side in sides]
        if min_physical_offset == 0 and files[0] != files[1]:
            names = [sorted(one) for one in files]
            if names[0] != names[1]:
                yield f"queue {name} has the files {names[0]} and {names[1]}"
            else:
                unlike = [file for file in names[0] if files[0][file] != files[1][file]]
                at = next(
                    i for i, (a, b) in enumerate(zip(files[0][unlike[0]], files[1][unlike[0]], strict=True)) if a != b
                )
                yield f"queue {name} differs in {unlike[0]} at byte {at}, unit {at // UNIT_SIZE_BYTES}"
        elif min_physical_offset:
            units = [_units(one, min_physical_offset) for one in files]
            if units[0] != units[1]:
                numbers = sorted(units[0].keys() ^ units[1].keys()) or [
                    number for number in units[0] if units[0][number] != units[1][number]
                ]
                yield f"queue {name} differs at queue offset {numbers[0]}, in {len(numbers)} units in all"


def _queues(fs: Fs, directory: Path) -> dict[Queue, dict[str, bytes]]:
    """Files of each queue that has any."""
    queues: dict[Queue, dict[str, bytes]] = {}
    for topic in fs.list(directory) if fs.exists(directory) else []:
        for queue_id in fs.list(directory / topic):
            path = directory / topic / queue_id
            files = {name: fs.read(path / name) for name in fs.list(path)}
            if files:
                queues[topic, queue_id] = files
    return queues


def _units(files: dict[str, bytes], min_physical_offset: int) -> dict[int, bytes]:
    """Units of records from an offset on, by queue offset."""
    found: dict[int, bytes] = {}
    for name, data in files.items():
        units = np.frombuffer(data, UNIT, len(data) // UNIT_SIZE_BYTES)
        kept = np.flatnonzero((units["physical_offset"] >= min_physical_offset) & (units["record_size_bytes"] > 0))
        first = int(name) // UNIT_SIZE_BYTES
        found.update((first + int(i), units[i].tobytes()) for i in kept)
    return found


def _entries(fs: Fs, directory: Path, slot_count: int) -> tuple[NDArray[np.int64], list[str]]:
    """Hash, physical offset, and time in ms with its error, of all entries in order; and the faults of chains."""
    parts: list[NDArray[np.int64]] = [np.empty((0, 3), np.int64)]
    broken: list[str] = []
    for name in fs.list(directory) if fs.exists(directory) else []:
        if not (len(name) == 17 and name.isdecimal()):
            continue
        data = fs.read(directory / name)
        header = index_file.decode_header(data)
        if not header.entry_count:
            continue
        at = index_file.entry_position(index_file.FIRST_ENTRY, slot_count)
        entries = np.frombuffer(data, ENTRY, header.entry_count, at)
        times = header.begin_time_ms + entries["time_difference_s"].astype(np.int64) * 1000
        parts.append(np.stack([entries["key_hash"], entries["physical_offset"], times], axis=1).astype(np.int64))
        broken += [f"index file {name}: {text}" for text in _broken_chains(data, entries, slot_count)]
    return np.concatenate(parts), broken


def _broken_chains(data: bytes, entries: NDArray[np.void], slot_count: int) -> Iterator[str]:
    """Each slot leads to the newest entry of its bucket, each entry to the previous entry."""
    slots = np.frombuffer(data, ">i4", slot_count, index_file.HEADER_SIZE_BYTES)
    newest: dict[int, int] = {}
    pairs = zip(entries["key_hash"].tolist(), entries["previous"].tolist(), strict=True)
    for number, (key_hash, previous) in enumerate(pairs, index_file.FIRST_ENTRY):
        slot = key_hash % slot_count
        if previous != newest.get(slot, NO_ENTRY):
            yield f"entry {number} leads to {previous}, not to {newest.get(slot, NO_ENTRY)}"
        newest[slot] = number
    for slot in np.flatnonzero(slots).tolist():
        if int(slots[slot]) != newest.pop(slot, NO_ENTRY):
            yield f"slot {slot} leads to entry {slots[slot]}"
    for slot, number in newest.items():
        yield f"slot {slot} does not lead to entry {number}"


def _entry_differences(left: NDArray[np.int64], right: NDArray[np.int64], min_physical_offset: int) -> Iterator[str]:
    left, right = (side[side[:, 1] >= min_physical_offset] for side in (left, right))
    count = min(len(left), len(right))
    unlike = (left[:count, :2] != right[:count, :2]).any(axis=1) | (abs(left[:count, 2] - right[:count, 2]) >= 1000)
    if unlike.any():
        at = int(unlike.argmax())
        yield f"index entry {at} is {left[at].tolist()} and {right[at].tolist()} (hash, physical offset, ms)"
    elif len(left) != len(right):
        yield f"there are {len(left)} and {len(right)} index entries"
