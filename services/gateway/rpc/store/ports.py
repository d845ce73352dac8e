# SPDX-License-Identifier: Apache-2.0
"""The calls of the gateway to the store behind it, or to several shards."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol, TypeAlias

from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.commitlog.v1.topic_service_pb2 import Topic
from reput.delivery.v1.delivery_service_pb2 import ReceivedMessage, SettleEntry
from reput.delivery.v1.group_service_pb2 import GroupPolicy
from reput.delivery.v1.transaction_service_pb2 import TransactionCheck

from libs.requests.errors import PeerError
from services.gateway.errors import Refused

Settled: TypeAlias = str | PeerError | Refused
"""The receipt handle of a message from now on, "" for none, or the error that prevented the change."""

BROKER = "reput"
"""The name of a single store as a broker."""


class TopicQueues(NamedTuple):
    """A topic, and the numbers of its queues by the name of the broker, in clients' words, that has them.

    Queues that are `sealed` are read, and take no messages.
    """

    topic: Topic
    queue_ids: Mapping[str, Sequence[int]]
    sealed: AbstractSet[int] = frozenset()


class Sent(NamedTuple):
    """A stored message: its shard, "" for a single store, and its queue offset."""

    shard: str
    queue_offset: int


class Log(Protocol):
    """The log, or the logs, behind the gateway. All calls raise PeerError and Refused."""

    creates_topics: bool

    async def send(self, messages: Sequence[AppendMessage]) -> Sequence[Sent]:
        """Append messages of a topic with the durability that the store promises. Returns where they are."""
        ...

    async def queues(self, name: str) -> TopicQueues:
        """Return a topic with its queues. A missing topic is created if the settings say so."""
        ...


class Deliveries(Protocol):
    """Delivery, or the Deliveries of all shards. All calls raise PeerError."""

    async def receive(
        self,
        group: str,
        topic: str,
        *,
        broker: str = "",
        count: int,
        invisible_ms: int | None,
        tags: str,
        where: str,
        wait_s: float,
        attempt_id: str,
    ) -> Sequence[ReceivedMessage]:
        """Return messages of a broker's queues, or of any broker's if `broker` is none of them.

        They are invisible for others for `invisible_ms`. None means the time of the group's policy.
        """
        ...

    async def settle(self, entries: Sequence[SettleEntry]) -> list[Settled]:
        """Settle messages by entries. Returns for each the handle from now on, "" for none, or an error."""
        ...

    async def ack(self, handles: Sequence[str]) -> Sequence[Settled]:
        """Acknowledge messages. Returns for each "" or an error."""
        ...

    async def change(self, entry: SettleEntry) -> str:
        """Change a message's invisible time. Returns its handle from now on, "" for none. Raises Refused, too."""
        ...

    async def bury(self, entry: SettleEntry) -> None:
        """Make a message a dead letter. Raises Refused, too."""
        ...

    async def renew(self, handles: Sequence[str], invisible_s: float) -> Mapping[str, bool]:
        """Return for each handle whether its message is invisible for `invisible_s` from now on."""
        ...

    async def end_transaction(self, name: str, producer_group: str, *, is_committed: bool) -> None:
        """Commit or roll back a transaction."""
        ...

    async def checks(self, producer_groups: Sequence[str], count: int, *, wait_s: float) -> Sequence[TransactionCheck]:
        """Return transactions about which a producer of these groups has to be asked."""
        ...

    async def cancel(self, topic: str, message_id: str, *, broker: str = "") -> None:
        """Cancel a message that waits for its delivery time, at the broker of this name, if it exists."""
        ...

    async def policy(self, group: str) -> GroupPolicy:
        """Return the policy of a group, and the default policy for an unknown group."""
        ...
