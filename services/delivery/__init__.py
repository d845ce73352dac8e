# SPDX-License-Identifier: Apache-2.0
"""Delivery: which message a consumer group gets next, who has it, and what became of it."""
