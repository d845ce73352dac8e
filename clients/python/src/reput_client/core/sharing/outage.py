# SPDX-License-Identifier: Apache-2.0
"""Outage: a series of temporary failures, in which a call is retried until it works or its caller closes. No I/O."""

from collections.abc import Callable

from reput_client.core.errors import ReputError
from reput_client.core.retry import RetryPolicy, is_passing
from reput_client.core.telemetry.log import log

AT_ONCE = RetryPolicy(retries=0)
"""The policy of the single calls: the outage itself repeats them."""
FAILURES_UNTIL_TOLD = 3
"""Failures in a row before an outage is logged. A restart or a change of the leader often has fewer failures."""
DELAY_MIN_S = 0.02
TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"


class Outage:
    """The outages of a kind of call, named `what` in the log. Delays are the delays of `retry`, with unlimited retries.

    A topic that does not exist is a temporary reason: it may be created, or created again. The beginning of an outage,
    a change of its reason, and its end are logged; if `tell` is given, it gets these lines in place of the log.
    """

    def __init__(
        self,
        what: str,
        retry: RetryPolicy,
        *,
        tell: Callable[[str], None] = log.warning,
        told_after: int = FAILURES_UNTIL_TOLD,
    ) -> None:
        self.failed_count = 0
        """Number of calls that failed so far for temporary reasons."""
        self.outage_count = 0
        """Number of outages that were logged so far."""
        self._what = what
        self._retry = RetryPolicy(1 << 62, retry.delay_min_s, retry.delay_max_s, retry.chance)
        self._write, self._told_after = tell, told_after
        self._since_s: float | None = None
        self._attempt = 0
        self._told = ""

    def lasts_s(self, now_s: float) -> float:
        """Return for how many seconds calls have failed, 0 while they work."""
        return 0.0 if self._since_s is None else now_s - self._since_s

    def on_failure(self, error: ReputError, now_s: float) -> float | None:
        """Record a failed call. Returns seconds until the next attempt, None for a permanent failure."""
        delay_s = self._retry.backoff_s(self._attempt, error)
        if delay_s is None or not (is_passing(error) or error.reason == TOPIC_NOT_FOUND):
            return None
        if self._since_s is None:
            self._since_s = now_s
        self._attempt += 1
        self.failed_count += 1
        if self._attempt >= self._told_after:
            self._tell(error)
        return max(delay_s, DELAY_MIN_S)

    def on_success(self, now_s: float) -> None:
        """Record a successful call."""
        if self._since_s is None:
            return
        if self._told:
            lasts_s = self.lasts_s(now_s)
            self._write(f"{self._what} works again after {lasts_s:.1f} s and {self._attempt} failed calls")
        self._since_s, self._attempt, self._told = None, 0, ""

    def _tell(self, error: ReputError) -> None:
        """Log the beginning of an outage, or a change of its reason."""
        reason = error.reason or error.code.name
        if reason == self._told:
            return
        self.outage_count += not self._told
        self._told = reason
        self._write(f"{self._what} does not work, and is tried again until it does: {error}")
