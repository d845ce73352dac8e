# SPDX-License-Identifier: Apache-2.0
"""Messaging: programs that send through the gateway, share messages in groups and end transactions, in all rounds.

The history has all answers to them; `tests.crash.messaging` has the promises. The number of deliveries of a message is
not checked here: a failover may forget the last deliveries, and where the log is out of reach for longer than a message
is its receiver's, it comes again. Invariants: a message is in the history before it is sent. Callers: a single event
loop.
"""

import asyncio
import contextlib
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import grpc.aio
from reput.common.v1.message_pb2 import StoredMessage
from reput_client import AlreadyExistsError, Options, ReputError, RetryPolicy, SharePolicy
from reput_client.aio import AsyncClient

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.crash.messaging.history import Group, History, Place, Sent
from tests.crash.messaging.members import AGAIN_S, Members, now_ms
from tests.crash.messaging.promises import RULES, broken, lost
from tests.crash.messaging.transactions import Transactions
from tests.crash.rounds.trio import Trio
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import Caller

TOPIC, KEYED_TOPIC = "shared", "lanes"
TOPICS = (TOPIC, KEYED_TOPIC)
QUEUE_COUNT = 2
GROUPS = {"billing": Group(TOPIC), "ordered": Group(KEYED_TOPIC, is_ordered=True)}
SENDER_COUNT, KEY_COUNT = 4, 2
CLIENT_TIMEOUT_S = 4.0
ATTEMPTS_MAX = 1_000
"""So that nothing becomes a dead letter."""
PAUSES_S = (0.01, 0.05, 0.2)
DRAIN_LOOK_S = 0.2
OK = wire.CODE_OK
PASSING = (
    *(wire.CODE_HA_NOT_AVAILABLE, wire.CODE_TOO_MANY_REQUESTS, wire.CODE_PROXY_TIMEOUT),
    *(wire.CODE_SLAVE_PERSISTENCE_TIMEOUT, wire.CODE_MASTER_PERSISTENCE_TIMEOUT),
)
"""The answers to a producer about a message that may be there or not."""


class Messaging:
    """The programs of a round, see the module. A single round's programs run at a time."""

    def __init__(self, trio: Trio, chance: random.Random) -> None:
        self.history = History(groups=GROUPS, attempts_last=False)
        self.wrong: list[str] = []
        self.counts: Counter[str] = Counter()
        self._trio, self._chance = trio, chance
        self._numbers, self._transactions = itertools.count(), itertools.count()
        self._told: dict[str, int] = {}
        """The queue offset that the gateway named for a message."""
        self._is_over = False

    @contextlib.asynccontextmanager
    async def running(self, *, drains: bool) -> AsyncIterator[None]:
        """Let them work for the length of a block, and receive on until nothing is left, if it `drains`.

        Raises an error that a program should not have met, and TimeoutError.
        """
        self._is_over = False
        options = Options(
            commitlog=self._trio.targets,
            delivery=self._trio.delivery_targets,
            token=self._trio.token,
            timeout_s=CLIENT_TIMEOUT_S,
        )
        async with AsyncClient(options, RetryPolicy(retries=0)) as client:  # so that it is known when a call began
            await self._prepare(client)
            members = Members(client, self.history, self._chance)
            transactions = Transactions(
                client, self.history, self._chance, TOPIC, numbers=self._transactions, may_be_forgotten=True
            )
            producers = [asyncio.create_task(each) for each in self._producers(transactions)]
            members.start(GROUPS)
            try:
                yield
                self._is_over = True
                async with asyncio.timeout(LIMIT_S):
                    await asyncio.gather(*producers)
                if drains:
                    await self._drain(client)
            finally:
                for task in producers:
                    task.cancel()
                await asyncio.gather(*producers, return_exceptions=True)
                await members.end()
                self.wrong += transactions.wrong

    async def _prepare(self, client: AsyncClient) -> None:
        """Make topics and groups, once, while all works."""
        if self.history.sent:
            return
        for topic in TOPICS:
            await _patiently(lambda topic=topic: _make_topic(client, topic))  # type: ignore[misc]
        for name, group in GROUPS.items():
            policy = SharePolicy(attempts_max=ATTEMPTS_MAX, is_ordered=group.is_ordered)
            await _patiently(lambda name=name, policy=policy: client.share_groups.set(name, policy))  # type: ignore[misc]

    def _producers(self, transactions: Transactions) -> list[Coroutine[Any, Any, None]]:
        return [
            *(self._send(f"producer-{number}") for number in range(SENDER_COUNT)),
            *(self._send(f"lane-{number}", key=f"key-{number}") for number in range(KEY_COUNT)),
            transactions.run(lambda: self._is_over),
        ]

    async def _send(self, client: str, key: str = "") -> None:
        """Send messages in turn through the gateway, each until it is stored if the gateway stores it once."""
        caller = self._trio.gateway.caller(client)
        while not self._is_over:
            name, topic = f"sent-{next(self._numbers)}", KEYED_TOPIC if key else TOPIC
            sent = Sent(name, topic, "keyed" if key else "plain", now_ms(), is_native=False, key=key)
            self.history.sent[name] = sent
            group = {"message_group": key} if key else {}
            message = caller.message(topic, name.encode(), message_id=f"01{name}", **group)
            is_sent = await self._is_sent(caller, sent, message)
            while not is_sent and self._trio.gateway.is_once:
                await asyncio.sleep(AGAIN_S)
                is_sent = await self._is_sent(caller, sent, message)
            if not is_sent:
                sent.given_up_ms = now_ms()
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(self._chance.choice(PAUSES_S))

    async def _is_sent(self, caller: Caller, sent: Sent, message: wire.Message) -> bool:
        """Send it; whether the answer says that it is stored."""
        try:
            answer = await caller.send(sent.topic, message)
        except grpc.aio.AioRpcError:
            return False
        code = answer.status.code
        self.counts[f"sends answered as {wire.Code.Name(code).removeprefix('CODE_')}"] += 1
        if code == OK:
            sent.answered_ms = now_ms()
            self._told[sent.name] = answer.entries[0].offset
        elif code not in PASSING:
            self.wrong.append(f"{sent.name} was answered by the gateway with {answer.status}")
        return bool(code == OK)

    async def _drain(self, client: AsyncClient) -> None:
        """Wait until all groups have settled all. Raises TimeoutError with the rest."""
        left: object = "nobody answers"
        try:
            async with asyncio.timeout(LIMIT_S):
                while left:
                    await asyncio.sleep(DRAIN_LOOK_S)
                    with contextlib.suppress(ReputError):
                        groups = [await client.share_groups.get(name) for name in GROUPS]
                        left = [(group.name, queue) for group in groups for queue in group.queues if queue.lag]
        except TimeoutError:
            raise TimeoutError(f"not settled within {LIMIT_S} s: {left}") from None

    def check(self, messages: Sequence[StoredMessage], *, is_drained: bool) -> list[str]:
        """Compare all promises with all messages of the log. Returns the faults."""
        rules = [rule for rule in RULES if is_drained or rule is not lost]
        return self.wrong + broken(self.history, rules) + compare(self.history, self._told, messages)

    def told(self) -> Counter[str]:
        """The counts of all that was done, by kind."""
        deliveries, sent = self.history.deliveries, self.history.sent.values()
        return self.counts + Counter(
            {
                "acks answered": sum(one.verb == "ack" and one.settled_ms is not None for one in deliveries),
                "deliveries": len(deliveries),
                "transactions ended": sum(one.ended_ms is not None for one in sent),
            }
        )


def compare(history: History, told: Mapping[str, int], messages: Iterable[StoredMessage]) -> list[str]:
    """Check that a message is stored once at most, and an answered message once, at the answer's queue offset."""
    found: defaultdict[str, list[Place]] = defaultdict(list)
    for message in messages:
        if message.topic in TOPICS:
            place = Place(message.topic, message.queue_id, message.queue_offset)
            found[message.body.decode()].append(place)
    wrong = [f"{name} at {places[0]} was never sent" for name, places in found.items() if name not in history.sent]
    for sent in history.sent.values():
        places = found[sent.name]
        if len(places) > 1:
            wrong.append(f"{sent.name} is stored {len(places)} times, at {places}")
        if sent.must_be_seen and not places:
            wrong.append(f"{sent.name} was answered as done at {sent.answered_ms}, and is not there")
        if places and not sent.may_be_seen:
            wrong.append(f"{sent.name} is at {places}, and its transaction is {sent.end or 'open'}")
        if places and sent.name in told and places[0].queue_offset != told[sent.name]:
            wrong.append(f"{sent.name} was answered as queue offset {told[sent.name]}, and is at {places}")
    return wrong


async def _make_topic(client: AsyncClient, name: str) -> None:
    """Make a topic, which an earlier try may have made without an answer."""
    with contextlib.suppress(AlreadyExistsError):
        await client.topics.create(name, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT)


async def _patiently(call: Callable[[], Awaitable[object]]) -> None:
    """Ask for it until it is answered. Raises TimeoutError with the last error."""
    last: ReputError | None = None
    try:
        async with asyncio.timeout(LIMIT_S):
            is_done = False
            while not is_done:
                try:
                    await call()
                    is_done = True
                except ReputError as error:
                    last = error
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        raise TimeoutError(f"not done within {LIMIT_S} s: {last}") from last
