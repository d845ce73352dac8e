# SPDX-License-Identifier: Apache-2.0
"""Tally: how many messages went which way, over all times that a process delivers."""

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Counts since the process began."""

    received_count: int = 0
    """Deliveries, the repeated ones among them."""
    redelivered_count: int = 0
    settled_count: int = 0
    """Acknowledged, or given up by their receivers."""
    postponed_count: int = 0
    """Given back, or kept for longer."""
    dead_letter_count: int = 0
    replayed_count: int = 0
    """Dead letters that went back to where they came from."""
