# SPDX-License-Identifier: Apache-2.0
"""Transactions: half messages, their ends, and the producers that are asked."""
