# SPDX-License-Identifier: Apache-2.0
"""Audit: lines about administrative calls and refused calls, in a file that rotates, in the log, and in memory."""
