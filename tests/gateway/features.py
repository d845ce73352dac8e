# SPDX-License-Identifier: Apache-2.0
"""Features: uses of the official clients, each as a function that takes a driver through it."""

import asyncio
import contextlib
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.duration import from_milliseconds
from reput.delivery.v1 import group_service_pb2

from tests.gateway.drivers import ClientError, Command, Driver
from tests.gateway.stage import Stage

INVISIBLE_S = 60
RECEIVE_S = 60.0
DELAY_S = 15
"""Long enough that a client has begun, sent and recalled before the time comes."""
LATE_S = 10
"""The delay after which a delayed message is late."""


@dataclass(frozen=True)
class Scene:
    """A driver, a stage, and names that no other scene has."""

    driver: Driver
    stage: Stage
    topic: str
    group: str
    place_of_keys: str
    """The gateway that asks for keys."""

    async def send(self, body: str, **more: Any) -> str:
        """Send a message, and return its id."""
        sent = await self.driver.ask("send", topic=self.topic, body=body, **more)
        return str(sent["id"])

    async def begin(self, body: str, end: str) -> None:
        """Send a message that is visible later, and end its transaction: "commit", "rollback", or no end."""
        await self.driver.ask("begin", topic=self.topic, body=body, end=end)

    async def receive(self, count: int, *, invisible_s: int = INVISIBLE_S, **more: Any) -> list[dict[str, Any]]:
        """Receive until this many messages have arrived, or the time is over."""
        found: list[dict[str, Any]] = []
        end_s = time.monotonic() + RECEIVE_S
        names = {"topic": self.topic, "consumer_group": self.group, **more}
        while len(found) < count and time.monotonic() < end_s:
            answer = await self.driver.ask("receive", count=count, invisible_s=invisible_s, **names)
            found += answer["messages"]
        return found

    async def nothing(self, **more: Any) -> None:
        """Receive, and check that no message arrives."""
        names = {"topic": self.topic, "consumer_group": self.group, **more}
        answer = await self.driver.ask("receive", count=10, invisible_s=INVISIBLE_S, **names)
        assert answer["messages"] == []

    async def policy(self, **fields: Any) -> None:
        """Give the group a policy."""
        policy = group_service_pb2.GroupPolicy(**fields)
        await self.stage.groups.set_policy(group_service_pb2.SetGroupRequest(group=self.group, policy=policy))

    async def push(self, count: int, **more: Any) -> list[dict[str, Any]]:
        """Let a push consumer work, and return the events: the messages that it was called with."""
        asked = {"topic": self.topic, "consumer_group": self.group, "count": count, "seconds": 60, **more}
        answer = await self.driver.ask("push", **asked)
        events: list[dict[str, Any]] = answer["events"]
        return events


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [one["body"] for one in messages]


async def send_normal(scene: Scene) -> None:
    """A message arrives as it was sent, with body, tag, keys and properties, at attempt 1."""
    properties = {"color": "grün", "size": "3"}
    sent = await scene.send("héllo", tag="a", keys=["k1"], properties=properties)
    (message,) = await scene.receive(1)
    expected = {"body": "héllo", "tag": "a", "keys": ["k1"], "properties": properties, "id": sent, "attempt": 1}
    assert {name: message[name] for name in expected} == expected


async def send_fifo(scene: Scene) -> None:
    """Messages of a message group arrive in their order."""
    sent = [f"m{index}" for index in range(6)]
    for body in sent:
        await scene.send(body, group="g1")
    messages = await scene.receive(6)
    assert bodies(messages) == sent
    assert {one["group"] for one in messages} == {"g1"}


async def delay(scene: Scene) -> None:
    """A delayed message is delivered at its time, not before, and other messages do not wait for it."""
    due_s = int(time.time()) + DELAY_S
    await scene.send("later", deliver_s=due_s)
    await scene.send("now")
    assert bodies(await scene.receive(2)) == ["now", "later"]
    late_s = time.time() - due_s
    assert 0 <= late_s < LATE_S, late_s


async def recall(scene: Scene) -> None:
    """A recalled delayed message is never delivered, also after a second recall.

    A message that was delivered can't be recalled.
    """
    due_s = int(time.time()) + DELAY_S
    names = {"topic": scene.topic, "deliver_s": due_s}
    recalled, kept = [await scene.driver.ask("send", body=body, **names) for body in ("recalled", "kept")]
    for _ in range(2):
        answer = await scene.driver.ask("recall", topic=scene.topic, recall_handle=recalled["recall_handle"])
        assert answer["id"] == recalled["id"]
    assert time.time() < due_s, "the machine is too slow for this"
    assert bodies(await scene.receive(1)) == ["kept"]
    await scene.nothing()
    with pytest.raises(AssertionError, match="recall: "):
        await scene.driver.ask("recall", topic=scene.topic, recall_handle=kept["recall_handle"])


async def receive_and_ack(scene: Scene) -> None:
    """An acknowledged message is not delivered again."""
    for index in range(5):
        await scene.send(f"m{index}")
    messages = await scene.receive(5, invisible_s=15)
    assert sorted(bodies(messages)) == [f"m{index}" for index in range(5)]
    for message in messages:
        await scene.driver.ask("ack", number=message["number"])
    await asyncio.sleep(15)
    await scene.nothing()


async def change_invisible(scene: Scene) -> None:
    """A message is delivered again at the time that its consumer set, and its former handle is invalid."""
    await scene.send("m")
    (first,) = await scene.receive(1)
    await scene.driver.ask("change", number=first["number"], invisible_s=2)
    (again,) = await scene.receive(1)
    assert (again["body"], again["attempt"]) == ("m", 2)
    with contextlib.suppress(AssertionError):  # the client for Go does not report a refused acknowledgement
        await scene.driver.ask("ack", number=first["number"])
    await scene.driver.ask("change", number=again["number"], invisible_s=2)
    (third,) = await scene.receive(1)
    assert third["attempt"] == 3
    await scene.driver.ask("ack", number=third["number"])


async def redelivery(scene: Scene) -> None:
    """A message that is not settled in time is redelivered, with the number of the attempt."""
    await scene.send("m")
    (first,) = await scene.receive(1, invisible_s=10)
    (again,) = await scene.receive(1, invisible_s=INVISIBLE_S)
    assert (first["attempt"], again["attempt"], first["id"]) == (1, 2, again["id"])
    await scene.driver.ask("ack", number=again["number"])


async def tag_filter(scene: Scene) -> None:
    """Only messages with a requested tag are delivered."""
    for index, tag in enumerate("abcab"):
        await scene.send(f"m{index}", tag=tag)
    messages = await scene.receive(3, tags="a || c")
    assert sorted(bodies(messages)) == ["m0", "m2", "m3"]
    await scene.nothing(tags="a || c")


async def sql_filter(scene: Scene) -> None:
    """Only messages with properties that match a condition are delivered."""
    for index in range(6):
        await scene.send(f"m{index}", tag="a", properties={"price": str(index), "region": "eu" if index % 2 else "us"})
    condition = "price > 2 AND region = 'eu'"
    messages = await scene.receive(2, sql=condition)
    assert sorted(bodies(messages)) == ["m3", "m5"]
    await scene.nothing(sql=condition)


async def push(scene: Scene) -> None:
    """A push consumer gets all messages, and a failed message again, after the backoff of its group."""
    await scene.policy(backoffs=[from_milliseconds(2_000)], attempts_max=5)
    for index in range(8):
        await scene.send(f"m{index}")
    events = await scene.push(8, fail={"m3": 2})
    assert sorted(bodies([one for one in events if not one["failed"]])) == [f"m{index}" for index in range(8)]
    tries = [one for one in events if one["body"] == "m3"]
    assert [one["attempt"] for one in tries] == [1, 2, 3]
    gaps_ms = [later["time_ms"] - one["time_ms"] for one, later in itertools.pairwise(tries)]
    assert all(gap_ms > 1_500 for gap_ms in gaps_ms), gaps_ms


async def push_fifo(scene: Scene) -> None:
    """In an ordered group each message group is processed in order, also where a message fails once."""
    await scene.policy(is_ordered=True, backoffs=[from_milliseconds(1_000)], attempts_max=5)
    for index in range(4):
        for group in ("g1", "g2"):
            await scene.send(f"{group}-{index}", group=group)
    events = await scene.push(8, fail={"g1-1": 1})
    for group in ("g1", "g2"):
        done = [one["body"] for one in events if one["group"] == group and not one["failed"]]
        assert done == [f"{group}-{index}" for index in range(4)]


async def dead_letter(scene: Scene) -> None:
    """A message that fails too often is delivered to the dead letters of its group, once.

    Other messages are not affected.
    """
    await scene.policy(backoffs=[from_milliseconds(1_000)], attempts_max=2)
    for body in ("good", "bad"):
        await scene.send(body)
    events = await scene.push(2, fail={"bad": 100}, seconds=25)
    assert [one["attempt"] for one in events if one["body"] == "bad"] == [1, 2]
    letters = await scene.receive(1, topic=f"%DLQ%{scene.group}", consumer_group=f"{scene.group}-dead")
    assert bodies(letters) == ["bad"]
    await scene.nothing(topic=f"%DLQ%{scene.group}", consumer_group=f"{scene.group}-dead")


async def dead_letter_fifo(scene: Scene) -> None:
    """A message that fails too often in an ordered group becomes a dead letter, and the next messages are delivered."""
    await scene.policy(is_ordered=True, backoffs=[from_milliseconds(1_000)], attempts_max=2)
    for index in range(3):
        await scene.send(f"m{index}", group="g1")
    events = await scene.push(2, fail={"m1": 100})
    assert [one["body"] for one in events if not one["failed"]] == ["m0", "m2"]
    letters = await scene.receive(1, topic=f"%DLQ%{scene.group}", consumer_group=f"{scene.group}-dead")
    assert bodies(letters) == ["m1"]


async def transaction(scene: Scene) -> None:
    """Committed messages are delivered, and messages that were rolled back are not."""
    for body, end in (("m0", "commit"), ("m1", "rollback"), ("m2", "commit")):
        await scene.begin(body, end)
    assert sorted(bodies(await scene.receive(2))) == ["m0", "m2"]
    await scene.nothing()


async def orphan(scene: Scene) -> None:
    """A producer that has not ended a transaction is asked, and its answer is applied."""
    for body in ("commit when asked", "roll back when asked"):
        await scene.begin(body, "")
    assert bodies(await scene.receive(1)) == ["commit when asked"]
    await scene.nothing()


async def authentication(scene: Scene) -> None:
    """The right secret is accepted, and a wrong secret, an unknown key or no key are refused."""
    place, is_tls = scene.stage.places[scene.place_of_keys], scene.place_of_keys == "guarded"
    await scene.driver.ask("connect", endpoints=place, tls=is_tls, key="alice", secret="secret-of-alice")
    await scene.send("m")
    (message,) = await scene.receive(1)
    assert message["body"] == "m"
    for wrong in ({"key": "alice", "secret": "wrong"}, {"key": "bob", "secret": "secret-of-alice"}, {}):
        await scene.driver.ask("connect", endpoints=place, tls=is_tls, **wrong)
        with pytest.raises(AssertionError):
            await scene.send("m")


async def rights(scene: Scene) -> None:
    """A key may do what its rules allow: a producer's key does not receive, and a consumer's key does not send."""
    place, is_tls = scene.stage.places[f"{scene.place_of_keys}, rights"], scene.place_of_keys == "guarded"

    async def connect(name: str) -> None:
        await scene.driver.ask("connect", endpoints=place, tls=is_tls, key=name, secret=f"secret-of-{name}")

    await connect("shop")
    await scene.send("m")
    asked = {"topic": scene.topic, "consumer_group": scene.group, "count": 1, "invisible_s": INVISIBLE_S}
    with pytest.raises(ClientError):
        await scene.driver.ask("receive", **asked)
    await connect("billing")
    with pytest.raises(ClientError):
        await scene.send("refused")
    (message,) = await scene.receive(1)
    assert message["body"] == "m"
    await scene.driver.ask("ack", number=message["number"])
    await scene.nothing()


async def tls(scene: Scene) -> None:
    """Sending and receiving work over TLS."""
    await scene.driver.ask("connect", endpoints=scene.stage.places["tls"], tls=True)
    await scene.send("m")
    (message,) = await scene.receive(1)
    await scene.driver.ask("ack", number=message["number"])


FEATURES: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    "normal send": send_normal,
    "FIFO send": send_fifo,
    "delay": delay,
    "recall": recall,
    "SimpleConsumer: receive, ack": receive_and_ack,
    "change invisible duration": change_invisible,
    "redelivery": redelivery,
    "tag filter": tag_filter,
    "SQL filter": sql_filter,
    "PushConsumer": push,
    "PushConsumer: FIFO": push_fifo,
    "dead letter": dead_letter,
    "dead letter: FIFO": dead_letter_fifo,
    "transaction: commit, rollback": transaction,
    "transaction: orphan check": orphan,
    "access keys": authentication,
    "access keys: rights": rights,
    "TLS": tls,
}


async def wrong_with(feature: str, driver: Driver, stage: Stage, command: Command) -> str:
    """Take a driver through a feature. Return the complaint, "" if the feature works."""
    name = uuid.uuid4().hex[:10]
    scene = Scene(driver, stage, f"topic-{name}", f"group-{name}", command.place_of_keys)
    try:
        await driver.ask("connect", endpoints=stage.places["plain"], tls=False)
        await FEATURES[feature](scene)
    except (AssertionError, TimeoutError, ValueError, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return ""
