# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Filters of index files: fills them from the entries of an index file, and looks into them.

A filter never denies a key hash that was filled in. Its blocks are big-endian, 64 bytes each: a check, then seven words
of 64 bits, in each of which a hash sets a bit. A block whose check is wrong denies nothing.
Files are checked while they are read: a filter of a damaged index file would hide the damage.
Layout: docs/formats/index_filter.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import get_int32, get_int64, put_int64, source_of, target_of
from cython.cimports.libs.kernel.layout import *

# The constants of SplitMix64, whose last step mixes a hash: its bits decide about block and words.
MIX_STEP = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
MIX_FIRST = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
MIX_SECOND = cython.declare(cython.ulonglong, 0x94D049BB133111EB)
ONE = cython.declare(cython.ulonglong, 1)


class Fill:
    """A call of fill_filter, as C fields in the compiled build."""


def fill_filter(file, slot_count, first_entry, end_entry, newest, blocks):
    """Enter the key hashes of the entries [first_entry, end_entry) of an index file into the blocks of its filter.

    `newest` (int32) has the newest entry of each slot before first_entry, 0 without an entry, and is carried on.
    Returns end_entry, or the first entry that does not follow from the entries before it: then the file is damaged.
    Raises ValueError, and has changed nothing, for entries outside of the file and arrays of a wrong size.
    """
    job = Fill()
    job.view = file
    job.newest = newest
    job.blocks_view = blocks
    if slot_count < 1 or len(job.newest) != slot_count:
        raise ValueError(f"{len(job.newest)} newest entries for {slot_count} slots")
    if not 1 <= first_entry <= end_entry:
        raise ValueError(f"no entries [{first_entry}, {end_entry})")
    if len(job.view) < INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot_count + INDEX_ENTRY_SIZE * end_entry:
        raise ValueError(f"a file of {len(job.view)} bytes has no entries up to {end_entry}")
    job.block_count = checked_block_count(len(job.blocks_view))
    job.file = source_of(job.view)
    job.blocks = target_of(job.blocks_view)
    job.slot_count = slot_count
    job.entry = first_entry
    job.end_entry = end_entry
    with cython.nogil:
        fill_entries(job)
    return job.entry


def seal_filter(blocks, seed):
    """Write the check of each block. `seed` is the checksum of the filter's header."""
    view: cython.uchar[::1] = blocks
    source_view: cython.const[cython.uchar][::1] = blocks
    count: cython.longlong = checked_block_count(len(view))
    start: cython.ulonglong = mixed(seed)
    number: cython.longlong
    target = target_of(view)
    source = source_of(source_view)
    with cython.nogil:
        for number in range(count):
            put_int64(target, FILTER_BLOCK_SIZE * number, block_check(source, number, start))


def first_damaged(blocks, seed):
    """Return the number of the first block whose check is wrong, -1 if there is none."""
    view: cython.const[cython.uchar][::1] = blocks
    count: cython.longlong = checked_block_count(len(view))
    start: cython.ulonglong = mixed(seed)
    number: cython.longlong
    source = source_of(view)
    for number in range(count):
        if get_word(source, FILTER_BLOCK_SIZE * number) != block_check(source, number, start):
            return number
    return -1


def count_held(blocks, seed, hashes):
    """Return how many of these key hashes (int32) the filter does not deny."""
    view: cython.const[cython.uchar][::1] = blocks
    hash_view: cython.const[cython.int][::1] = memoryview(hashes)
    block_count: cython.longlong = checked_block_count(len(view))
    start: cython.ulonglong = mixed(seed)
    index: cython.Py_ssize_t
    held: cython.Py_ssize_t = 0
    source = source_of(view)
    for index in range(len(hash_view)):
        if look(source, block_count, start, mixed(hash_view[index])) != FILTER_DENIES:
            held += 1
    return held


def checked_block_count(size):
    """Return the number of blocks in so many bytes. Raises ValueError unless they are whole blocks, at least 1."""
    if size < FILTER_BLOCK_SIZE or size % FILTER_BLOCK_SIZE != 0:
        raise ValueError(f"{size} bytes are no blocks of {FILTER_BLOCK_SIZE} bytes")
    return size // FILTER_BLOCK_SIZE


def fill_entries(job):
    """Enter hashes up to job.end_entry, or up to an entry that is damaged. Sets job.entry."""
    entries_at: cython.longlong = INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * job.slot_count
    begin: cython.longlong = get_int64(job.file, 16)
    end: cython.longlong = get_int64(job.file, 24)
    at: cython.Py_ssize_t = entries_at + INDEX_ENTRY_SIZE * job.entry
    key_hash: cython.longlong
    physical_offset: cython.longlong
    slot: cython.Py_ssize_t
    if job.entry > 1:
        begin = get_int64(job.file, at - INDEX_ENTRY_SIZE + 4)
    while job.entry < job.end_entry:
        key_hash = get_int32(job.file, at)
        physical_offset = get_int64(job.file, at + 4)
        if key_hash < 0 or physical_offset < begin or physical_offset > end or get_int32(job.file, at + 12) < 0:
            return
        slot = key_hash % job.slot_count
        if get_int32(job.file, at + 16) != job.newest[slot]:
            return
        job.newest[slot] = job.entry
        enter(job.blocks, job.block_count, mixed(key_hash))
        begin = physical_offset
        at += INDEX_ENTRY_SIZE
        job.entry += 1


def enter(blocks, block_count, bits):
    """Set the bits of a mixed hash."""
    at: cython.Py_ssize_t = FILTER_BLOCK_SIZE * (((bits >> 32) * block_count) >> 32)
    word: cython.int
    for word in range(1, FILTER_WORD_COUNT):
        put_int64(blocks, at + 8 * word, get_word(blocks, at + 8 * word) | ONE << (bits & 63))
        bits >>= 6


def look(blocks, block_count, start, bits):
    """Return FILTER_DENIES if no entry has this mixed hash, FILTER_HOLDS if one may, or FILTER_DAMAGED.

    `start` is the mixed seed.
    """
    number: cython.ulonglong = ((bits >> 32) * block_count) >> 32
    at: cython.Py_ssize_t = FILTER_BLOCK_SIZE * number
    stored: cython.ulonglong = get_word(blocks, at)
    check: cython.ulonglong = start + number * MIX_STEP
    factor: cython.ulonglong = MIX_FIRST
    missing: cython.ulonglong = 0
    value: cython.ulonglong
    word: cython.int
    for word in range(1, FILTER_WORD_COUNT):  # block_check in the same loop, because this is the path of each look-up
        value = get_word(blocks, at + 8 * word)
        check += (value ^ (value >> 32)) * factor
        factor += 2 * MIX_STEP
        missing |= ~value >> (bits & 63)
        bits >>= 6
    if stored != (check | 1) & M64:
        return FILTER_DAMAGED
    return FILTER_DENIES if missing & 1 else FILTER_HOLDS


def block_check(blocks, number, start):
    """Return the check of a block: of its words and its number. It is odd, so zeros are never a block.

    `start` is the mixed seed. Each word has an odd factor, and its high half changes the low half, too: so another
    word always gives another sum, and highest bits of two words do not cancel each other out.
    """
    at: cython.Py_ssize_t = FILTER_BLOCK_SIZE * number
    check: cython.ulonglong = start + number * MIX_STEP
    factor: cython.ulonglong = MIX_FIRST
    value: cython.ulonglong
    word: cython.int
    for word in range(1, FILTER_WORD_COUNT):
        value = get_word(blocks, at + 8 * word)
        check += (value ^ (value >> 32)) * factor
        factor += 2 * MIX_STEP
    return (check | 1) & M64


def mixed(value):
    """Return the bits of a number, mixed."""
    bits: cython.ulonglong = (value + MIX_STEP) & M64
    bits = ((bits ^ (bits >> 30)) * MIX_FIRST) & M64
    bits = ((bits ^ (bits >> 27)) * MIX_SECOND) & M64
    return bits ^ (bits >> 31)


def get_word(source, at):
    """Return an unsigned word of 64 bits."""
    if cython.compiled:
        return get_int64(source, at)
    return get_int64(source, at) & M64
