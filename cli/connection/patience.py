# SPDX-License-Identifier: Apache-2.0
"""Patience: how long a command retries. Imported only by code that calls a service, because it imports the client."""

import math

from reput_client import ReputError, RetryPolicy, UnavailableError

from cli.output.lines import warning_line

RETRIES = 4
"""With these a user waits about a second for an address that does not answer; scripts use `reput health --wait`."""

STARTING_REASONS = frozenset({"RECOVERING", "DEPENDENCY_UNAVAILABLE", "QUEUE_OFFSETS_UNKNOWN"})
"""Reasons of a service that is running, and still waits for its files or for another service."""
NO_LEADER_REASONS = frozenset({"NOT_LEADER", "NOT_ENOUGH_REPLICAS"})
"""Reasons of a log that accepts no appends now; another log may accept them, or this log soon."""
NOTED_ATTEMPT = 3
LONG = RetryPolicy()


class Patience(RetryPolicy):
    """Retries calls to a service that reports that it is starting, for half a minute at most, and with a note.

    `timeout_s` is the longest time of all attempts, for a caller that has no time-out of its own.
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
        return self._delay_within_s(attempt, error)

    def _delay_within_s(self, attempt: int, error: ReputError) -> float | None:
        """Return the wait before the next attempt, for a state that may last half a minute."""
        left_s = self._timeout_s - sum(_longest_delay_s(before, error) for before in range(attempt))
        return LONG.delay_within_s(left_s, attempt, error)


class LeaderPatience(Patience):
    """Also waits, among several logs, for a leader: an election takes some 5 s, plus the delays of the machine."""

    def __init__(self, retries: int, timeout_s: float) -> None:
        super().__init__(retries, timeout_s)
        self._is_told = False

    def delay_s(self, attempt: int, error: ReputError, *, is_repeatable: bool = True) -> float | None:
        """See RetryPolicy."""
        is_refused = error.reason in NO_LEADER_REASONS
        if not is_refused and not (is_repeatable and not error.reason and isinstance(error, UnavailableError)):
            return super().delay_s(attempt, error, is_repeatable=is_repeatable)
        if attempt == NOTED_ATTEMPT and not self._is_told:
            self._is_told = True
            warning_line(f"waiting for a log that leads: {error}")
        return self._delay_within_s(attempt, error)


def _longest_delay_s(attempt: int, error: ReputError) -> float:
    return max(min(LONG.delay_max_s, LONG.delay_min_s * 2.0**attempt), error.retry_after or 0.0)
