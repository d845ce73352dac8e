# SPDX-License-Identifier: Apache-2.0
# C signatures of request_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source
from libs.kernel.append.message_cy cimport Field


cdef class Look:
    cdef const unsigned char[::1] view
    cdef Source source
    cdef const int[::1] types
    cdef const int[::1] kinds
    cdef long long room


cdef int check_tables(Look look) except -1
cdef int walk(Look look, Py_ssize_t start, Py_ssize_t end, Py_ssize_t message_type, int depth, Field field) noexcept nogil
cdef bint count_packed(Look look, int wire_type, Field field) noexcept nogil
