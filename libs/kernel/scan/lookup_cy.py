# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Searches index files for keys: one walk over the headers and the chains of all files, from the newest to the oldest.

Files are big-endian. Every number that comes from a file is checked before it is used as a place, so that damage is
found and nothing outside of a file is read. A call looks at LOOK_COUNT_MAX entries and files at most, of any hash.
A file whose filter denies the key is skipped, and nothing of it is read.
Not handled: the records themselves; keys are compared by hash only, and times to the second.
Layout: docs/formats/index_file.md.
"""

from array import array

import cython
from cython.cimports.libs.kernel._bytes import get_int32, get_int64, source_of
from cython.cimports.libs.kernel.layout import *
from cython.cimports.libs.kernel.scan.filter_cy import checked_block_count, look, mixed
from cython.cimports.libs.kernel.text_cy import java_hash

FILE_DONE = cython.declare(cython.int, 0)
STOPPED = cython.declare(cython.int, 1)
DOUBTFUL = cython.declare(cython.int, 2)


class SearchedFile:
    """An index file in the form that a search needs.

    `next_entry` is the next entry of the header at the last look, -1 before the first; a finished file has entries.
    `counted_entry` was its next entry when all slots were counted and none was lost, 0 before: where keys are unevenly
    spread, empty places are common, and are looked at again only after the file has twice as many entries.
    `is_filter_damaged` is set when a search finds that the filter is damaged: it is not used from then on.
    Raises ValueError for a file that is too small for its slots.
    """

    def __init__(self, buffer, slot_count):
        self.view = buffer
        if slot_count < 1 or len(self.view) < INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot_count:
            raise ValueError(f"a file of {len(self.view)} bytes is too small for {slot_count} slots")
        self.file = source_of(self.view)
        self.slot_count = slot_count
        self.next_entry = -1
        self.counted_entry = 0
        self.is_finished = False
        self.is_filter_damaged = False
        self.filter_block_count = 0

    def set_filter(self, blocks, seed):
        """Skip the file in searches for keys that this filter of it denies. Raises ValueError for no whole blocks."""
        self.filter_view = blocks
        self.filter_block_count = checked_block_count(len(self.filter_view))
        self.filter = source_of(self.filter_view)
        self.filter_start = mixed(seed)
        self.is_filter_damaged = False


class Search:
    """A search of a key, as C fields in the compiled build."""


def key_hashes(topic, keys):
    """Return the hashes (int32) with which index entries name these keys of a topic. All are UTF-8 bytes."""
    text: cython.const[cython.uchar][::1] = topic + b"#"
    made = array("i", bytes(4 * len(keys)))
    hashes: cython.int[::1] = made
    entries: list = keys
    key: cython.const[cython.uchar][::1]
    index: cython.Py_ssize_t
    value: cython.longlong
    seed: cython.uint = java_hash(source_of(text), 0, len(text), 0)
    for index in range(len(entries)):
        value = seed
        if len(entries[index]) > 0:
            key = entries[index]
            value = java_hash(source_of(key), 0, len(key), seed)
        value = INT32_SPAN - value if value > INT32_MAX else value
        hashes[index] = value & INT32_MAX
    return made


def search(
    files,
    position,
    entry,
    key_hash,
    start_time_ms,
    end_time_ms,
    below_physical_offset,
    end_physical_offset,
    out,
    tally,
):
    """Find records that may have a key, newest first, below an offset, into the first values of `out` (int64).

    `files` ascend; the search begins at file number `position`, before the entry `entry`, or at the newest entry of the
    key's chain for 0, and ends when `out` is full, after LOOK_COUNT_MAX looks, or at the oldest file.
    A record is found if its time, known only to the second, may lie in [start_time_ms, end_time_ms): none of the range
    is missed. A record that has two entries in sequence is found once.
    Returns (count, position, entry, doubt_at). The search continues at this position and entry; a position of -1 is the
    end. If doubt_at is not -1, the file at this position needs a closer look, and the search continues behind it:
    with an entry of -1 it is damaged at this byte, otherwise the key's empty slot at this byte, and all slots around
    it, may have been lost. All records were below end_physical_offset when they were entered.
    Raises ValueError for a hash that is negative and a position without a file.
    """
    job = Search()
    entries: list = files
    if not 0 <= key_hash <= INT32_MAX:
        raise ValueError(f"key hash {key_hash}")
    if not -1 <= position < len(entries):
        raise ValueError(f"file number {position} of {len(entries)}")
    job.out = out
    job.limit = len(job.out)
    job.start = 0
    job.looks_left = LOOK_COUNT_MAX
    job.tally = tally
    job.key_hash = key_hash
    job.start_time_ms = min(max(start_time_ms, 0), TIME_MAX)
    job.end_time_ms = min(max(end_time_ms, 0), TIME_MAX)
    job.below_physical_offset = below_physical_offset
    job.end_physical_offset = end_physical_offset
    job.position = position
    job.entry = min(max(entry, 0), INT32_MAX)
    search_files(job, entries)
    return job.count, job.position, job.entry, job.doubt_at


def search_many(files, hashes, first_key, start_time_ms, end_time_ms, end_physical_offset, room, out, counts, tally):
    """Search all files for each key from number first_key on, as `search` does. Returns the number of the next key.

    The records of key number n are out[n * room : n * room + counts[n]] (int64 and int32). A count of -1 says that the
    key must be searched alone: it has more than `room` records or a long chain, or a file needs a closer look.
    A call looks at LOOK_COUNT_MAX entries and files at most, except that the first of its keys is always done.
    Raises ValueError for hashes that are negative and arrays that are too short.
    """
    job = Search()
    entries: list = files
    hash_view: cython.const[cython.int][::1] = memoryview(hashes)
    count_view: cython.int[::1] = counts
    key: cython.Py_ssize_t = first_key
    job.out = out
    if room < 1 or first_key < 0 or len(count_view) < len(hash_view) or len(job.out) < room * len(hash_view):
        raise ValueError(f"no room for {len(hash_view)} keys from {first_key} on with {room} records each")
    job.tally = tally
    job.limit = room
    job.looks_left = LOOK_COUNT_MAX
    job.start_time_ms = min(max(start_time_ms, 0), TIME_MAX)
    job.end_time_ms = min(max(end_time_ms, 0), TIME_MAX)
    job.below_physical_offset = TIME_MAX
    job.end_physical_offset = end_physical_offset
    while key < len(hash_view):
        if hash_view[key] < 0:
            raise ValueError(f"key hash {hash_view[key]}")
        job.key_hash = hash_view[key]
        job.start = key * room
        job.position = len(entries) - 1
        job.entry = 0
        search_files(job, entries)
        if job.looks_left <= 0 and key > first_key:
            break
        count_view[key] = job.count if job.position == -1 else -1
        key += 1
        if job.looks_left <= 0:
            break
    return key


def search_files(job, files):
    """Search from job.position and job.entry on. Sets count and doubt_at, and where the search stopped."""
    file: SearchedFile
    result: cython.int
    bits: cython.ulonglong = mixed(job.key_hash)
    job.count = 0
    job.doubt_at = -1
    while job.position >= 0:
        if job.looks_left <= 0 or job.count == job.limit:
            return
        file = files[job.position]
        if file.filter_block_count > 0 and job.entry == 0 and is_denied(file, bits):
            job.looks_left -= 1
            job.tally[1] += 1
            job.position -= 1
            continue
        job.tally[0] += 1
        with cython.nogil:
            result = search_file(job, file)
        if result != FILE_DONE:
            return
        job.position -= 1
        job.entry = 0


def is_denied(file, bits):
    """Return whether the filter of a file denies a mixed hash. A damaged filter denies nothing from now on."""
    said: cython.int = look(file.filter, file.filter_block_count, file.filter_start, bits)
    if said == FILTER_DAMAGED:
        file.is_filter_damaged = True
        file.filter_block_count = 0
    return said == FILTER_DENIES


def search_file(job, file):
    """Search a file. Returns FILE_DONE, STOPPED with the entry to continue at, or DOUBTFUL with the place."""
    slot: cython.longlong = job.key_hash % file.slot_count
    slot_at: cython.Py_ssize_t = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot
    newest: cython.longlong
    job.looks_left -= 1
    if not is_header_good(job, file):
        job.entry = -1
        return DOUBTFUL
    if get_int64(file.file, 16) >= job.below_physical_offset or get_int64(file.file, 0) >= job.end_time_ms:
        return FILE_DONE
    if get_int64(file.file, 8) < job.start_time_ms:
        return FILE_DONE
    if job.entry != 0:
        return walk_chain(job, file, job.entry, 0)
    newest = get_int32(file.file, slot_at)
    if newest != 0:
        return walk_chain(job, file, newest, slot_at)
    if is_around_empty(job, file, slot):
        job.doubt_at = slot_at
        return DOUBTFUL
    return FILE_DONE


def is_header_good(job, file):
    """Return whether the header can belong to a file of the log up to end_physical_offset. Otherwise sets doubt_at.

    The rules of services/indexer/engine/tables/index_file.py, which says what is wrong.
    """
    next_entry: cython.longlong = get_int32(file.file, 36)
    begin: cython.longlong = get_int64(file.file, 16)
    end: cython.longlong = get_int64(file.file, 24)
    job.doubt_at = 0
    if next_entry < 0 or get_int32(file.file, 32) < 0:
        return False
    if file.next_entry != -1 and file.next_entry != next_entry:
        return False
    if not 0 <= get_int64(file.file, 0) <= INDEX_TIME_MS_MAX or not 0 <= get_int64(file.file, 8) <= INDEX_TIME_MS_MAX:
        return False
    if not 0 <= begin <= end:
        return False
    if next_entry > 1:
        if end >= job.end_physical_offset:
            return False
    elif file.is_finished:
        return False
    file.next_entry = next_entry
    job.doubt_at = -1
    return True


def is_around_empty(job, file, slot):
    """Return whether so many slots around an empty slot are empty that this is no chance.

    So many slots are read that a used slot is nearly certain among them. Small files are read in full.
    """
    used: cython.longlong = max(1, get_int32(file.file, 32))
    width: cython.longlong = INDEX_AROUND_FACTOR * file.slot_count // used
    count: cython.longlong = 0
    at: cython.longlong
    start: cython.longlong
    if file.slot_count <= INDEX_COUNTED_SLOT_COUNT:
        for at in range(file.slot_count):
            if get_int32(file.file, INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * at) != 0:
                count += 1
        return count < get_int32(file.file, 32)
    if width > file.slot_count or get_int32(file.file, 36) <= 2 * file.counted_entry:
        return False
    start = max(0, min(slot - width // 2, file.slot_count - width))
    for at in range(start, start + width):
        if get_int32(file.file, INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * at) != 0:
            job.looks_left -= (at - start) // 64
            return False
    return True


def walk_chain(job, file, entry, at):
    """Walk a chain from an entry on whose number is at this byte, or, at 0, behind it. Returns as search_file."""
    entries_at: cython.Py_ssize_t = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * file.slot_count
    bound: cython.longlong = max(1, get_int32(file.file, 36))
    file_begin_ms: cython.longlong = get_int64(file.file, 0)
    earliest_ms: cython.longlong = max(0, job.start_time_ms - 999)
    physical_offset: cython.longlong
    time_ms: cython.longlong
    if bound > (len(file.view) - entries_at) // INDEX_ENTRY_SIZE:
        job.doubt_at = 36
        job.entry = -1
        return DOUBTFUL
    if at == 0:
        if entry >= bound:
            return FILE_DONE
        at = entries_at + INDEX_ENTRY_SIZE * entry
        bound = entry
        entry = get_int32(file.file, at + 16)
    while entry != 0:
        if entry < 0 or entry >= bound:
            break
        if job.count == job.limit or job.looks_left <= 0:
            return STOPPED
        job.looks_left -= 1
        at = entries_at + INDEX_ENTRY_SIZE * entry
        if not is_entry_good(file, at, job.key_hash):
            break
        # RocketMQ computes the first entry's difference against the previous file; its true time is the file's begin.
        time_ms = file_begin_ms
        if entry != 1:
            time_ms += cython.cast(cython.longlong, get_int32(file.file, at + 12)) * 1000
        if time_ms < earliest_ms:
            return FILE_DONE
        if get_int32(file.file, at) == job.key_hash and time_ms < job.end_time_ms:
            physical_offset = get_int64(file.file, at + 4)
            if physical_offset < job.below_physical_offset and (
                job.count == 0 or job.out[job.start + job.count - 1] != physical_offset
            ):
                job.out[job.start + job.count] = physical_offset
                job.count += 1
        bound = entry
        job.entry = entry
        entry = get_int32(file.file, at + 16)
    if entry == 0:
        return FILE_DONE
    job.doubt_at = at
    job.entry = -1
    return DOUBTFUL


def is_entry_good(file, at, key_hash):
    """Return whether the entry at a place can be in the chain of the key: of the same slot, of a record of the file."""
    found: cython.longlong = get_int32(file.file, at)
    physical_offset: cython.longlong = get_int64(file.file, at + 4)
    if found < 0 or found % file.slot_count != key_hash % file.slot_count:
        return False
    if found == 0 and physical_offset == 0 and key_hash != 0:
        return False  # an entry of zeros: only a key of 2^31 has this hash
    if physical_offset < get_int64(file.file, 16) or physical_offset > get_int64(file.file, 24):
        return False
    return get_int32(file.file, at + 12) >= 0
