# SPDX-License-Identifier: Apache-2.0
"""Segment and SegmentChain: preallocated, memory-mapped files with cursors."""
