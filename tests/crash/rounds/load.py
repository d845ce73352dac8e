# SPDX-License-Identifier: Apache-2.0
"""Load: clients of three logs that append at mixed durabilities, under all faults, and record the answers.

Callers use the plain call without any retry, at the log that they take for the leader, so that it is known which log
acknowledged each batch. The producer and the writers are the Python client's, which finds the leader by its list of
addresses; the producer never repeats. A writer of REPLICATED batches sends each until it is stored, and must come to an
end once all is healed. A writer of less begins again under another name when a failover has taken a batch back.
Invariants: a message is in the history before its first byte is sent. Callers: a single event loop.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Sequence

import grpc
import grpc.aio
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1 import message_pb2
from reput_client import (
    Durability,
    NewMessage,
    Options,
    OutcomeUnknownError,
    ProducerOptions,
    ReputError,
    RetryPolicy,
    SendResult,
)
from reput_client.aio import AsyncClient
from reput_client.aio.writer import AsyncWriter

from tests.crash.history import KEYS, TAGS, UNIQUE_KEY, Batch, Sent
from tests.crash.rounds.machine import Machine
from tests.crash.rounds.promises import Promises
from tests.crash.rounds.trio import Trio
from tests.crash.workload import NO_TRACE_REASONS as STORE_REASONS
from tests.crash.workload import reason_of_error
from tests.support.patience import LIMIT_S
from tests.support.service_process import Refusal

TOPICS = ("orders", "payments", "audit")
QUEUE_COUNT = 2
KEY_COUNT = 40
CALL_TIMEOUT_S = 4.0
CLIENT_TIMEOUT_S = 4.0
NO_TRACE_REASONS = STORE_REASONS | {"NOT_LEADER", "NOT_ENOUGH_REPLICAS"}
"""Reasons of refusals that say that nothing was appended."""
LOST_BATCH_REASONS = frozenset({"WRITER_SEQUENCE_GAP", "WRITER_FORGOTTEN"})
"""Reasons for a writer of less than REPLICATED when a failover took a batch back, the second when it took all."""
DURABILITIES = (
    *(message_pb2.DURABILITY_REPLICATED, message_pb2.DURABILITY_REPLICATED, message_pb2.DURABILITY_UNSPECIFIED),
    *(message_pb2.DURABILITY_LOCAL_DISK, message_pb2.DURABILITY_LOCAL_DISK, message_pb2.DURABILITY_MEMORY),
)
PAUSES_S = (0.0, 0.005, 0.02, 0.1)


class Load:
    """The clients of a round, see the module. A single round's clients run at a time."""

    def __init__(self, trio: Trio, promises: Promises, chance: random.Random) -> None:
        self._trio, self._promises, self._chance = trio, promises, chance
        self._numbers, self._callers = itertools.count(1), itertools.count(1)
        self._over = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load for the length of a block. Raises an error that a client should not have met, and TimeoutError."""
        self._over.clear()
        options = Options(commitlog=self._trio.targets, token=self._trio.token, timeout_s=CLIENT_TIMEOUT_S)
        async with AsyncClient(options, RetryPolicy(retries=10_000, delay_max_s=0.3)) as client:
            tasks = [asyncio.create_task(self._call()) for _ in range(3)]
            tasks.append(asyncio.create_task(self._produce(client)))
            tasks += [asyncio.create_task(self._write(client, each)) for each in _WRITER_DURABILITIES]
            try:
                yield
                self._over.set()
                async with asyncio.timeout(LIMIT_S):
                    await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _call(self) -> None:
        """Send batches in turn, each once, to the leader or to any log."""
        machines = list(self._trio.machines.values())
        machine, caller, sequence = self._chance.choice(machines), next(self._callers), itertools.count()
        while not self._over.is_set():
            batch = self._batch(caller, sequence, self._chance.choice(DURABILITIES))
            try:
                result = await self._append(machine, batch)
            except grpc.aio.AioRpcError as error:
                if reason_of_error(error) in NO_TRACE_REASONS:
                    self._promises.refused(batch)
                else:  # unknown, and it may come behind the next batch
                    caller, sequence = next(self._callers), itertools.count()
                machine = self._next_machine(machines, error)
                await asyncio.sleep(0.03)
            else:
                assert result.end_physical_offset > result.start_physical_offset
            await asyncio.sleep(self._chance.choice(PAUSES_S))

    async def _append(self, machine: Machine, batch: Batch) -> append_pb.AppendResult:
        epoch_min = self._promises.epoch_by_log.get(machine.name, 0)
        request = append_pb.AppendRequest(
            messages=[sent.to_request() for sent in batch.messages], durability=batch.durability
        )
        result = (await machine.calls.append.Append(request, timeout=CALL_TIMEOUT_S)).result
        self._promises.acknowledged(batch, result, machine.name, epoch_min)
        return result

    def _next_machine(self, machines: Sequence[Machine], error: grpc.aio.AioRpcError) -> Machine:
        """Return the machine that a refusal names as the leader, else any machine."""
        leader = Refusal(error).metadata.get("leader", "") if reason_of_error(error) == "NOT_LEADER" else ""
        named = [machine for machine in machines if machine.target == leader]
        return self._chance.choice(named or list(machines))

    async def _produce(self, client: AsyncClient) -> None:
        """Single messages by the client's producer, some at once, none twice."""
        caller, sequence = next(self._callers), itertools.count()
        durability = Durability(self._chance.choice(DURABILITIES[:-1]))
        options = ProducerOptions(durability=durability, retry=RetryPolicy(retries=0), unique_ids=False, linger_ms=1)
        producer = client.producer(options)
        while not self._over.is_set():
            count = self._chance.choice((1, 3, 8))
            batches = [self._batch(caller, sequence, durability, count=1) for _ in range(count)]
            futures = [await producer.send_message(_for_client(batch.messages[0])) for batch in batches]
            await asyncio.wait(futures)
            heard = [self._heard_of(batch, future) for batch, future in zip(batches, futures, strict=True)]
            if not all(heard):
                caller, sequence = next(self._callers), itertools.count()
                await asyncio.sleep(0.05)
            await asyncio.sleep(self._chance.choice(PAUSES_S))
        await producer.close()

    def _heard_of(self, batch: Batch, future: "asyncio.Future[SendResult]") -> bool:
        """Take note of a producer's outcome; False if there was none."""
        error = future.exception()
        if error is None:
            self._promises.written(batch, future.result().durability)
            return True
        if not isinstance(error, ReputError):
            raise error
        if error.reason in NO_TRACE_REASONS and not isinstance(error, OutcomeUnknownError):
            self._promises.refused(batch)
            return True
        return False

    async def _write(self, client: AsyncClient, durability: Durability) -> None:
        """Send numbered batches by the client's writer, under another name when a failover took a batch back."""
        while not self._over.is_set():
            try:
                async with client.writer(f"writer-{next(self._callers)}", durability=durability) as writer:
                    await self._write_as(writer, durability)
            except ReputError as error:
                if durability is Durability.REPLICATED or error.reason not in LOST_BATCH_REASONS:
                    raise
                self._promises.counts["writers that began again, because a failover took a batch back"] += 1

    async def _write_as(self, writer: AsyncWriter, durability: Durability) -> None:
        """Some batches before each flush."""
        caller, sequence = next(self._callers), itertools.count()
        while not self._over.is_set():
            batches = [self._batch(caller, sequence, durability) for _ in range(self._chance.choice((1, 2, 4)))]
            await self._flush(writer, batches)
            for batch in batches:
                self._promises.written(batch, durability)
            await asyncio.sleep(self._chance.choice(PAUSES_S))

    async def _flush(self, writer: AsyncWriter, batches: Sequence[Batch]) -> None:
        for batch in batches:
            await writer.append([_for_client(sent) for sent in batch.messages])
        await writer.flush()

    def _batch(self, caller: int, sequence: "itertools.count[int]", durability: int, count: int = 0) -> Batch:
        chance = self._chance
        size_max = chance.choice((100, 1_000, 1_000, 10_000))
        messages = [
            self._message(caller, next(sequence), size_max) for _ in range(count or chance.choice((1, 1, 2, 5)))
        ]
        batch = Batch(messages, message_pb2.Durability.ValueType(durability))
        self._promises.sends(batch)
        return batch

    def _message(self, caller: int, sequence: int, size_max: int) -> Sent:
        chance, number = self._chance, next(self._numbers)
        properties = {UNIQUE_KEY: f"u{number}"}
        if chance.random() < 0.5:
            properties[KEYS] = f"key-{chance.randrange(KEY_COUNT)}"
        if chance.random() < 0.5:
            properties[TAGS] = chance.choice(("red", "green", "blue"))
        return Sent(
            number=number,
            caller=caller,
            sequence=sequence,
            topic=chance.choice(TOPICS),
            queue_id=chance.choice((-1, *range(QUEUE_COUNT))),
            body_size_bytes=chance.randrange(size_max),
            properties=properties,
            born_time_ms=1_700_000_000_000 + number,
            names_host=False,
        )


_WRITER_DURABILITIES = (Durability.REPLICATED, Durability.REPLICATED, Durability.LOCAL_DISK)


def _for_client(sent: Sent) -> NewMessage:
    """The message as the Python client takes it."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in sent.properties.items())
    return NewMessage(
        sent.topic,
        sent.body,
        queue_id=sent.queue_id if sent.queue_id >= 0 else None,
        flag=sent.number,
        born_time_ms=sent.born_time_ms,
        property_string=text.encode(),
    )
