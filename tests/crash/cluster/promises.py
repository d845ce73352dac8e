# SPDX-License-Identifier: Apache-2.0
"""Promises: the answers to clients of a cluster, the records that they saw, and whether the logs agree.

Log positions are the same order for all members, so no search is needed. A record that was acknowledged as replicated,
or shown by a synchronous master or its follower, is the same bytes at the same place for ever, on every member.
"""

from dataclasses import dataclass, field

from services.commitlog.engine.open_log import OpenLog
from tests.crash.sim.model import expect

LOOK_SIZE_BYTES = 1 << 18
RECORD_SIZE_BYTES_MAX = 2_000
"""The bound for records that clients send here."""
PHYSICAL_OFFSET = slice(28, 36)
"""The bytes of a record with its physical offset: docs/formats/record.md."""


@dataclass(slots=True)
class Promises:
    """The promises of a run. Offsets are physical."""

    is_synchronous: bool
    sent: set[bytes] = field(default_factory=set)
    replicated: dict[int, bytes] = field(default_factory=dict)
    """Bodies of messages that were acknowledged as replicated."""
    shown: dict[int, bytes] = field(default_factory=dict)
    """Whole records that a reader saw."""
    written: dict[str, list[bytes]] = field(default_factory=dict)
    """The batches of each writer that were answered as replicated, in its order."""
    done: set[bytes] = field(default_factory=set)
    """Marks of messages that a service answered as done."""
    topics: dict[str, int | None] = field(default_factory=dict)
    """Queues of topics as they were answered, 0 for a deleted topic, None where the last answer is missing."""
    _shown_ends: dict[str, int] = field(default_factory=dict)
    answered: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """By epoch, bodies of messages that were acknowledged with any durability."""
    _acknowledged_by: dict[int, str] = field(default_factory=dict)

    def stored(self, epoch: int, bodies: list[bytes], offsets: list[int]) -> None:
        """Record that a leader answered a batch as stored."""
        self.answered.setdefault(epoch, {}).update(zip(offsets, bodies, strict=True))

    def handed_over(self, name: str, epoch: int, data: bytes) -> None:
        """Check the named next leader of an epoch: it has all messages acknowledged with any durability."""
        for offset, body in self.answered.pop(epoch, {}).items():
            is_there = data.find(body, offset, offset + RECORD_SIZE_BYTES_MAX) >= 0
            expect(is_there, f"{body[:30]!r} was acknowledged at {offset} before {name} took over, and it has it not")

    def acknowledged(self, name: str, epoch: int, bodies: list[bytes], offsets: list[int]) -> None:
        """Record that a leader answered a batch as replicated."""
        first = self._acknowledged_by.setdefault(epoch, name)
        expect(first == name, f"both {first} and {name} acknowledge in epoch {epoch}")
        for body, offset in zip(bodies, offsets, strict=True):
            before = self.replicated.setdefault(offset, body)
            expect(before == body, f"{before[:30]!r} and {body[:30]!r} are both acknowledged at {offset}")

    def look(self, run: str, log: OpenLog) -> None:
        """Read all that a log shows and did not show in this run of its process."""
        if not self.is_synchronous:
            return
        end, before = log.marks.visible.value, self._shown_ends.get(run, 0)
        expect(end >= before, f"{run} shows {end}, and showed {before} before")
        self._shown_ends[run] = end
        for offset, content in contents(log, before).items():
            known = self.shown.setdefault(offset, content)
            expect(known == content, f"{run} shows other bytes at {offset} than were shown before")

    def check(self, log: OpenLog) -> None:
        """Compare all promises with a log that has everything."""
        found = contents(log, log.chain.min_physical_offset)
        first = log.chain.min_physical_offset
        for offset, body in self.replicated.items():
            if offset >= first:
                expect(body in found.get(offset, b""), f"{body[:30]!r}, replicated at {offset}, is not there")
        for offset, content in self.shown.items():
            if offset >= first:
                expect(found.get(offset) == content, f"what was shown at {offset} is not there")
        whole = b"".join(found.values())
        for body in self.sent:
            expect(whole.count(body) <= 1, f"{body[:30]!r} is there {whole.count(body)} times")
        for mark in self.done:
            expect(mark in whole, f"{mark!r} was answered as done, and is not there")
        for name, bodies in self.written.items():
            at = [whole.find(body) for body in bodies]
            expect(-1 not in at and at == sorted(at), f"the batches of {name} are not all there, in order")

    def check_topics(self, log: OpenLog) -> None:
        """Compare the topics of a log with the answers."""
        for name, queue_count in self.topics.items():
            topic = log.topics.find(name)
            found = 0 if topic is None else topic.write_queue_count
            if queue_count is not None:
                expect(
                    found == queue_count, f"topic {name} has {found} queues, and {queue_count} were answered as done"
                )


def contents(log: OpenLog, start: int) -> dict[int, bytes]:
    """Return the records that a log shows from an offset on, by their own offsets."""
    found: dict[int, bytes] = {}
    first, end = max(start, log.chain.min_physical_offset), log.marks.visible.value
    for stretch in log.reader.stretches(first, end, size_bytes_max=LOOK_SIZE_BYTES):
        run = stretch.run
        for position, size in zip(run.positions, run.sizes, strict=True):
            content = bytes(run.buffer[position : position + size])
            found[int.from_bytes(content[PHYSICAL_OFFSET], "big")] = content
    return found
