# SPDX-License-Identifier: Apache-2.0
# C signatures of lookup_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source


cdef class SearchedFile:
    cdef const unsigned char[::1] view
    cdef Source file
    cdef long long slot_count
    cdef public long long next_entry
    cdef public long long counted_entry
    cdef public bint is_finished
    cdef public bint is_filter_damaged
    cdef const unsigned char[::1] filter_view
    cdef Source filter
    cdef unsigned long long filter_block_count
    cdef unsigned long long filter_start


cdef class Search:
    cdef long long[::1] out
    cdef long long[::1] tally
    cdef Py_ssize_t start
    cdef Py_ssize_t limit
    cdef Py_ssize_t count
    cdef long long looks_left
    cdef long long key_hash
    cdef long long start_time_ms
    cdef long long end_time_ms
    cdef long long below_physical_offset
    cdef long long end_physical_offset
    cdef Py_ssize_t position
    cdef long long entry
    cdef long long doubt_at


cdef void search_files(Search job, list files)
cdef bint is_denied(SearchedFile file, unsigned long long bits) noexcept
cdef int search_file(Search job, SearchedFile file) noexcept nogil
cdef bint is_header_good(Search job, SearchedFile file) noexcept nogil
cdef bint is_around_empty(Search job, SearchedFile file, long long slot) noexcept nogil
cdef int walk_chain(Search job, SearchedFile file, long long entry, Py_ssize_t at) noexcept nogil
cdef bint is_entry_good(SearchedFile file, Py_ssize_t at, long long key_hash) noexcept nogil
