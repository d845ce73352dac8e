# SPDX-License-Identifier: Apache-2.0
"""Changes of topics over shards while producers send: no send fails, no message is lost, keys keep to their queues."""

import asyncio
import random
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import topic_service_pb2, topic_service_pb2_grpc

from libs.formats.config.topic_share import key_hash
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support import reput_up
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import Caller

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

TOPIC, KEY_COUNT, SENDER_COUNT = "orders", 24, 6
KILL_COUNT = 8
PAUSE_S_MAX = 20.0
"""The longest time of a send on a busy machine. A change pauses the sends of its keys for some milliseconds."""


@dataclass
class Shards:
    """Shards behind a gateway, and commands for them."""

    store: reput_up.Store
    client: Caller
    file: Path

    async def run(self, *arguments: str, file: Path | None = None) -> reput_up.Result:
        """Run a command of `reput shards` in a process of its own."""
        command = ("shards", *arguments, "--json", "--shards-file", str(file or self.file))
        return await asyncio.to_thread(reput_up.run, *command, extra=self.store.client_environment())

    async def change(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command in a process of its own, expect success, and return the rows."""
        result = await self.run(*arguments)
        assert result.code == 0, result
        return result.rows

    async def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command inside this process, expect success, and return the rows."""
        return await asyncio.to_thread(self.store.json, "shards", *arguments, "--shards-file", str(self.file))

    async def topic(self, name: str = TOPIC) -> dict[int, dict[str, Any]]:
        """The queues of a topic by number."""
        return {row["queue_id"]: row for row in await self.rows("topic", name)}

    async def open_ids(self, name: str = TOPIC) -> dict[str, list[int]]:
        """The open queues of a topic by shard."""
        found: dict[str, list[int]] = {}
        for number, row in (await self.topic(name)).items():
            found.setdefault(row["shard"], []).extend([number] if row["state"] == "open" else [])
        return found


@dataclass
class Producers:
    """Senders of messages with keys. The body of a message is its key and its number among the messages of the key."""

    client: Caller
    topic: str = TOPIC
    counts: dict[str, int] = field(default_factory=dict)
    longest_s: float = 0.0

    @property
    def bodies(self) -> list[str]:
        """The bodies of all acknowledged messages, sorted."""
        return sorted(f"{key}/{number}" for key, count in self.counts.items() for number in range(count))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send within the block. A send that fails fails the block at its end."""
        keys, stopping = [f"key-{number}" for number in range(KEY_COUNT)], asyncio.Event()
        tasks = [
            asyncio.create_task(self._send(keys[at::SENDER_COUNT], stopping), name="sender")
            for at in range(SENDER_COUNT)
        ]
        await asyncio.sleep(0.3)
        try:
            yield
            await asyncio.sleep(0.3)
        finally:
            stopping.set()
            await asyncio.gather(*tasks)
        print(f"{sum(self.counts.values())} sends, the longest took {self.longest_s * 1000:.0f} ms")
        assert self.longest_s < PAUSE_S_MAX

    async def _send(self, keys: Sequence[str], stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            for key in keys:
                number = self.counts.get(key, 0)
                message = self.client.message(self.topic, f"{key}/{number}".encode(), message_group=key)
                start_s = time.monotonic()
                answer = await self.client.send(self.topic, message)
                self.longest_s = max(self.longest_s, time.monotonic() - start_s)
                assert answer.status.code == wire.CODE_OK, answer
                self.counts[key] = number + 1
                await asyncio.sleep(0.005)


@asynccontextmanager
async def shards_at(directory: Path, count: int) -> AsyncIterator[Shards]:
    """So many shards, and a client of their gateway."""
    with reput_up.store(directory, *reput_up.WITH_GATEWAY, "--shards", str(count)) as store:
        async with grpc.aio.insecure_channel(store.door) as channel:
            yield Shards(store, Caller(channel), directory / "shards.toml")


async def received(client: Caller, count: int, topic: str = TOPIC) -> list[wire.Message]:
    """Receive and acknowledge so many messages, and expect no more."""
    found: list[wire.Message] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            messages = await client.receive(topic, wait_s=2)
            found += messages
            if messages:
                handles = [message.system_properties.receipt_handle for message in messages]
                assert (await client.ack(topic, *handles)).status.code == wire.CODE_OK
    assert await client.receive(topic, wait_s=1) == []
    return found


async def check_received(shards: Shards, producers: Producers, *, ranged_from: int = 0) -> None:
    """All acknowledged messages are received once, and each from a queue that has, or had, the range of its key.

    Queues below `ranged_from` had no ranges: a log chose the queues of their messages.
    """
    found = await received(shards.client, len(producers.bodies), producers.topic)
    assert sorted(message.body.decode() for message in found) == producers.bodies
    queues = await shards.topic(producers.topic)
    for message in found:
        system = message.system_properties
        queue = queues[system.queue_id]
        if system.queue_id >= ranged_from:
            assert queue["first_hash"] <= key_hash(system.message_group) <= queue["last_hash"], message


async def check_whole(shards: Shards) -> None:
    """No change is under way, and the open queues have all keys."""
    assert await shards.rows("finish", TOPIC) == []
    rows = [row for row in (await shards.topic()).values() if row["state"] == "open"]
    assert sum(row["last_hash"] - row["first_hash"] + 1 for row in rows) == 2**32


async def test_changes_under_load(tmp_path: Path) -> None:
    """Queues are split, moved and merged while producers send: no send fails, and keys keep to their queues."""
    async with shards_at(tmp_path / "store", 3) as shards:
        await shards.rows("create", TOPIC, "--queues", "3")
        producers = Producers(shards.client)
        async with producers.running():
            planned = await shards.rows("split", TOPIC, "0", "--dry-run")
            assert await shards.open_ids() == {"a": [0], "b": [1], "c": [2]}
            split = await shards.change("split", TOPIC, "0")
            assert split == planned
            assert [(row["queue_id"], row["shard"], row["state"]) for row in split] == [
                (0, "a", "sealed"),
                (3, "a", "open"),
                (4, "b", "open"),
            ]
            await shards.change("split", TOPIC, "2", "--to", "a", "--to", "b", "--to", "c")
            await shards.change("move", TOPIC, "3", "--to", "c")
            merged = await shards.change("merge", TOPIC, "8", "4", "--to", "a")
            assert (merged[-1]["keys_percent"], merged[-1]["shard"]) == (33.33, "a")
        await check_whole(shards)
        assert await shards.open_ids() == {"a": [5, 9], "b": [1, 6], "c": [7]}
        await check_received(shards, producers)


async def test_a_topic_of_a_store_is_spread_under_load(tmp_path: Path) -> None:
    """A topic that a store had before it became a shard comes to all shards while producers send."""
    async with shards_at(tmp_path / "store", 2) as shards:
        made = ("--store", shards.store.door, "--shard", "b", "topics", "create", TOPIC, "--queues", "4")
        assert (await asyncio.to_thread(reput_up.run, *made)).code == 0
        producers = Producers(shards.client)
        async with producers.running():
            await shards.change("spread", TOPIC)
        assert await shards.open_ids() == {"a": [4, 5, 6, 7], "b": [8, 9, 10, 11]}
        refused = await shards.run("spread", TOPIC)
        assert (refused.code, "lies on shards already" in refused.errors) == (5, True)
        await check_whole(shards)
        await check_received(shards, producers, ranged_from=4)


async def killed(shards: Shards, chance: random.Random, *arguments: str) -> None:
    """Run a command in a process of its own, and kill it at a random moment after it has begun to change the topic."""
    command = [*reput_up.REPUT, "shards", *arguments, "--shards-file", str(shards.file)]
    topics = topic_service_pb2_grpc.TopicServiceStub(shards.client.channel)
    request, keeper = topic_service_pb2.GetTopicRequest(name=TOPIC), (("reput-shard", "a"),)
    process = reput_up.start(command, shards.store.client_environment(), stdout=subprocess.DEVNULL)
    is_begun = False
    while not is_begun and process.poll() is None:
        answer = await topics.GetTopic(request, metadata=keeper, timeout=LIMIT_S)
        is_begun = answer.topic.share.HasField("change")
    await asyncio.sleep(chance.uniform(0, 0.03))
    process.kill()
    process.wait()


async def test_killed_commands_are_finished(tmp_path: Path, chance: random.Random) -> None:
    """A command is killed at any moment of a change, and `finish` makes the rest, while producers send."""
    async with shards_at(tmp_path / "store", 2) as shards:
        await shards.rows("create", TOPIC, "--queues", "4")
        producers, finished_count = Producers(shards.client), 0
        async with producers.running():
            for _ in range(KILL_COUNT):
                number = chance.choice([number for ids in (await shards.open_ids()).values() for number in ids])
                await killed(shards, chance, "split", TOPIC, str(number))
                finished_count += bool(await shards.rows("finish", TOPIC))
        print(f"{finished_count} of {KILL_COUNT} changes were under way at the kill")
        assert finished_count, "no change was under way"
        await check_whole(shards)
        await check_received(shards, producers)


async def test_commands_at_the_same_time(tmp_path: Path) -> None:
    """Two commands change a topic at once: both changes are made, and of the same queue only a single change."""
    async with shards_at(tmp_path / "store", 2) as shards:
        await shards.rows("create", TOPIC, "--queues", "4")
        first, second = await asyncio.gather(
            shards.run("split", TOPIC, "0", "--to", "b"), shards.run("split", TOPIC, "2", "--to", "a")
        )
        assert (first.code, second.code) == (0, 0), (first, second)
        third, fourth = await asyncio.gather(
            shards.run("move", TOPIC, "1", "--to", "b"), shards.run("split", TOPIC, "1", "--to", "a", "--to", "b")
        )
        assert sorted([third.code, fourth.code]) == [0, 5], (third, fourth)
        assert "CHANGE_REFUSED: topic orders: queue 1 is sealed" in third.errors + fourth.errors
        await check_whole(shards)


async def test_a_shard_that_is_away(tmp_path: Path) -> None:
    """If a shard does not answer, each command names it, and changes nothing."""
    async with shards_at(tmp_path / "store", 2) as shards:
        await shards.rows("create", TOPIC, "--queues", "4")
        before = await shards.topic()
        text, away = shards.file.read_text(), tmp_path / "away.toml"
        lines = [line for line in text.splitlines() if line.startswith("commitlog")]
        away.write_text(text.replace(lines[1], 'commitlog = "127.0.0.1:1"'))
        for command in (
            ("split", TOPIC, "0"),
            ("move", TOPIC, "0", "--to", "b"),
            ("merge", TOPIC, "0", "1", "--to", "b"),
            ("spread", TOPIC),
            ("finish", TOPIC),
            ("drain", "a"),
            ("split", TOPIC, "0", "--dry-run"),
        ):
            result = await shards.run(*command, file=away)
            assert (result.code, result.output) == (4, ""), result
            assert "SHARD_FAILED: shard b: " in result.errors, result
            assert "nothing was changed" in result.errors, result
        assert await shards.topic() == before


async def test_a_shard_is_drained(tmp_path: Path) -> None:
    """All queues of a shard go to the others while producers send, and it is empty when its messages are read."""
    async with shards_at(tmp_path / "store", 3) as shards:
        file = shards.file
        marked = file.read_text() + "takes_topics = false\n"  # the last table is that of c
        await shards.rows("create", TOPIC, "--queues", "6")
        made = ("--store", shards.store.door, "--shard", "c", "topics", "create", "solo")
        assert (await asyncio.to_thread(reput_up.run, *made)).code == 0
        for topic in (TOPIC, "solo"):
            assert await shards.client.receive(topic, wait_s=1) == [], "the group begins"
        warned = await shards.run("drain", "c", "--dry-run")
        assert "takes_topics = false" in warned.errors
        shards.file = tmp_path / "marked.toml"
        shards.file.write_text(marked)
        producers, solos = Producers(shards.client), Producers(shards.client, "solo")
        async with producers.running(), solos.running():
            start_s = time.monotonic()
            result = await shards.run("drain", "c")
            print(f"the drain took {time.monotonic() - start_s:.2f} s")
        assert "takes_topics" not in result.errors
        assert result.code == 1, result
        assert "NOT_EMPTY: shard c still has" in result.errors
        left = [(row["left"], row["group"], row["topic"]) for row in result.rows if "left" in row]
        assert left[-1] == ("bytes until retention", None, None)
        assert ("unread messages", "g", TOPIC) in left
        assert (await shards.open_ids())["c"] == []
        assert await shards.open_ids("solo") == {"a": [4, 5, 6, 7], "b": [8, 9, 10, 11], "c": []}
        new = await shards.rows("create", "later")
        assert {row["shard"] for row in new} == {"a", "b"}
        await check_received(shards, producers)
        await check_received(shards, solos, ranged_from=4)
        async with asyncio.timeout(LIMIT_S):
            while (result := await shards.run("drain", "c")).code != 0:
                assert result.code == 1, result
        (row,) = result.rows
        assert row["left"] == "bytes until retention"
        assert row["left_bytes"] > 0
