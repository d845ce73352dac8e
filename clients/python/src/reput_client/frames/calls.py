# SPDX-License-Identifier: Apache-2.0
"""Calls of a read: the servers of a store are tried in turn, and a call that may pass later is repeated.

The channels of the client do not retry here: a stream that broke resumes where it broke, perhaps at another server, and
only failures without progress between them count.
"""

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from reput_client.core.call import Call
from reput_client.core.errors import ReputError, ServerError
from reput_client.core.retry import RetryPolicy, is_passing
from reput_client.sync.channels import Channels

BEYOND_END = "OFFSET_BEYOND_END"
ONCE = RetryPolicy(retries=0)
"""The policy of the channels."""

T = TypeVar("T")
_answered: dict[tuple[str, ...], str] = {}
"""The server that answered last, by the list of servers. The next call begins with it."""


class BadAnswerError(ServerError):
    """The Indexer's answer contradicts the request, or is not the requested Arrow data."""


class CallEnded(Exception):
    """A call failed for good: refused, or still failing after all retries. `error` is the last failure."""

    def __init__(self, path: str, endpoint: str, error: ReputError) -> None:
        super().__init__(path, endpoint, error)
        self.path, self.endpoint, self.error = path, endpoint, error


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of a store that answer the same calls, and how they are called."""

    endpoints: tuple[str, ...]
    """Addresses, `host:port`; tried in turn."""
    retry: RetryPolicy
    """Retries in a row without progress."""
    answer_timeout_s: float
    """Longest wait for an answer or a frame."""
    channels_to: Callable[[str], Channels] = field(compare=False)
    """Returns the channels to an address, whose policy is ONCE."""
    wait: Callable[[float], None] = field(default=time.sleep, compare=False)
    """Waits this many seconds before an attempt. It may raise, which ends the read."""


class Attempts:
    """A call with its retries: the next server, the delay, and the end of the retries."""

    def __init__(self, servers: Servers, path: str) -> None:
        self._servers, self._path = servers, path
        self._failure_count = 0
        self._endpoints = itertools.cycle(servers.endpoints)
        first = _answered.get(servers.endpoints, servers.endpoints[0])
        self.endpoint = next(endpoint for endpoint in self._endpoints if endpoint == first)
        """Address of the next attempt."""

    def channels(self) -> Channels:
        """Return the channels of the next attempt."""
        return self._servers.channels_to(self.endpoint)

    def answered(self) -> None:
        """Record an answer: the number of failures becomes 0, and later calls begin with this server."""
        self._failure_count = 0
        _answered[self._servers.endpoints] = self.endpoint

    def failed(self, error: ReputError) -> None:
        """Wait before the next attempt after a failed attempt. Raises CallEnded if no attempt is left."""
        endpoint = self.endpoint
        if not self.goes_on(error):
            raise CallEnded(self._path, endpoint, error) from None

    def goes_on(self, error: ReputError) -> bool:
        """Wait before the next attempt, at the next server. Returns False without a wait if no attempt is left."""
        # An Indexer that was restarted, or that indexes another log, may lack entries that the plan has.
        may_pass = is_passing(error) or error.reason == BEYOND_END
        delay_s = self._servers.retry.backoff_s(self._failure_count, error) if may_pass else None
        if delay_s is None:
            return False
        self._failure_count += 1
        self.go_on()
        self._servers.wait(delay_s)
        return True

    def go_on(self) -> None:
        """Use the next server for the next attempt."""
        self.endpoint = next(self._endpoints)


def run(servers: Servers, call: Call[T]) -> T:
    """Run a call, with retries while it may pass later. Raises CallEnded."""
    attempts = Attempts(servers, call.method.path)
    while True:
        try:
            found = attempts.channels().run(call)
        except ReputError as error:
            attempts.failed(error)
        else:
            attempts.answered()
            return found


def has_answered(servers: Servers) -> bool:
    """Return whether a server of the list has answered this process before."""
    return servers.endpoints in _answered
