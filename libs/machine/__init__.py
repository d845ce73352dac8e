# SPDX-License-Identifier: Apache-2.0
"""The outside world as interfaces: file system, clock, loops, failpoints; with the real ones and their twins for tests."""
