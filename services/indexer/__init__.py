# SPDX-License-Identifier: Apache-2.0
"""Indexer: owns ConsumeQueue and IndexFile; its indexes are a pure function of the log."""
