# SPDX-License-Identifier: Apache-2.0
"""Indexer's plain objects: no transport; file system, clock and log source arrive as arguments."""
