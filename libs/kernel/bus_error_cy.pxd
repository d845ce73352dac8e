# SPDX-License-Identifier: Apache-2.0
# C signatures and memory of bus_error_cy.py, which only that module needs.
from posix.signal cimport siginfo_t

cdef char head[512]
cdef char tail[64]
cdef char window[8192]


cdef void on_bus_error(int number, siginfo_t *info, void *context) noexcept nogil
cdef void tell_place(unsigned long long address) noexcept nogil
cdef bint tell_if_there(Py_ssize_t at, Py_ssize_t end, unsigned long long address) noexcept nogil
cdef unsigned long long hexadecimal(Py_ssize_t at, char until) noexcept nogil
cdef Py_ssize_t behind(Py_ssize_t at, Py_ssize_t end, char mark) noexcept nogil
cdef void say_number(unsigned long long number) noexcept nogil
cdef void say(const char *text, Py_ssize_t size) noexcept nogil
