# SPDX-License-Identifier: Apache-2.0
# C signatures of place_cy.py, for append_cy.py.
from libs.kernel._bytes cimport Source, Target
from libs.kernel.append.message_cy cimport Field
from libs.kernel.text_cy cimport Property


cdef class Job:
    cdef const unsigned char[::1] request_view
    cdef const unsigned char[::1] born_host_view
    cdef const unsigned char[::1] store_host_view
    cdef const unsigned char[::1] stamp_view
    cdef const unsigned char[::1] names_view
    cdef unsigned char[::1] segment_view
    cdef Source request
    cdef Source default_born_host
    cdef Source store_host
    cdef Source stamp
    cdef Source names
    cdef Target segment
    cdef long long[::1] rows
    cdef int[::1] slots
    cdef long long[::1] counter_values
    cdef signed char[::1] own_queues
    cdef long long[::1] plan
    cdef long long[::1] physical_offsets
    cdef long long[::1] queue_offsets
    cdef int[::1] queue_ids
    cdef Py_ssize_t request_size
    cdef Py_ssize_t segment_size
    cdef Py_ssize_t position
    cdef long long base_physical_offset
    cdef long long store_time_ms
    cdef long long clock_ms
    cdef Py_ssize_t default_born_host_size
    cdef Py_ssize_t store_host_size
    cdef Py_ssize_t stamp_size
    cdef Py_ssize_t body_size_max
    cdef Py_ssize_t record_size_max
    cdef Py_ssize_t message_count_max
    cdef bint has_crc_property
    cdef long long[::1] redirect_rows
    cdef long long delay_level_max
    cdef int added_count
    cdef Py_ssize_t first
    cdef Py_ssize_t count
    cdef Py_ssize_t total_size
    cdef long long durability
    cdef int refused_durabilities
    cdef bint is_behind_refused
    cdef bint needs_previous
    cdef bint is_internal
    cdef Py_ssize_t error_index
    cdef long long error_field
    cdef long long error_value
    cdef Py_ssize_t topic_start
    cdef Py_ssize_t topic_size
    cdef Py_ssize_t writer_start
    cdef Py_ssize_t writer_size
    cdef Py_ssize_t unknown_index
    cdef Py_ssize_t begun_count
    cdef Py_ssize_t begun_count_max
    cdef Py_ssize_t new_queue_count
    cdef Py_ssize_t unknown_start
    cdef Py_ssize_t unknown_size
    cdef Py_ssize_t last_topic_start
    cdef Py_ssize_t last_topic_size
    cdef Py_ssize_t last_topic_row


cdef void place_message(Job job, Py_ssize_t index, Field field, Property piece) noexcept nogil
cdef void write_record(Job job, Py_ssize_t at, Py_ssize_t answer, Field field, Property piece) noexcept nogil
cdef Py_ssize_t write_host(Job job, Py_ssize_t position, Py_ssize_t at) noexcept nogil
cdef Py_ssize_t write_properties(Job job, Py_ssize_t position, Py_ssize_t at, Field field, Property piece) noexcept nogil
cdef Py_ssize_t write_property(Job job, Py_ssize_t position, Py_ssize_t at, Property piece) noexcept nogil
cdef Py_ssize_t write_added(Job job, Py_ssize_t position, Py_ssize_t at, int bucket) noexcept nogil
cdef Py_ssize_t write_real_queue_id(Job job, Py_ssize_t position, Py_ssize_t at) noexcept nogil
cdef Py_ssize_t write_number(Target target, Py_ssize_t position, long long number) noexcept nogil
cdef int bucket_of(Source source, Property piece) noexcept nogil
cdef void write_crc_property(Job job, Py_ssize_t start, Py_ssize_t position) noexcept nogil
cdef bint may_begin_queue(Job job, Py_ssize_t at) noexcept nogil
cdef long long own_queue(Job job, Py_ssize_t row, long long asked) noexcept nogil
