# SPDX-License-Identifier: Apache-2.0
"""State that all Indexers of a replicated log share by its records: offsets of groups, progress of delay levels."""
