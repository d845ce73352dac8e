# SPDX-License-Identifier: Apache-2.0
"""Bytes <-> values: every layout that Reput reads or writes. Knows bytes; knows no files, clocks or sockets."""
