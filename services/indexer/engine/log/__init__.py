# SPDX-License-Identifier: Apache-2.0
"""The log as the Indexer sees it: where batches and records come from, and where messages go."""
