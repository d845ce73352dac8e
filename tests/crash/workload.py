# SPDX-License-Identifier: Apache-2.0
"""Workload: concurrent callers and streams against a running store, which record their messages and the answers.

Several topics and queues, tags, keys, sizes from nothing to a good part of a segment, batches, both durabilities, a few
requests that must be refused, and readers that pull and commit. It goes on until it is told to stop or there is no
answer. Invariants: a message is in the history before its first byte is sent; any end of a call without an answer
leaves its messages open. Callers: a single event loop; raw gRPC, without any retry.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import deque
from dataclasses import dataclass, field

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.indexer.v1 import consumer_offset_service_pb2 as offset_pb
from reput.indexer.v1 import queue_service_pb2 as queue_pb

from tests.crash.history import DELAY, KEYS, LOCAL_DISK, MEMORY, TAGS, UNIQUE_KEY, UNSPECIFIED, Batch, History, Sent
from tests.crash.live_store import CommitLogStubs, IndexerStubs

QUEUE_COUNT = 2
TOPIC_COUNT = 4
KEY_COUNT = 40
STREAM_WINDOW = 48
StreamCall = grpc.aio.StreamStreamCall[append_pb.AppendStreamRequest, append_pb.AppendStreamResponse]
END_TIMEOUT_S = 2.0
GROUP = "readers"
STATUS_KEY = "grpc-status-details-bin"
NO_TRACE_REASONS = frozenset(
    (
        *("BATCH_TOO_LARGE", "MESSAGE_TOO_LARGE", "QUEUE_OUT_OF_RANGE", "STORE_FULL"),
        *("RECOVERING", "STOPPING", "WINDOW_FULL"),
    )
)
"""Reasons of refusals that say that nothing was appended."""


def reason_of(status: Status) -> str:
    """The reason in a refusal's details; empty if there is none."""
    infos = [detail for detail in status.details if detail.Is(ErrorInfo.DESCRIPTOR)]
    return ErrorInfo.FromString(infos[0].value).reason if infos else ""


def reason_of_error(error: grpc.aio.AioRpcError) -> str:
    """The reason of a failed call; empty if it did not come from a service."""
    details = dict(error.trailing_metadata() or ()).get(STATUS_KEY)
    return reason_of(Status.FromString(details)) if isinstance(details, bytes) else ""


@dataclass(slots=True)
class Outcomes:
    """The outcomes of a run of the workload. `wrong` are answers that break a promise by themselves."""

    refusal_reasons: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    batch_count: int = 0


class Workload:
    """Writers and readers of a store. `weak_durability_max` is the highest durability that the fault may break."""

    def __init__(
        self,
        history: History,
        chance: random.Random,
        *,
        segment_size_bytes: int,
        weak_durability_max: int = 0,
        new_topic_chance: float = 0.003,
        delay_chance: float = 0.0,
        disk_chance: float = 0.25,
        pause_s: float = 0.0,
    ) -> None:
        self.outcomes = Outcomes()
        self.weak_durability_max = weak_durability_max
        """Answers from now on count as weak up to this durability."""
        self._history = history
        self._chance = chance
        self._segment_size_bytes = segment_size_bytes
        self._new_topic_chance = new_topic_chance
        self._delay_chance = delay_chance
        self._disk_chance = disk_chance
        self._pause_s = pause_s
        self._numbers = itertools.count(max(history.messages, default=0) + 1)
        self._callers = itertools.count(max((sent.caller for sent in history.messages.values()), default=0) + 1)
        self._topics = sorted({sent.topic for sent in history.messages.values()}) or ["orders"]
        self._over = asyncio.Event()
        self.was_turned_away = False
        """Whether the run ended because there were no answers any more."""
        self.was_full = asyncio.Event()
        """Set when a batch was refused because the disk is full."""

    def stop(self) -> None:
        """End the run, soon."""
        self._over.set()

    async def run(
        self,
        log: CommitLogStubs,
        index: IndexerStubs | None,
        *,
        callers: int = 2,
        streams: int = 2,
        duration_s: float = 3600.0,
        ends_with: asyncio.Future[int] | None = None,
    ) -> None:
        """Send and read until the time is over, `ends_with` is done, or all callers were turned away."""
        tasks = [asyncio.create_task(self._call(log)) for _ in range(callers)]
        tasks += [asyncio.create_task(self._stream(log)) for _ in range(streams)]
        readers = [asyncio.create_task(self._read(index))] if index is not None else []
        if ends_with is not None:
            ends_with.add_done_callback(lambda _: self._over.set())
        all_ended = asyncio.gather(*tasks, return_exceptions=True)
        all_ended.add_done_callback(lambda _: self._over.set())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._over.wait()
        self.was_turned_away = all_ended.done()
        self.stop()
        await asyncio.wait(tasks, timeout=END_TIMEOUT_S)
        for task in (*tasks, *readers):
            task.cancel()
        for result in await asyncio.gather(*tasks, *readers, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, grpc.aio.AioRpcError):
                raise result

    async def _call(self, log: CommitLogStubs) -> None:
        """Run a caller: a batch, its answer, the next batch."""
        caller, sequence = next(self._callers), itertools.count()
        while not self._over.is_set():
            batch = self._batch(caller, sequence)
            request = append_pb.AppendRequest(
                messages=[sent.to_request() for sent in batch.messages], durability=batch.durability
            )
            try:
                self._acknowledged(batch, (await log.append.Append(request)).result)
            except grpc.aio.AioRpcError as error:
                if not self.refused(batch, reason_of_error(error)):
                    return
                await asyncio.sleep(0.005)
            await asyncio.sleep(self._pause_s)

    async def _stream(self, log: CommitLogStubs) -> None:
        """Run a stream with several batches under way."""
        pending: deque[Batch] = deque()
        room = asyncio.Semaphore(STREAM_WINDOW)
        call = log.append.AppendStream()
        writing = asyncio.create_task(self._write(call, pending, room))
        try:
            while isinstance(response := await call.read(), append_pb.AppendStreamResponse):
                for outcome in response.outcomes:
                    batch = pending.popleft()
                    room.release()
                    if outcome.HasField("result"):
                        self._acknowledged(batch, outcome.result)
                    else:
                        self.refused(batch, reason_of(outcome.error))
        finally:
            writing.cancel()
            call.cancel()
            await asyncio.wait([writing])

    async def _write(self, call: StreamCall, pending: deque[Batch], room: asyncio.Semaphore) -> None:
        """The sending half of a stream."""
        caller, sequence = next(self._callers), itertools.count()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while not self._over.is_set():
                await room.acquire()
                batch = self._batch(caller, sequence)
                pending.append(batch)
                await call.write(
                    append_pb.AppendStreamRequest(
                        messages=[sent.to_request() for sent in batch.messages], durability=batch.durability
                    )
                )
                await asyncio.sleep(self._pause_s)
            await call.done_writing()

    async def _read(self, index: IndexerStubs) -> None:
        """Pull from queue after queue and commit the offsets of read messages."""
        positions: dict[tuple[str, int], int] = {}
        while not self._over.is_set():
            queue = self._chance.choice(self._topics), self._chance.randrange(QUEUE_COUNT)
            start = positions.get(queue, 0)
            pull = queue_pb.PullRequest(
                topic=queue[0], queue_id=queue[1], queue_offset=start, wait=Duration(nanos=10_000_000)
            )
            try:
                found = await index.queues.Pull(pull)
                self._history.see(found.messages)
                if found.next_queue_offset != start:
                    positions[queue] = found.next_queue_offset
                    await index.offsets.CommitConsumerOffset(_commit(queue, found.next_queue_offset))
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.01)

    def next_batch(self) -> Batch:
        """Return a batch of a caller of its own, recorded in the history, for a test that sends it by hand."""
        return self._batch(next(self._callers), itertools.count())

    def _batch(self, caller: int, sequence: itertools.count[int]) -> Batch:
        chance = self._chance
        size_max = chance.choice((100, 1_000, 1_000, 10_000, self._segment_size_bytes // 4))
        is_for_disk = chance.random() < self._disk_chance
        batch = Batch([], durability=LOCAL_DISK if is_for_disk else chance.choice((UNSPECIFIED, MEMORY, MEMORY)))
        topic = chance.choice(self._topics)
        if chance.random() < self._new_topic_chance or (len(self._topics) < TOPIC_COUNT and chance.random() < 0.05):
            topic = f"topic-{next(self._numbers)}"
            self._topics.append(topic)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            batch.messages.append(self._message(topic, caller, next(sequence), size_max))
            topic = chance.choice((topic, chance.choice(self._topics)))
        self._history.send(batch)
        self.outcomes.batch_count += 1
        return batch

    def _message(self, topic: str, caller: int, sequence: int, size_max: int) -> Sent:
        chance, number = self._chance, next(self._numbers)
        properties = {UNIQUE_KEY: f"u{number}"} if chance.random() < 0.8 else {}
        if chance.random() < 0.5:
            keys = {f"key-{chance.randrange(KEY_COUNT)}" for _ in range(chance.choice((1, 1, 3)))}
            properties[KEYS] = " ".join(sorted(keys))
        if chance.random() < 0.5:
            properties[TAGS] = chance.choice(("red", "green", "blue"))
        if chance.random() < 0.1:
            properties["text"] = "ä" * chance.randrange(1, 50)
        if chance.random() < self._delay_chance:
            properties[DELAY] = chance.choice(("1", "2"))
        size_bytes = chance.randrange(size_max)
        if chance.random() < 0.002:
            size_bytes = self._segment_size_bytes
        return Sent(
            number=number,
            caller=caller,
            sequence=sequence,
            topic=topic,
            queue_id=chance.choice((-1, *range(QUEUE_COUNT))) if chance.random() > 0.002 else QUEUE_COUNT,
            body_size_bytes=size_bytes,
            properties=properties,
            born_time_ms=1_700_000_000_000 + number,
        )

    def _acknowledged(self, batch: Batch, result: append_pb.AppendResult) -> None:
        self.outcomes.wrong += self._history.acknowledge(batch, result, weak_durability_max=self.weak_durability_max)

    def refused(self, batch: Batch, reason: str) -> bool:
        """Record a refusal. Returns False if the outcome of the batch is unknown."""
        self.outcomes.refusal_reasons[reason] = self.outcomes.refusal_reasons.get(reason, 0) + 1
        if reason not in NO_TRACE_REASONS:
            return False
        if reason == "STORE_FULL":
            self.was_full.set()
        self._history.refuse(batch)
        return True


def _commit(queue: tuple[str, int], queue_offset: int) -> offset_pb.CommitConsumerOffsetRequest:
    offset = offset_pb.ConsumerOffset(topic=queue[0], queue_id=queue[1], queue_offset=queue_offset)
    return offset_pb.CommitConsumerOffsetRequest(group=GROUP, offsets=[offset])
