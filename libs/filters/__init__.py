# SPDX-License-Identifier: Apache-2.0
"""Filters of messages by their properties: RocketMQ's dialect of SQL92.

The input is a text, the output is a test of property values. The text passes through these modules:
grammar -> syntax (the tree) -> building (its tests) -> property_filter (limits, cache, errors).
Records are unknown here.
"""
