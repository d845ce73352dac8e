# SPDX-License-Identifier: Apache-2.0
"""The log as the Indexer sees it: the source of batches and records, and the sink of appended messages."""
