# SPDX-License-Identifier: Apache-2.0
# C signatures of message_cy.py, for the compiled kernel modules.
from libs.kernel._bytes cimport Source
from libs.kernel.text_cy cimport Property


cdef class Field:
    cdef long long number
    cdef int wire_type
    cdef unsigned long long value
    cdef Py_ssize_t start
    cdef Py_ssize_t size


cdef class Message:
    cdef Py_ssize_t start
    cdef Py_ssize_t end
    cdef Py_ssize_t topic_start
    cdef Py_ssize_t topic_size
    cdef bint has_queue_id
    cdef long long queue_id
    cdef Py_ssize_t body_start
    cdef Py_ssize_t body_size
    cdef Py_ssize_t entry_count
    cdef Py_ssize_t string_start
    cdef Py_ssize_t string_size
    cdef long long flag
    cdef long long sys_flag
    cdef long long born_time_ms
    cdef bint has_host
    cdef Py_ssize_t address_start
    cdef Py_ssize_t address_size
    cdef long long port
    cdef long long reconsume_times
    cdef long long prepared_transaction_offset
    cdef Py_ssize_t properties_size
    cdef bint has_store_property
    cdef Py_ssize_t sharding_key_start
    cdef Py_ssize_t sharding_key_size
    cdef long long delay_level
    cdef Py_ssize_t delay_count
    cdef Py_ssize_t delay_value_size
    cdef Py_ssize_t real_size
    cdef int timer
    cdef long long timer_number
    cdef Py_ssize_t timer_size
    cdef bint is_timed_out
    cdef bint is_timer_delete
    cdef bint is_half


cdef Py_ssize_t next_field(Source source, Py_ssize_t at, Py_ssize_t end, Field field) noexcept nogil
cdef Py_ssize_t read_varint(Source source, Py_ssize_t at, Py_ssize_t end, Field field) noexcept nogil
cdef bint read_message(Source source, Py_ssize_t start, Py_ssize_t end, Message message, Field field, Property piece) noexcept nogil
cdef bint read_host(Source source, Py_ssize_t start, Py_ssize_t end, Message message, Field field) noexcept nogil
cdef bint read_entry(Source source, Py_ssize_t start, Py_ssize_t end, Field field, Property piece) noexcept nogil
cdef bint is_topic_name(Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef int check_properties(Source source, Message message, Field field, Property piece) noexcept nogil
cdef bint is_entry_text(Source source, Property piece) noexcept nogil
cdef bint looks_like_crc_property(Source source, Property piece) noexcept nogil
cdef bint is_real_place(Source source, Property piece) noexcept nogil
cdef int timer_of(Source source, Property piece) noexcept nogil
cdef bint is_true(Source source, Property piece) noexcept nogil
cdef bint is_store_property(Source source, Property piece) noexcept nogil
cdef int check_property(Source source, Message message, Property piece) noexcept nogil
cdef void reset(Message message, Py_ssize_t start, Py_ssize_t end) noexcept nogil
cdef long long to_signed(unsigned long long value) noexcept nogil
