# SPDX-License-Identifier: Apache-2.0
"""CommitLog's plain objects: no transport; file system and clock arrive as arguments."""
