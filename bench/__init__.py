# SPDX-License-Identifier: Apache-2.0
"""Measurements of the whole system: `make bench`. Nothing here is asserted; numbers are for reading and comparing."""
