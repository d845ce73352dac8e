# SPDX-License-Identifier: Apache-2.0
"""Delivery's engine: plain objects; the log, the index and the clock arrive as arguments."""
