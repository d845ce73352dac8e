# SPDX-License-Identifier: Apache-2.0
# C signatures of text_cy.py, for the compiled kernel modules.
from libs.kernel._bytes cimport Source

ctypedef unsigned int (*CrcFunction)(unsigned int, Source, unsigned long long) noexcept nogil
cdef CrcFunction crc_function


cdef class Property:
    cdef Py_ssize_t name_start
    cdef Py_ssize_t name_size
    cdef Py_ssize_t value_start
    cdef Py_ssize_t value_size


cdef unsigned int crc32(Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef unsigned int java_hash(Source source, Py_ssize_t start, Py_ssize_t size, unsigned int seed) noexcept nogil
cdef bint is_utf8(Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t decimal_size(long long number) noexcept nogil
cdef long long java_int(Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef long long java_long(Source source, Py_ssize_t start, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t next_property(Source source, Py_ssize_t start, Py_ssize_t end, Property piece) noexcept nogil
