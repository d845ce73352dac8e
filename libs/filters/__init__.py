# SPDX-License-Identifier: Apache-2.0
"""Filters of messages by their properties: RocketMQ's dialect of SQL92. Text in, a test of property values out.

grammar -> syntax (the tree) -> building (tests of it) -> property_filter (limits, cache, errors). Knows no records.
"""
