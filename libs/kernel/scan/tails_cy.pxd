# SPDX-License-Identifier: Apache-2.0
# C signatures of tails_cy.py, which only that module needs.
from libs.kernel._bytes cimport Target


cdef class Tail:
    cdef readonly long long end
    cdef readonly long long last_physical_offset
    cdef readonly long long first
    cdef readonly long long room_end
    cdef long long next
    cdef long long next_physical_offset
    cdef unsigned char[::1] view
    cdef Target target
