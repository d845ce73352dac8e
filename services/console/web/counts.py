# SPDX-License-Identifier: Apache-2.0
"""Counts: the numbers of the console's metrics."""

from msgspec import Struct
from msgspec.structs import replace


class Counts(Struct):
    """Pages, refusals and live tails since the start."""

    pages_total: int = 0
    """Pages that were made, as HTML or as JSON."""
    failed_pages_total: int = 0
    """Pages that failed because of a bug."""
    refused_total: int = 0
    """Requests that were refused: no such page, no login, a wrong host, or too many at once."""
    changes_total: int = 0
    """Changes of the store that were confirmed, with any outcome."""
    wrong_tokens_total: int = 0
    """Wrong tokens that callers sent for a login."""
    tail_count: int = 0
    """Live tails that run now."""

    def snapshot(self) -> "Counts":
        """Return the numbers as they are now."""
        return replace(self)
