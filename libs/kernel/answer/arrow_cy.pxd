# SPDX-License-Identifier: Apache-2.0
# C signatures of arrow_cy.py; nobody else needs them.
from libs.kernel._bytes cimport Source, Target
from libs.kernel.scan.record_cy cimport Record
from libs.kernel.text_cy cimport Property


cdef Py_ssize_t layout_rows(Source source, Py_ssize_t end, const long long[::1] positions, const int[::1] sizes, long long[::1] rows, Record record, Property piece) noexcept nogil
cdef void layout_row(long long[::1] rows, Py_ssize_t row, Record record) noexcept nogil
cdef void layout_properties(Source source, long long[::1] rows, Py_ssize_t row, Record record, Property piece) noexcept nogil
cdef void copy_pieces(Source source, const long long[::1] rows, Py_ssize_t start_column, Py_ssize_t size_column, Target out) noexcept nogil
cdef void write_properties(Source source, const long long[::1] rows, int[::1] name_ends, int[::1] value_ends, Target names, Target values, Property piece) noexcept nogil
cdef void write_message_ids(Source source, const long long[::1] rows, Target out, Record record) noexcept nogil
