# SPDX-License-Identifier: Apache-2.0
# C signatures of result_cy.py, for the compiled kernel modules.
from libs.kernel._bytes cimport Target


cdef Py_ssize_t put_column(Target target, Py_ssize_t at, int number, const unsigned char[::1] column) noexcept
