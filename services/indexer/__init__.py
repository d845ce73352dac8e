# SPDX-License-Identifier: Apache-2.0
"""Indexer: owns ConsumeQueue and IndexFile, as indexes that are a pure function of the log."""
