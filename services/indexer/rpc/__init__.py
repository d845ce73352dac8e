# SPDX-License-Identifier: Apache-2.0
"""Indexer's gRPC servicers and its client of the CommitLog."""
