# SPDX-License-Identifier: Apache-2.0
# C signatures of record_cy.py, for the compiled kernel modules.
from libs.kernel._bytes cimport Source


cdef class Record:
    cdef Py_ssize_t start
    cdef Py_ssize_t size
    cdef int sys_flag
    cdef int body_crc
    cdef int queue_id
    cdef int flag
    cdef long long queue_offset
    cdef long long physical_offset
    cdef long long born_time_ms
    cdef Py_ssize_t born_host_start
    cdef Py_ssize_t born_host_size
    cdef long long store_time_ms
    cdef Py_ssize_t store_host_start
    cdef Py_ssize_t store_host_size
    cdef int reconsume_times
    cdef long long prepared_transaction_offset
    cdef Py_ssize_t body_start
    cdef Py_ssize_t body_size
    cdef Py_ssize_t topic_start
    cdef Py_ssize_t topic_size
    cdef Py_ssize_t properties_start
    cdef Py_ssize_t properties_size


cdef int read_record(Source source, Py_ssize_t position, Py_ssize_t end, Record record) noexcept nogil
cdef int read_lengths(Source source, Record record, Py_ssize_t topic_size_size) noexcept nogil
cdef bint is_crc_good(Source source, Record record) noexcept nogil
cdef bint has_crc_property(Source source, Record record) noexcept nogil
