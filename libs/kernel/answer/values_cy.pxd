# SPDX-License-Identifier: Apache-2.0
# C signatures of values_cy.py, which only that module needs.
from libs.kernel._bytes cimport Source
from libs.kernel.text_cy cimport Property


cdef object piece_value(Source source, Property piece)
