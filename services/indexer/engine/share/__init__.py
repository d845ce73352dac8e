# SPDX-License-Identifier: Apache-2.0
"""What all Indexers of a replicated log know: offsets of groups and progress of delay levels, by records of the log."""
