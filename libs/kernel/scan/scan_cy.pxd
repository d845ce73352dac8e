# SPDX-License-Identifier: Apache-2.0
# C signatures of scan_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source
from libs.kernel.scan.record_cy cimport Record
from libs.kernel.text_cy cimport Property


cdef class Walk:
    cdef const unsigned char[::1] view
    cdef Source source
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef long long base_physical_offset
    cdef bint check_crc
    cdef long long[::1] physical_offsets
    cdef long long[::1] queue_offsets
    cdef long long[::1] tags_codes
    cdef long long[::1] store_times_ms
    cdef long long[::1] positions
    cdef int[::1] record_sizes
    cdef int[::1] queue_indexes
    cdef int[::1] sys_flags
    cdef int[::1] key_counts
    cdef int[::1] key_hashes
    cdef long long[::1] queue_rows
    cdef int[::1] slots
    cdef long long[::1] delays_ms
    cdef long long[::1] stamps
    cdef Py_ssize_t count
    cdef Py_ssize_t key_count
    cdef Py_ssize_t queue_count
    cdef Py_ssize_t last_queue
    cdef Py_ssize_t tags_start
    cdef Py_ssize_t tags_size
    cdef Py_ssize_t keys_start
    cdef Py_ssize_t keys_size
    cdef Py_ssize_t unique_start
    cdef Py_ssize_t unique_size
    cdef Py_ssize_t delay_start
    cdef Py_ssize_t delay_size
    cdef Py_ssize_t stamp_start
    cdef Py_ssize_t stamp_size
    cdef Py_ssize_t stamp_count


cdef int check(Source source, Py_ssize_t position, Py_ssize_t end, long long base_physical_offset, bint check_crc, Record record) noexcept nogil
cdef int walk(Walk job, Record record, Property piece) noexcept nogil
cdef void find_properties(Walk job, Record record, Property piece) noexcept nogil
cdef void add_stamp(Walk job, Py_ssize_t row) noexcept nogil
cdef bint add_keys(Walk job, Record record) noexcept nogil
cdef bint add_key(Walk job, Py_ssize_t start, Py_ssize_t size, unsigned int seed) noexcept nogil
cdef Py_ssize_t queue_index(Walk job, Record record) noexcept nogil
cdef void clear_slots(Walk job) noexcept nogil
cdef long long tags_code(Walk job, Record record) noexcept nogil
