# SPDX-License-Identifier: Apache-2.0
# C signatures of reads_cy.py, which only that module needs.


cdef Py_ssize_t file_of(const long long[::1] bases, long long physical_offset) noexcept nogil
