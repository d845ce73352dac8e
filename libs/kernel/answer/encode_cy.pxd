# SPDX-License-Identifier: Apache-2.0
# C signatures of encode_cy.py, for the compiled kernel modules.
from libs.kernel._bytes cimport Source, Target
from libs.kernel.scan.record_cy cimport Record
from libs.kernel.text_cy cimport Property


cdef unsigned long long to_unsigned(long long value) noexcept nogil
cdef Py_ssize_t varint_size(long long value) noexcept nogil
cdef Py_ssize_t put_varint(Target target, Py_ssize_t at, long long value) noexcept nogil
cdef Py_ssize_t number_size(int number, long long value) noexcept nogil
cdef Py_ssize_t put_number(Target target, Py_ssize_t at, int number, long long value) noexcept nogil
cdef Py_ssize_t bytes_size(int number, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t put_bytes(Target target, Py_ssize_t at, int number, Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t put_head(Target target, Py_ssize_t at, int number, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t host_size(Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t put_host(Target target, Py_ssize_t at, int number, Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef bint is_listed(Source source, Property piece) noexcept nogil
cdef Py_ssize_t entry_size(Property piece) noexcept nogil
cdef Py_ssize_t properties_size(Source source, Record record, Property piece) noexcept nogil
cdef Py_ssize_t put_properties(Target target, Py_ssize_t at, Source source, Record record, Property piece) noexcept nogil
cdef Py_ssize_t put_message_id(Target target, Py_ssize_t at, Source source, Record record) noexcept nogil
cdef int hex_digit(int value) noexcept nogil
cdef Py_ssize_t message_size(Source source, Record record, Property piece) noexcept nogil
cdef Py_ssize_t put_message(Target target, Py_ssize_t at, Source source, Record record, Property piece) noexcept nogil
cdef bint read_listed(Source source, Py_ssize_t end, const long long[::1] positions, const int[::1] sizes, Py_ssize_t index, Record record) noexcept nogil
