# SPDX-License-Identifier: Apache-2.0
"""Bytes <-> values: every layout that Reput reads or writes. It uses bytes only: no files, clocks or sockets."""
