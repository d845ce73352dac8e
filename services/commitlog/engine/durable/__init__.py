# SPDX-License-Identifier: Apache-2.0
"""Durability: makes written bytes durable, and acknowledges batches with their durability."""
