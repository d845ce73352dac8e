# SPDX-License-Identifier: Apache-2.0
"""The CommitLog behind its API: dispatch stream, records, appends, and its errors."""
