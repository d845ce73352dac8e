# SPDX-License-Identifier: Apache-2.0
"""LogAppender: the CommitLog's Append as the engine's LogSink, over the channel that the log is read with.

Shared state is sent to the leader; if the own log is a follower, it returns the leader's address. The call returns once
the batch is as durable as the log promises: a batch of shared state has a writer and a number, and is sent again until
then. After a failure the next number is unknown, so another writer begins.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from reput.commitlog.v1 import append_service_pb2 as messages
from reput.commitlog.v1 import append_service_pb2_grpc
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK, Host

from libs.formats.records.record import Record, born_time_within
from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import STATE_QUEUE_ID, STATE_TOPIC
from libs.machine.workers import workers
from libs.requests.durable import until_durable
from libs.requests.errors import PeerError
from libs.runtime.peer.calls import PeerClient, by_reason
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from services.indexer.engine.log.source import Appended, StateBatch
from services.indexer.errors import AppendRefused
from services.indexer.rpc.log.errors import ERRORS, SERVICE

_Appends = append_service_pb2_grpc.AppendServiceStub
REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED")
TIMEOUT_S = 30.0
"""Longer than the log waits for its disk: after a timeout the messages are appended twice."""

_MESSAGE = re.compile(r"messages\[([0-9]{1,9})\]", re.ASCII)


class LogAppender:
    """The LogSink over gRPC. `connect` opens a channel to another log."""

    def __init__(self, log: Connection, connect: Callable[[str], Connection]) -> None:
        patient = replace(log, timeout_s=TIMEOUT_S)
        self._log = PeerClient(SERVICE, patient)
        self._leader = LeaderClient(SERVICE, [patient], lambda target: replace(connect(target), timeout_s=TIMEOUT_S))
        self._stub: Any = _Appends(log.channel)
        self._writer = _new_writer()

    async def append(self, batch: list[Record], *, names_queue: bool, state: StateBatch | None = None) -> Appended:
        """See LogSink."""
        request = append_request(batch, names_queue=names_queue, state=state)
        call = self._stub.Append if state is None else self._stub.AppendState
        with by_reason(ERRORS), _refusals():
            response = await self._log.call(call, request)
        return _appended(response.result)

    async def share(self, records: Sequence[StateRecord]) -> Appended:
        """See LogSink."""
        writer, self._writer = self._writer, _new_writer()
        request = messages.AppendStateRequest(messages=[_state_message(one) for one in records], writer=writer)

        async def append() -> messages.AppendResult:
            result: messages.AppendResult = (await self._leader.call(_Appends, "AppendState", request)).result
            return result

        with by_reason(ERRORS), _refusals():
            result = await until_durable(append, is_repeatable=True)
        writer.sequence += 1
        self._writer = writer
        return _appended(result)

    async def close(self) -> None:
        """Close the channel to the leader."""
        await self._leader.close()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn refusals of the log into AppendRefused."""
    try:
        yield
    except PeerError as error:
        if error.code not in REFUSALS or not error.reason:
            raise
        index = _MESSAGE.match(error.metadata["field"])
        text = f"{error.reason}: {error.text}"
        raise AppendRefused(error.reason, message_index=int(index[1]) if index else -1, text=text) from error


def _new_writer() -> messages.Writer:
    """Return a new, unique writer, before its first batch."""
    return messages.Writer(id=f"{STATE_TOPIC}_{workers().chance().getrandbits(64):016x}")


def _appended(result: messages.AppendResult) -> Appended:
    return Appended(result.end_physical_offset, is_on_disk=result.durability >= DURABILITY_LOCAL_DISK)


def _state_message(record: StateRecord) -> messages.AppendMessage:
    return messages.AppendMessage(topic=STATE_TOPIC, queue_id=STATE_QUEUE_ID, body=record.encode())


def append_request(
    batch: list[Record], *, names_queue: bool, state: StateBatch | None = None
) -> messages.AppendRequest | messages.AppendStateRequest:
    """Return the request, with local disk durability. Without queue ids the log chooses the queues."""
    found = [_message(record, names_queue=names_queue) for record in batch]
    if state is None:
        return messages.AppendRequest(messages=found, durability=DURABILITY_LOCAL_DISK)
    writer = messages.Writer(id=state.writer[0], sequence=state.writer[1])
    found.append(_state_message(state.record))
    return messages.AppendStateRequest(messages=found, durability=DURABILITY_LOCAL_DISK, writer=writer)


def _message(record: Record, *, names_queue: bool) -> messages.AppendMessage:
    return messages.AppendMessage(
        topic=record.topic,
        queue_id=record.queue_id if names_queue else None,
        body=record.body,
        property_string=record.properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_time_ms=born_time_within(record.born_time_ms),
        born_host=Host(address=record.born_host.address, port=record.born_host.port),
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )
