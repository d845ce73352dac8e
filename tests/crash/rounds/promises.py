# SPDX-License-Identifier: Apache-2.0
"""Promises: the answers to clients of three logs, the records they saw, and whether the final log agrees.

Positions are the same order for all members, so no search is needed. `tests.crash.check.settle` checks the promises of
any store: each acknowledged message is there once, at the place of its answer; a refused message is nowhere; a message
without an answer is there or not, for good. Copies add these promises:
- a message that was acknowledged as less than REPLICATED may be given up, but only by a newer epoch that began before
  it and that another log led, or the same log on a new disk; with MEMORY also when the power of its machine failed;
- in each epoch a single log acknowledges, and a single log says that it leads;
- with a synchronous master no record that any log or Indexer showed is taken back, and no log shows less than before.
A message that all three have when a round is over counts as REPLICATED from then on. Invariants: nothing here knows of
processes. Callers: a single event loop, while the load runs; `check` when all are in sync.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED, Durability, StoredMessage

from libs.formats.epoch import Epoch
from libs.formats.state.system_topics import is_system_topic
from tests.crash.check import settle
from tests.crash.history import Batch, History, Sent, State


@dataclass(frozen=True, slots=True)
class Told:
    """The log that acknowledged a message, the durability, and the newest epoch it was known to lead before."""

    leader: str
    epoch_min: int
    durability: int


@dataclass(slots=True)
class Promises:
    """The promises of a case, see the module."""

    is_synchronous: bool
    other_topics: Sequence[str] = ()
    """Topics of programs whose messages are in another history."""
    history: History = field(default_factory=History)
    wrong: list[str] = field(default_factory=list)
    """Faults that were noticed at once, in an answer or at a look."""
    counts: Counter[str] = field(default_factory=Counter)
    epoch_by_log: dict[str, int] = field(default_factory=dict)
    """The newest epoch in which each log was known to lead."""
    led_by: dict[int, str] = field(default_factory=dict)
    """The log that led in each epoch, as far as it is known."""
    _told: dict[int, Told] = field(default_factory=dict)
    _written: list[Batch] = field(default_factory=list)
    """Batches of writers that were acknowledged as REPLICATED; their places are unknown."""
    _lost_disk: set[str] = field(default_factory=set)
    _lost_power: set[str] = field(default_factory=set)
    """Logs to whose machines that happened since the last check."""
    _shown_ends: dict[str, int] = field(default_factory=dict)
    _entries: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """The message that an Indexer gave for a topic, queue and queue offset."""

    def sends(self, batch: Batch) -> None:
        """A batch is about to be sent."""
        self.history.send(batch)
        self.counts[f"batches sent as {_name(batch.durability)}"] += 1

    def acknowledged(self, batch: Batch, result: append_pb.AppendResult, leader: str, epoch_min: int) -> None:
        """Record a log's answer with the place and durability of a batch."""
        self.wrong += self.history.acknowledge(batch, result, weak_durability_max=0)
        for sent in batch.messages:
            self._told[sent.number] = Told(leader, epoch_min, result.durability)
        self._count(result.durability)

    def written(self, batch: Batch, durability: int) -> None:
        """A writer heard that a batch is stored; not where."""
        if durability == DURABILITY_REPLICATED:
            self._written.append(batch)
        self._count(durability)

    def refused(self, batch: Batch) -> None:
        """Record a log's answer that it stored nothing."""
        self.history.refuse(batch)
        self.counts["batches refused"] += 1

    def leads(self, name: str, epoch: int) -> None:
        """A log says that it takes appends in an epoch."""
        self.epoch_by_log[name] = max(epoch, self.epoch_by_log.get(name, 0))
        first = self.led_by.setdefault(epoch, name)
        if first != name:
            self.wrong.append(f"both {first} and {name} lead in epoch {epoch}")

    def shows(self, run: str, end_physical_offset: int) -> None:
        """A process of a log says up to where it shows the log."""
        before = self._shown_ends.get(run, 0)
        if self.is_synchronous and end_physical_offset < before:
            self.wrong.append(f"{run} shows the log up to {end_physical_offset}, and showed it up to {before} before")
        self._shown_ends[run] = max(end_physical_offset, before)

    def sees(self, reader: str, messages: Sequence[StoredMessage]) -> None:
        """A log or an Indexer gave these to a reader."""
        self.counts["messages read under load"] += len(messages)
        if not self.is_synchronous:
            return
        for message in self._known(messages):
            known = self.history.seen.setdefault(message.physical_offset, message.flag)
            if known != message.flag:
                self.wrong.append(f"{reader} shows {message.flag} at {message.physical_offset}; it was {known} before")
            entry = message.topic, message.queue_id, message.queue_offset
            if self._entries.setdefault(entry, message.flag) != message.flag:
                self.wrong.append(f"{reader} shows {message.flag} as {entry}; it was {self._entries[entry]} before")

    def loses_disk(self, name: str) -> None:
        """The machine of a log is about to lose its disk."""
        self._lost_disk.add(name)

    def loses_power(self, name: str) -> None:
        """The power of a log's machine is about to fail."""
        self._lost_power.add(name)

    def check(self, messages: Sequence[StoredMessage], epochs: Sequence[Epoch], end_physical_offset: int) -> list[str]:
        """Compare all promises with a log that all have, from its first byte on. Returns the faults."""
        messages = self._known(messages)
        found = {message.physical_offset: message.flag for message in messages}
        wrong = self.wrong + self._one_leader_each(found, epochs)
        wrong += self._forgive(found, epochs, end_physical_offset)
        wrong += settle(self.history, messages, min_physical_offset=0, end_physical_offset=end_physical_offset)
        wrong += [
            f"batch {[sent.number for sent in batch.messages]} of a writer was acknowledged as REPLICATED, and of "
            f"message {sent.number} nothing is there"
            for batch in self._written
            for sent in batch.messages
            if sent.state is not State.STORED
        ]
        wrong += self._check_entries(messages)
        self.counts["messages compared"] += len(messages)
        self._all_have_all()
        return wrong

    def _known(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Return the messages without other programs' messages, and without the store's own records."""
        return [one for one in messages if not is_system_topic(one.topic) and one.topic not in self.other_topics]

    def _count(self, durability: int) -> None:
        self.counts[f"batches acknowledged as {_name(durability)}"] += 1

    def _one_leader_each(self, found: dict[int, int], epochs: Sequence[Epoch]) -> list[str]:
        """Check that all acknowledgements of an epoch's bytes come from a single log, its leader."""
        wrong = []
        for number, told in self._told.items():
            sent = self.history.messages[number]
            if found.get(sent.physical_offset) != number:
                continue
            epoch = _epoch_at(epochs, sent.physical_offset)
            first = self.led_by.setdefault(epoch, told.leader)
            if first != told.leader:
                wrong.append(f"message {number} of epoch {epoch} was acknowledged by {told.leader}; {first} led")
        return wrong

    def _forgive(self, found: dict[int, int], epochs: Sequence[Epoch], end: int) -> list[str]:
        """Settle missing messages that were not REPLICATED. Returns the messages that no epoch may give up."""
        wrong = []
        for sent in self._missing(found):
            told = self._told[sent.number]
            if told.durability >= DURABILITY_REPLICATED:
                continue  # settle complains
            if not self._may_be_lost(told, _epoch_at(epochs, sent.physical_offset)):
                wrong.append(
                    f"message {sent.number} was acknowledged at {sent.physical_offset} by {told.leader} as "
                    f"{_name(told.durability)}, in epoch {told.epoch_min} or later; it is not there, and no newer "
                    f"epoch of another log begins before it: {list(map(tuple, epochs))}, end {end}"
                )
            sent.state = State.GONE
            self.history.forgiven_count += 1
            self.counts[f"messages forgiven, of {_name(told.durability)}"] += 1
        return wrong

    def _may_be_lost(self, told: Told, epoch: int) -> bool:
        """Whether a message so acknowledged may be missing where another epoch's bytes are, or the log has ended."""
        lost = self._lost_disk if told.durability >= DURABILITY_LOCAL_DISK else self._lost_disk | self._lost_power
        leaders = {self.led_by.get(number, "") for number in range(told.epoch_min + 1, epoch + 1)}
        return told.leader in lost or bool(leaders - {told.leader})

    def _missing(self, found: dict[int, int]) -> Iterable[Sent]:
        return [
            sent
            for sent in self.history.stored()
            if sent.number in self._told and found.get(sent.physical_offset) != sent.number
        ]

    def _check_entries(self, messages: Sequence[StoredMessage]) -> list[str]:
        """Check that the messages that Indexers gave are the log's messages under these numbers."""
        stored = {(one.topic, one.queue_id, one.queue_offset): one.flag for one in messages}
        wrong = [
            f"{entry} was shown as message {flag}; it is {stored.get(entry)}"
            for entry, flag in self._entries.items()
            if stored.get(entry) != flag
        ]
        self._entries.clear()
        return wrong

    def _all_have_all(self) -> None:
        """Raise all remaining messages to REPLICATED: they are on all disks, and nothing may take them from there."""
        self._lost_disk.clear()
        self._lost_power.clear()
        for number, told in self._told.items():
            self._told[number] = Told(told.leader, told.epoch_min, DURABILITY_REPLICATED)


def _epoch_at(epochs: Sequence[Epoch], physical_offset: int) -> int:
    """The epoch whose leader wrote the byte there: the last epoch that begins at or before it."""
    return max((epoch.number for epoch in epochs if epoch.start_physical_offset <= physical_offset), default=0)


def _name(durability: int) -> str:
    return Durability.Name(Durability.ValueType(durability)).removeprefix("DURABILITY_")
