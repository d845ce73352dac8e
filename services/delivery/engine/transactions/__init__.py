# SPDX-License-Identifier: Apache-2.0
"""Transactions: half messages, how they end, and the producers that are asked."""
