# SPDX-License-Identifier: Apache-2.0
# C signatures of arrow_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source
from libs.kernel.scan.record_cy cimport Record
from libs.kernel.text_cy cimport Property


cdef void layout_row(long long[::1] rows, Py_ssize_t row, Record record) noexcept nogil
cdef void layout_properties(Source source, long long[::1] rows, Py_ssize_t row, Record record, Property piece) noexcept nogil
