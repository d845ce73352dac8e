# SPDX-License-Identifier: Apache-2.0
"""ShardTraffic: the messages that each shard takes from the gateway, and shards that are away, with log lines.

Callers: the event loop's thread; `statistics` in any thread. Memory: three numbers for each shard.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from libs.machine.clock import Clock
from libs.machine.trouble import Trouble


class ShardStatistics(Struct, frozen=True, kw_only=True):
    """The messages that the gateway sends to a shard."""

    sent_messages_total: int
    """Messages that the shard has stored."""
    failed_batches_total: int
    """Batches that the shard did not store, or not surely, because it could not be reached or did not answer."""
    is_away: bool
    """1 while the last batch for the shard failed in this way."""


class ShardTraffic:
    """The batches of all shards, by the names of the shards."""

    def __init__(self, shards: Iterable[str], clock: Clock) -> None:
        self._troubles = {shard: Trouble(f"sending to shard {shard}", now_s=clock.monotonic_s) for shard in shards}
        self._sent, self._failed = dict.fromkeys(self._troubles, 0), dict.fromkeys(self._troubles, 0)
        self._away = dict.fromkeys(self._troubles, False)

    def stored(self, shard: str, count: int) -> None:
        """Record that a shard has stored messages."""
        self._sent[shard] += count
        if self._away[shard]:
            self._away[shard] = False
            self._troubles[shard].ended()

    def failed(self, shard: str, error: Exception) -> None:
        """Record that a batch failed because the shard is away."""
        self._failed[shard] += 1
        self._away[shard] = True
        self._troubles[shard].failed(f"shard {shard} takes no messages", error)

    def statistics(self) -> Mapping[tuple[str, ...], ShardStatistics]:
        """Return the figures, by shard."""
        return {
            (shard,): ShardStatistics(
                sent_messages_total=self._sent[shard],
                failed_batches_total=self._failed[shard],
                is_away=self._away[shard],
            )
            for shard in self._troubles
        }
