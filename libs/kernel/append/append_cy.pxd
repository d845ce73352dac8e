# SPDX-License-Identifier: Apache-2.0
# C signatures of append_cy.py, which only that module needs.
from libs.kernel.append.message_cy cimport Field, Message
from libs.kernel.append.place_cy cimport Job
from libs.kernel.text_cy cimport Property

cdef Job new_job(segment, Py_ssize_t position, long long base_physical_offset, long long store_time_ms, store_host, table, limits, columns, stamp)
cdef int begin_request(Job job, request, default_born_host) except -1
cdef void place_request(Job job, Field field, Property piece) noexcept nogil
cdef int plan_request(Job job, Message message, Field field, Property piece) noexcept nogil
cdef int plan_message(Job job, Message message, Field field, Property piece) noexcept nogil
cdef int check_fields(Job job, Message message) noexcept nogil
cdef int plan_queue(Job job, Message message, Py_ssize_t at, Py_ssize_t row) noexcept nogil
cdef int plan_redirect(Job job, Message message, Py_ssize_t at, Py_ssize_t row) noexcept nogil
cdef int choose_redirect(Job job, Message message, Py_ssize_t at) noexcept nogil
cdef int plan_level(Job job, Message message, Py_ssize_t at) noexcept nogil
cdef int plan_time(Job job, Message message, Py_ssize_t at) noexcept nogil
cdef int refuse(Job job, Py_ssize_t index, int code, int field, long long value) noexcept nogil
cdef int refuse_message(Job job, Message message, int code, int field, long long value) noexcept nogil
cdef int refuse_properties(Job job, Message message, int code, long long value) noexcept nogil
cdef Py_ssize_t find_topic(Job job, Py_ssize_t start, Py_ssize_t size) noexcept nogil
