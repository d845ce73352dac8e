# SPDX-License-Identifier: Apache-2.0
"""The shards that a share consumer receives from: when each is asked, and which are away. No I/O, no clock.

ShardReceived: a received message with the name of its shard.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reput_client.core.errors import ReputError
from reput_client.core.retry import RetryPolicy
from reput_client.core.shards.names import at_shard
from reput_client.core.sharing.holding import Received
from reput_client.core.sharing.outage import TOPIC_NOT_FOUND, Outage

SLICE_S = 2.0
"""The longest wait of a single call to a shard. A close during such a call may take as long."""
GRACE_S = 1.0
"""How long a receive waits after its time for calls that are under way."""
TOPIC_LOOK_S = 1.0
"""How often a shard without the topic is asked."""


@dataclass(frozen=True, slots=True)
class ShardReceived(Received):
    """A message that a consumer of all shards holds. Settle it with the consumer that received it."""

    shard: str
    """The shard of the message."""


class ShardTurns:
    """The state of each shard: the messages are received, or the shard is away or without the topic until a time."""

    def __init__(self, what: str, shards: Sequence[str], retry: RetryPolicy) -> None:
        self._outages = {shard: Outage(f"{what} at shard {shard}", retry) for shard in shards}
        self._next_s = dict.fromkeys(shards, 0.0)
        self._errors: dict[str, ReputError] = {}

    @property
    def outages(self) -> Sequence[Outage]:
        """The outages of the shards."""
        return list(self._outages.values())

    @property
    def failure(self) -> ReputError | None:
        """The error of a shard, if the last calls of all shards have failed."""
        return next(iter(self._errors.values())) if len(self._errors) == len(self._next_s) else None

    def due(self, now_s: float) -> list[str]:
        """Return the shards that may be asked now."""
        return [shard for shard, next_s in self._next_s.items() if next_s <= now_s]

    def wait_s(self, now_s: float) -> float:
        """Return seconds until a shard may be asked."""
        return max(0.0, min(self._next_s.values()) - now_s)

    def on_failure(self, shard: str, error: ReputError, now_s: float) -> ReputError | None:
        """Record a failed call. Returns the error of a permanent failure, None if the shard is asked again."""
        named = self._errors[shard] = at_shard(shard, error)
        delay_s: float | None = TOPIC_LOOK_S  # other shards may have the topic, so this is no outage
        if error.reason != TOPIC_NOT_FOUND:
            delay_s = self._outages[shard].on_failure(error, now_s)
        if delay_s is None:
            return named
        self._next_s[shard] = now_s + delay_s
        return None

    def on_success(self, shard: str, now_s: float) -> None:
        """Record a successful call."""
        self._errors.pop(shard, None)
        self._outages[shard].on_success(now_s)
