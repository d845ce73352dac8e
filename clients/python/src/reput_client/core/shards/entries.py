# SPDX-License-Identifier: Apache-2.0
"""Entry: a message on its way to a shard, in place of its sink at the producer of the shard.

Flow: the messages of a hash, of which none overtakes another. TopicQueue: the messages of a topic.
"""

from bisect import insort
from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

from reput_client.core.errors import ReputError
from reput_client.core.sending import Sink
from reput_client.core.shards.chunks import QUEUE_FIELD_SIZE_MAX
from reput_client.core.shards.targets import Target, TopicRoute

Encoded: TypeAlias = tuple[bytes, str, Sink]
"""The chunk, the unique id and the sink of a message."""


class Entry:
    """A message, encoded without a queue, and the sink of the program.

    `order` is its number among all messages. `since_s` is the time when it began to wait for a queue, 0 before, and
    `refusal` the last refusal by a queue.
    """

    __slots__ = (
        "chunk", "key_hash", "order", "queue_id", "refusal", "since_s", "sink", "size_bytes", "target", "topic",
        "unique_id",
    )  # fmt: skip

    def __init__(
        self,
        topic: "TopicQueue",
        encoded: Encoded,
        order: int,
        key_hash: int | None,
        queue_id: int | None,
    ) -> None:
        self.topic, self.order, self.key_hash, self.queue_id = topic, order, key_hash, queue_id
        self.chunk, self.unique_id, self.sink = encoded
        self.size_bytes = len(self.chunk) + QUEUE_FIELD_SIZE_MAX
        self.target: Target | None = None
        self.since_s = 0.0
        self.refusal: ReputError | None = None


class Flow:
    """The messages of a hash: at most one target has messages without an outcome, and all others wait behind them.

    All messages of `refused` were sent before each message of `later` came.
    """

    __slots__ = ("later", "refused", "target", "unsettled_count")

    def __init__(self) -> None:
        self.target: Target | None = None
        self.unsettled_count = 0
        self.refused: Sequence[Entry] = ()
        self.later: Sequence[Entry] = ()

    @property
    def holds(self) -> bool:
        """Whether messages wait."""
        return bool(self.later or self.refused)

    def refuse(self, entry: Entry) -> None:
        """Let a refused message wait, at its place."""
        refused = self.refused = self.refused if isinstance(self.refused, list) else []
        insort(refused, entry, key=attrgetter("order"))

    def hold(self, entry: Entry) -> None:
        """Let a message wait behind all others."""
        later = self.later = self.later if isinstance(self.later, list) else []
        later.append(entry)

    def take(self, until_s: float = float("inf")) -> list[Entry]:
        """Remove and return the messages that wait since `until_s` or before, in their order."""
        taken = [entry for entry in (*self.refused, *self.later) if entry.since_s <= until_s]
        self.refused = [entry for entry in self.refused if entry.since_s > until_s]
        self.later = [entry for entry in self.later if entry.since_s > until_s]
        return taken


class TopicQueue(TopicRoute):
    """A topic, its messages by hash, and its messages without a key that wait for a queue."""

    def __init__(self, name: str, shards: Sequence[str]) -> None:
        super().__init__(name, shards)
        self.flows: dict[int, Flow] = {}
        self.held: set[int] = set()
        """The hashes whose messages wait."""
        self.loose: list[Entry] = []

    def take(self, until_s: float = float("inf")) -> list[Entry]:
        """Remove and return the messages that wait since `until_s` or before, in their order."""
        taken = [entry for entry in self.loose if entry.since_s <= until_s]
        self.loose = [entry for entry in self.loose if entry.since_s > until_s]
        for value in list(self.held):
            flow = self.flows[value]
            taken += flow.take(until_s)
            if not flow.holds:
                self.held.discard(value)
                if not flow.unsettled_count:
                    del self.flows[value]
        return sorted(taken, key=attrgetter("order"))
