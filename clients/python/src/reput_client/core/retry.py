# SPDX-License-Identifier: Apache-2.0
"""RetryPolicy: decides whether and when a failed attempt is repeated. Pure except for the jitter."""

from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from reput_client.core.errors import DeadlineExceededError, ReputError, UnavailableError
from reput_client.core.route import NOT_LEADER

RETRYABLE_REASONS = frozenset(
    {
        "STORE_FULL", "QUEUE_OFFSETS_UNKNOWN", "WINDOW_FULL", "RECOVERING", "STOPPING", "DEPENDENCY_UNAVAILABLE",
        "NOT_LEADER", "NOT_ENOUGH_REPLICAS", "STORE_REPLACED", "QUOTA_EXCEEDED",
    }
)  # fmt: skip
"""Reasons of a temporary refusal: the server did nothing, and a later attempt may work. See docs/errors.md."""

LOST_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""Codes after which it is unknown whether the server executed the call."""


FOLLOWS_MAX = 3
"""Most answers in a row whose leader is tried at once: logs that change their leader may name each other."""


def is_followed(error: ReputError, follow_count: int) -> bool:
    """Return whether the next attempt is sent at once to the leader that an answer names.

    The server did nothing, so this is no failed attempt. `follow_count` is the number of such answers in a row.
    """
    return error.reason == NOT_LEADER and bool(error.metadata.get("leader")) and follow_count < FOLLOWS_MAX


def is_passing(error: ReputError) -> bool:
    """Return whether another attempt may work, for a call that may be repeated even if it was executed."""
    return error.reason in RETRYABLE_REASONS or error.code in LOST_CODES


def _chance() -> float:
    """Return a number from 0 to 1, for the jitter."""
    import random  # few programs need it at their start

    return random.random()  # noqa: S311 - no secret


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential back-off with jitter, never shorter than the delay that the server asks for.

    `retries` is the number of attempts after the first attempt; 0 turns retries off. The delay before retry n (from 0)
    is between a half and all of `delay_min_s * 2**n` seconds, at most `delay_max_s`. The defaults give a server about
    half a minute.
    """

    retries: int = 12
    delay_min_s: float = 0.05
    delay_max_s: float = 5.0
    chance: Callable[[], float] = field(default=_chance, repr=False, compare=False)
    """Returns numbers from 0 to 1, for the jitter."""

    def delay_s(self, attempt: int, error: ReputError, *, is_repeatable: bool = True) -> float | None:
        """Return seconds to wait after failed attempt number `attempt` (from 0), None to give up.

        With `is_repeatable` False only calls are retried for which the server says that it did not execute them.
        """
        is_refused = error.reason in RETRYABLE_REASONS
        if not (is_refused or (is_repeatable and isinstance(error, UnavailableError))):
            return None
        return self.backoff_s(attempt, error)

    def backoff_s(self, attempt: int, error: ReputError) -> float | None:
        """Return the delay as `delay_s` does, for any kind of error."""
        if attempt >= self.retries:
            return None
        ceiling = min(self.delay_max_s, self.delay_min_s * 2.0 ** min(attempt, 30))
        return max(ceiling * (1 - self.chance() / 2), error.retry_after or 0.0)

    def delay_within_s(
        self, left_s: float, attempt: int, error: ReputError, *, is_repeatable: bool = True
    ) -> float | None:
        """Return the delay as `delay_s` does, for a call that has `left_s` seconds left."""
        delay_s = self.delay_s(attempt, error, is_repeatable=is_repeatable)
        is_over = isinstance(error, DeadlineExceededError) or (delay_s is not None and delay_s >= left_s)
        return None if is_over else delay_s


class Attempts:
    """The failed attempts of a call, and the delay after each."""

    def __init__(self, retry: RetryPolicy) -> None:
        self._retry = retry
        self._count = self._follow_count = 0

    def delay_s(self, error: ReputError, left_s: float, *, is_repeatable: bool = True) -> float | None:
        """Return seconds until the next attempt of a call that has `left_s` seconds left, None to give up."""
        if left_s > 0 and is_followed(error, self._follow_count):
            self._follow_count += 1
            return 0.0
        delay_s = self._retry.delay_within_s(left_s, self._count, error, is_repeatable=is_repeatable)
        self._count, self._follow_count = self._count + 1, 0
        return delay_s
