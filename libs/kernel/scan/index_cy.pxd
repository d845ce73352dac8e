# SPDX-License-Identifier: Apache-2.0
# C signatures of index_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source, Target


cdef class Put:
    cdef unsigned char[::1] view
    cdef Target file
    cdef const long long[::1] physical_offsets
    cdef const long long[::1] store_times_ms
    cdef const int[::1] key_counts
    cdef const int[::1] key_hashes
    cdef Py_ssize_t row
    cdef Py_ssize_t row_end
    cdef Py_ssize_t key
    cdef long long slot_count
    cdef long long entry_capacity


cdef bint are_keys_good(Put job) noexcept nogil
cdef void put_rows(Put job) noexcept nogil
cdef void put_entry(Put job, long long entry, long long key_hash, long long physical_offset, long long store_time_ms) noexcept nogil
cdef long long read_entry_count(Source file) noexcept nogil
