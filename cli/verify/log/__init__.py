# SPDX-License-Identifier: Apache-2.0
"""Verify the segments of the log, and walk over its records."""
