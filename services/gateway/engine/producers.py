# SPDX-License-Identifier: Apache-2.0
"""Producers: which clients publish which topics, so that a client can be asked how a transaction ends.

A client names its topics in its settings. Some clients send the settings again only after minutes, so the topics of
their messages are recorded, too. Clients that have sent half messages of a topic, or have ended transactions of it,
know how its transactions end. Other clients of the topic may not know it: they are asked only if there are no such
clients.
Callers: the event loop's thread. Memory: CLIENT_COUNT_MAX clients, or the clients with a stream if these are more.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, field

CLIENT_COUNT_MAX = 10_000
TOPIC_COUNT_MAX = 1_000
"""Topics of a client: the last that it named."""

Ask = Callable[[Any], None]


class _Client(Struct):
    topics: OrderedDict[str, bool] = field(default_factory=OrderedDict)
    """By topic: whether the client had a transaction of it."""
    ask: Ask | None = None


class Producers:
    """The clients of this gateway that publish topics."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, _Client] = OrderedDict()
        self._turns: dict[str, int] = {}
        """By topic: how many questions were asked."""

    def publishes(self, client: str, topics: Iterable[str], *, in_transactions: bool = False) -> None:
        """Record that a client publishes these topics, and whether it does so in transactions now."""
        known = self._client(client).topics
        for topic in topics:
            known[topic] = known.pop(topic, False) or in_transactions
        while len(known) > TOPIC_COUNT_MAX:
            known.popitem(last=False)

    def connected(self, client: str, ask: Ask) -> None:
        """Record that a client has a stream, by which it can be asked. The last stream is used."""
        self._client(client).ask = ask

    def disconnected(self, client: str, ask: Ask) -> None:
        """Record that this stream has ended."""
        found = self._clients.get(client)
        if found is not None and found.ask == ask:
            found.ask = None

    def topics(self) -> list[str]:
        """Return all topics whose producers can be asked."""
        found = dict.fromkeys(topic for one in self._clients.values() if one.ask is not None for topic in one.topics)
        return list(found)

    def ask(self, topic: str, question: Any) -> bool:
        """Ask a client that publishes a topic, in turn. Returns whether there was such a client.

        Clients that have had a transaction of the topic are preferred.
        """
        found = [(one.topics[topic], one.ask) for one in self._clients.values() if one.ask and topic in one.topics]
        asks = [ask for knows, ask in found if knows] or [ask for _, ask in found]
        if asks:
            turn = self._turns.get(topic, 0)
            self._note_turn(topic, turn + 1)
            asks[turn % len(asks)](question)
        return bool(asks)

    def _note_turn(self, topic: str, turn: int) -> None:
        if len(self._turns) >= CLIENT_COUNT_MAX and topic not in self._turns:
            self._turns.clear()
        self._turns[topic] = turn

    def _client(self, name: str) -> _Client:
        found = self._clients.setdefault(name, _Client())
        self._clients.move_to_end(name)
        while len(self._clients) > CLIENT_COUNT_MAX:
            silent = next((other for other, one in self._clients.items() if one.ask is None and other != name), None)
            if silent is None:
                break
            del self._clients[silent]
        return found
