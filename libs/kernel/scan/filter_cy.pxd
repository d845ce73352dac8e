# SPDX-License-Identifier: Apache-2.0
# C signatures of filter_cy.py, for lookup_cy.
from libs.kernel._bytes cimport Source, Target


cdef class Fill:
    cdef const unsigned char[::1] view
    cdef int[::1] newest
    cdef unsigned char[::1] blocks_view
    cdef Source file
    cdef Target blocks
    cdef unsigned long long block_count
    cdef long long slot_count
    cdef int entry
    cdef int end_entry


cdef long long checked_block_count(Py_ssize_t size) except -1
cdef void fill_entries(Fill job) noexcept nogil
cdef void enter(Target blocks, unsigned long long block_count, unsigned long long bits) noexcept nogil
cdef int look(Source blocks, unsigned long long block_count, unsigned long long start, unsigned long long bits) noexcept nogil
cdef unsigned long long block_check(Source blocks, unsigned long long number, unsigned long long start) noexcept nogil
cdef unsigned long long mixed(unsigned long long value) noexcept nogil
cdef unsigned long long get_word(Source source, Py_ssize_t at) noexcept nogil
