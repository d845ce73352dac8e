# SPDX-License-Identifier: Apache-2.0
"""Patience: how long a command asks. Imported only by what talks to a service: it brings the client along."""

import math

from reput_client import ReputError, RetryPolicy

from cli.output.lines import warning_line

RETRIES = 4
"""A person waits about a second for an address where nobody answers; scripts use `reput health --wait`."""

STARTING_REASONS = frozenset({"RECOVERING", "DEPENDENCY_UNAVAILABLE", "QUEUE_OFFSETS_UNKNOWN"})
"""With these a service says that it is there, and still waits for its files or for another service."""
NOTED_ATTEMPT = 3
LONG = RetryPolicy()


class Patience(RetryPolicy):
    """Asks a service again that says that it is starting, for half a minute at most, and with a note.

    `timeout_s` is the longest time of all attempts, for who has no time-out of its own.
    """

    def __init__(self, retries: int = RETRIES, timeout_s: float = math.inf) -> None:
        super().__init__(retries)
        self._timeout_s = timeout_s
        self._noted_reasons: set[str] = set()

    def delay_s(self, attempt: int, error: ReputError, *, is_repeatable: bool = True) -> float | None:
        """See RetryPolicy."""
        if error.reason not in STARTING_REASONS:
            return RetryPolicy.delay_s(self, attempt, error, is_repeatable=is_repeatable)
        if attempt == NOTED_ATTEMPT and error.reason not in self._noted_reasons:
            self._noted_reasons.add(error.reason)
            warning_line(f"waiting for the service: {error}")
        left_s = self._timeout_s - sum(_longest_delay_s(before, error) for before in range(attempt))
        return LONG.delay_within_s(left_s, attempt, error, is_repeatable=is_repeatable)


def _longest_delay_s(attempt: int, error: ReputError) -> float:
    return max(min(LONG.delay_max_s, LONG.delay_min_s * 2.0**attempt), error.retry_after or 0.0)
