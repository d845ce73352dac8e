# SPDX-License-Identifier: Apache-2.0
# C signatures of match_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source
from libs.kernel.scan.record_cy cimport Record
from libs.kernel.text_cy cimport Property


cdef class Wanted:
    cdef Source topic
    cdef Py_ssize_t topic_size
    cdef Source keys
    cdef Py_ssize_t key_start
    cdef Py_ssize_t key_size
    cdef long long start_time_ms
    cdef long long end_time_ms
    cdef bint is_unique_id


cdef bint is_wanted(Source source, Record record, Property piece, Wanted wanted) noexcept nogil
cdef bint has_key(Source source, Py_ssize_t start, Py_ssize_t size, Wanted wanted) noexcept nogil
