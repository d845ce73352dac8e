# SPDX-License-Identifier: Apache-2.0
"""Purges, deletions, expiries and rules of topics while leaders die: a new leader has each change that was answered."""

import asyncio
import random
from collections import defaultdict
from functools import partial

import pytest
from reput.commitlog.v1 import topic_service_pb2 as pb

from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.marks import DURABILITY_REPLICATED
from services.commitlog.rpc.topic_servicer import TopicServicer
from tests.support.cluster import Cluster, Node
from tests.support.commitlog import append, durability_of, message
from tests.support.patience import eventually

TOPICS = "orders", "audit", "noise"
CHANGES = "purge", "delete", "expire", "rule", "queues", "append", "append"


async def all_in_sync(cluster: Cluster) -> None:
    """Wait until all members are in sync."""
    await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)


class Model:
    """The answered changes: the begin and the rule of each topic, and the messages that readers must still get."""

    def __init__(self) -> None:
        self.begins: dict[str, int] = {}
        self.rules: dict[str, tuple[int, int, int]] = {}
        self.shown: defaultdict[str, list[int]] = defaultdict(list)
        self.unsure = ""
        """The topic whose change got no answer: it may have been made."""

    async def change(self, log: OpenLog, chance: random.Random) -> None:
        """Make a change by chance, and note it once it is answered."""
        topic, kind = chance.choice(TOPICS), chance.choice(CHANGES)
        self.unsure = topic
        await self._change(log, topic, kind, chance)
        self.unsure = ""

    async def _change(self, log: OpenLog, topic: str, kind: str, chance: random.Random) -> None:
        topics = TopicServicer(lambda: log)
        if log.topics.find(topic) is None:
            await topics.CreateTopic(pb.CreateTopicRequest(name=topic), None)
            self.note_rule(log, topic)
        if kind == "append":
            batch = await append(log, message(topic=topic), durability=DURABILITY_REPLICATED)
            assert await durability_of(log, batch) == DURABILITY_REPLICATED
            self.shown[topic].append(batch.start_physical_offset)
        elif kind == "purge":
            answer = await topics.PurgeTopic(pb.PurgeTopicRequest(name=topic), None)
            self.hide(topic, answer.begin_physical_offset)
        elif kind == "delete":
            await topics.DeleteTopic(pb.DeleteTopicRequest(name=topic), None)
            self.rules.pop(topic)
            self.hide(topic, log.topics.begins.by_topic.get(topic, 0))
        elif kind == "expire" and self.shown[topic]:
            begin = chance.choice(self.shown[topic])
            wanted = [pb.TopicBegin(topic=topic, begin_physical_offset=begin)]
            await topics.ExpireMessages(pb.ExpireMessagesRequest(begins=wanted), None)
            self.hide(topic, begin)
        elif kind == "rule":
            request = pb.UpdateTopicRequest(name=topic, retention_hours=chance.randrange(100))
            await topics.UpdateTopic(request, None)
            self.note_rule(log, topic)
        elif kind == "queues":
            count = chance.randrange(1, 9)
            request = pb.UpdateTopicRequest(name=topic, read_queue_count=count, write_queue_count=count)
            await topics.UpdateTopic(request, None)
            self.note_rule(log, topic)

    def hide(self, topic: str, begin: int) -> None:
        """Note a begin."""
        self.begins[topic] = max(begin, self.begins.get(topic, 0))
        self.shown[topic] = [offset for offset in self.shown[topic] if offset >= begin]

    def note_rule(self, log: OpenLog, topic: str) -> None:
        """Note the rule and the queues of a topic."""
        self.rules[topic] = rule_of(log, topic)

    def check(self, log: OpenLog) -> None:
        """A leader has all of it, and no begin hides a message that was acknowledged after it."""
        begins, end = log.topics.begins.by_topic, log.reader.end_physical_offset
        if topic := self.unsure:
            assert begins.get(topic, 0) >= self.begins.get(topic, 0)
            self.hide(topic, begins.get(topic, 0))
            self.rules.pop(topic, None)
            if log.topics.find(topic) is not None:
                self.note_rule(log, topic)
            self.unsure = ""
        assert {topic: begins.get(topic, 0) for topic in self.begins} == self.begins
        assert all(begin <= end for begin in begins.values())
        assert {topic: rule_of(log, topic) for topic in self.rules} == self.rules
        assert all(log.topics.find(topic) is None for topic in TOPICS if topic not in self.rules)
        for topic, offsets in self.shown.items():
            assert all(offset >= begins.get(topic, 0) for offset in offsets)


def rule_of(log: OpenLog, topic: str) -> tuple[int, int, int]:
    """Return the hours and the queues of a topic."""
    found = log.topics.get(topic)
    return found.retention_hours, found.read_queue_count, found.write_queue_count


async def test_leaders_die(chance: random.Random) -> None:
    """A new leader of a synchronous log has all answered changes; old leaders have them, too, when they are back.

    A change is under way when a leader dies. It is made or not made.
    """
    cluster, model = Cluster(role="sync_master"), Model()
    async with cluster.running() as leader:
        for _ in range(4):
            await all_in_sync(cluster)
            assert leader.log is not None
            for _ in range(chance.randrange(1, 12)):
                await model.change(leader.log, chance)
            last = asyncio.create_task(model.change(leader.log, chance))
            for _ in range(chance.randrange(20)):
                await asyncio.sleep(0)
            leader = await failed_over(cluster, leader)
            last.cancel()
            await asyncio.wait([last])
            model.check(leader.log)
        await all_in_sync(cluster)
        for node in cluster.nodes:
            assert node.log is not None
            assert leader.log is not None
            await eventually(partial(has_topics_of, node.log, leader.log))
            model.check(node.log)


def has_topics_of(log: OpenLog, leader: OpenLog) -> bool:
    """Whether a log has the topics and begins of another log."""
    is_same = log.topics.file.topics == leader.topics.file.topics
    return is_same and log.topics.begins.by_topic == leader.topics.begins.by_topic


async def failed_over(cluster: Cluster, leader: Node) -> Node:
    """Kill a leader, wait for another, and start the killed node again."""
    await leader.kill()
    cluster.pass_lease()
    await eventually(lambda: cluster.leader not in (None, leader))
    new = cluster.leader
    assert new is not None
    await leader.start()
    return new


@pytest.mark.parametrize("change", ["purge", "delete"])
async def test_a_begin_that_outlives_its_messages(change: str) -> None:
    """A copy with the begin that lacks messages below it leads: the begin falls to its end and hides no new message.

    Its log is not synchronous, and it got no more records before the leader died.
    """
    cluster = Cluster()
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        log = leader.log
        assert log is not None
        await append(log, message(topic="orders"), durability=DURABILITY_REPLICATED)
        others = [node for node in cluster.nodes if node is not leader]
        for node in others:
            cluster.cuts.add(frozenset({leader.name, node.name}))
        await append(log, *(message(topic="orders") for _ in range(9)))
        await (log.topics.purge("orders") if change == "purge" else log.topics.delete("orders"))
        begins = dict(log.topics.begins.by_topic)
        for node in others:
            assert node.log is not None
            await node.log.topics.replace_begins(begins)  # as if the stream had come so far
        new = await failed_over(cluster, leader)
        assert new.log is not None
        end = new.log.reader.end_physical_offset
        assert new.log.topics.begins.by_topic == {"orders": end}
        assert end < begins["orders"]
