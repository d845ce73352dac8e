# SPDX-License-Identifier: Apache-2.0
"""Twins of the outside world for tests: a disk in memory that tears pages, and a failing disk. Not for production."""
