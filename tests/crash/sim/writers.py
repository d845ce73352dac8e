# SPDX-License-Identifier: Apache-2.0
"""Clients of a simulation that name themselves as writers, so that a batch may be sent again and is stored once.

A client keeps its batches by their numbers. It sends a batch with an unknown outcome again as it was. It makes a batch
that a fault took from the log anew, under the same number. Checks: the log never stores a batch twice, never takes a
lost batch for stored, forgets no sooner than it may, and keeps each batch as a whole or not at all.
"""

from dataclasses import dataclass, field

from reput.commitlog.v1 import append_service_pb2 as pb

from libs.requests.errors import ServiceError
from libs.segments.errors import StoreFull
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.errors import WriterContentDiffers, WriterForgotten, WriterSequenceGap
from tests.crash.sim.model import Broken, Message, Model, expect


@dataclass(slots=True)
class SentBatch:
    """A batch as it was sent."""

    messages: list[Message]
    durability: int
    was_sent: bool = False

    @property
    def start_physical_offset(self) -> int:
        """Its physical offset, -1 as long as it is unknown."""
        return self.messages[0].physical_offset

    def is_lost(self, model: Model) -> bool:
        """Whether a restarted log lacks it, or a part of it."""
        return any(message.number in model.lost for message in self.messages)

    def is_alive(self, model: Model) -> bool:
        """Whether the log is known to have it."""
        return self.start_physical_offset != -1 and not self.is_lost(model)


@dataclass(slots=True)
class WriterClient:
    """A writer id with its batches by number."""

    name: str
    batches: list[SentBatch] = field(default_factory=list)

    def writer(self, sequence: int) -> pb.Writer:
        """The writer in a request."""
        return pb.Writer(id=self.name, sequence=sequence)


class Writers:
    """All clients of a world, also clients whose id is no longer used."""

    def __init__(self, model: Model, batch_count_max: int) -> None:
        self._model = model
        self._batch_count_max = batch_count_max
        self._clients: list[WriterClient] = []

    def client(self, name: str) -> WriterClient:
        """The client that uses a name now, with as many primes as it gave up ids."""
        found = [one for one in self._clients if one.name.rstrip("'") == name]
        return found[-1] if found else self._new(name)

    def stored(self, client: WriterClient, sequence: int, batch: AppendedBatch) -> None:
        """The log answered that it has a batch."""
        sent = client.batches[sequence]
        known, start = sent.start_physical_offset, batch.start_physical_offset
        expect(known in (-1, start), f"batch {sequence} of {client.name} is at {known} and at {start}")
        if not batch.is_repeated:
            places = (memoryview(column).cast("q") for column in (batch.physical_offsets, batch.queue_offsets))
            self._model.place(sent.messages, *places)

    def refused(self, client: WriterClient, sequence: int, error: ServiceError | StoreFull, *, is_first: bool) -> None:
        """The log did not take a batch. `is_first`: it was not sent before, or at the same time."""
        if sequence >= len(client.batches):
            return  # the other of two that were sent at once has heard it before
        batch = client.batches[sequence]
        if isinstance(error, WriterContentDiffers):
            raise Broken(f"{error}, and it is the same or was lost")
        if isinstance(error, WriterSequenceGap):
            self._drop(client, error.expected)
        elif isinstance(error, WriterForgotten):
            text = f"batch {sequence} of {client.name} is forgotten too soon"
            expect(any(self.may_be_forgotten(client, number) for number in (sequence, sequence - 1)), text)
            if not batch.is_alive(self._model):
                self._drop(client, sequence)
            self._new(client.name + "'")
        elif is_first and batch.start_physical_offset == -1:
            self._drop(client, sequence)

    def may_be_forgotten(self, client: WriterClient, sequence: int) -> bool:
        """Whether the log need not remember a batch: it has lost it, or has enough newer batches."""
        if sequence < 0:
            return False
        batch = client.batches[sequence]
        newer_count = sum(
            one.start_physical_offset > batch.start_physical_offset or one.start_physical_offset == -1
            for other in self._clients
            for one in other.batches
        )
        return not batch.is_alive(self._model) or newer_count >= self._batch_count_max

    def check_wholes(self) -> None:
        """After a start: no batch is there in parts."""
        for client in self._clients:
            for sequence, batch in enumerate(client.batches):
                lost = [message.number in self._model.lost for message in batch.messages]
                expect(all(lost) or not any(lost), f"of batch {sequence} of {client.name} these are lost: {lost}")

    def _new(self, name: str) -> WriterClient:
        self._clients.append(WriterClient(name))
        return self._clients[-1]

    def _drop(self, client: WriterClient, sequence: int) -> None:
        """The log has nothing of this writer from this number on."""
        for number, batch in enumerate(client.batches[sequence:], start=sequence):
            expect(not batch.is_alive(self._model), f"batch {number} of {client.name} is in the log, which denies it")
            sent, lost = self._model.sent, self._model.lost
            self._model.refuse([one for one in batch.messages if one.number in sent and one.number not in lost])
        del client.batches[sequence:]
