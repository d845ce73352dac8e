# SPDX-License-Identifier: Apache-2.0
"""Answers from the indexes: pull, query, scan."""
