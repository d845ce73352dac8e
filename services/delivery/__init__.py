# SPDX-License-Identifier: Apache-2.0
"""Delivery: delivers messages to consumer groups, and keeps their deliveries, delays and transactions."""
