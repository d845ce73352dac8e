# SPDX-License-Identifier: Apache-2.0
"""Levels: the messages with a delay level, and whether each comes to its topic once, in its time and as it was sent.

The checks follow the log as it is shown: the messages of a level come in the order of its queue in the schedule topic,
so the next message is known, and a message that is lost, doubled or early shows at once. A message is due by the log's
time, which never goes back. The log's time itself is never later than any clock has ever shown, so only a clock that
was set ahead makes a message early, by that step at most.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import StoredMessage

from libs.formats.records.delay_level import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from tests.crash.cluster.kept import Kept

ALARMS = "alarms"
"""The topic of these messages. Nothing else is in it."""
LEVELS = (1, 1, 1, 2, 2, 3, 5, 18)
SCHEDULED = frozenset({"DELAY", "REAL_TOPIC", "REAL_QID"})
"""Properties that a message has only while it waits."""
OF_STORE = frozenset({"__CRC32#"})
OF_MESSAGE = ("body", "flag", "sys_flag", "born_time_ms", "born_host", "reconsume_times")
"""Fields that a message keeps."""


@dataclass(slots=True)
class Levels:
    """The messages of a run with a delay level. Messages are known by their bodies, levels by the ids of their queues.

    `latest_ms` returns the latest time that any clock has shown until now.
    """

    latest_ms: Callable[[], int]
    sent: dict[bytes, AppendMessage] = field(default_factory=dict)
    acknowledged: set[bytes] = field(default_factory=set)
    scheduled: dict[int, list[StoredMessage]] = field(default_factory=lambda: defaultdict(list))
    """By level, the records of the schedule topic."""
    delivered_counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    broken: list[str] = field(default_factory=list)

    def make(self, kept: Kept, chance: random.Random) -> AppendMessage:
        """Return a message that was never sent before."""
        message = AppendMessage(
            topic=ALARMS,
            body=kept.mark("alarm") + chance.randbytes(chance.choice((0, 20, 700))),
            properties={"DELAY": str(chance.choice(LEVELS)), "TAGS": "loud", "KEYS": "k1 k2", "snooze": "no"},
            flag=chance.getrandbits(16),
        )
        self.sent[message.body] = message
        return message

    def hear(self, message: StoredMessage) -> None:
        """Look at the next message that the log shows. Faults are told at the next look of the world."""
        if message.topic == SCHEDULE_TOPIC:
            self._wait(message)
        elif message.topic == ALARMS:
            self._come(message)

    def check_positions(self, positions: Iterable[tuple[str, int, int]]) -> None:
        """Compare what Indexers know of the levels (name, level, position) with what the log shows."""
        for name, level, position in positions:
            count = self.delivered_counts[level]
            self._expect(position <= count, f"the index of {name} has level {level} at {position}, and {count} came")

    @property
    def waiting(self) -> list[bytes]:
        """The messages that wait, by their marks."""
        return [
            one.body[:20] for level, found in self.scheduled.items() for one in found[self.delivered_counts[level] :]
        ]

    def check_acknowledged(self) -> None:
        """Compare the answers with a log that shows all that there is."""
        found = {one.body for queue in self.scheduled.values() for one in queue}
        lost = sorted(body[:20] for body in self.acknowledged - found)
        self._expect(not lost, f"{lost[:5]} were answered as stored, and do not wait")

    def _wait(self, message: StoredMessage) -> None:
        sent, queue = self.sent[message.body], self.scheduled[message.queue_id]
        expected = {**sent.properties, "REAL_TOPIC": ALARMS, "REAL_QID": message.properties.get("REAL_QID", "")}
        found = _without(message.properties, OF_STORE)
        self._expect(found == expected, f"{message.body[:20]!r} waits with the properties {found}")
        is_there = message.queue_id == int(sent.properties["DELAY"]) - 1 and message.queue_offset == len(queue)
        self._expect(is_there, f"{message.body[:20]!r} waits at {message.queue_id}, {message.queue_offset}")
        queue.append(message)

    def _come(self, message: StoredMessage) -> None:
        level = int(self.sent[message.body].properties["DELAY"]) - 1
        queue, at = self.scheduled[level], self.delivered_counts[level]
        name = f"{message.body[:20]!r} of level {level}"
        if at >= len(queue) or queue[at].body != message.body:
            due = queue[at].body[:20] if at < len(queue) else b"no message"
            self._expect(False, f"{name} came to {message.physical_offset}, and {due!r} is next")
            return
        self.delivered_counts[level] += 1
        waited = queue[at]
        due_ms = waited.store_time_ms + DELAY_LEVELS_MS[level]
        early_ms = due_ms - min(message.store_time_ms, self.latest_ms())
        self._expect(early_ms <= 0, f"{name} came {early_ms} ms too early")
        changed = [each for each in OF_MESSAGE if getattr(waited, each) != getattr(message, each)]
        self._expect(not changed, f"{name} came with other {changed}")
        expected, found = (_without(one.properties, OF_STORE | SCHEDULED) for one in (waited, message))
        self._expect(found == expected, f"{name} came with the properties {found}, not {expected}")
        is_there = str(message.queue_id) == waited.properties["REAL_QID"]
        self._expect(is_there, f"{name} came to queue {message.queue_id}, not {waited.properties['REAL_QID']}")

    def _expect(self, condition: bool, text: str) -> None:
        if not condition:
            self.broken.append(text)


def _without(properties: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in names}
