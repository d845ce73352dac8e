# SPDX-License-Identifier: Apache-2.0
"""LogAppender: the CommitLog's AppendState as the engine's LogSink, over the channel that the log is read with.

Records are sent to the leader; if the own log is a follower, it returns the leader's address. The call returns once
the batch is as durable as the log promises: a batch of shared state has a writer and a number, and is sent again until
then. After a failure the next number is unknown, so another writer begins.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace
from reput.commitlog.v1 import append_service_pb2 as messages
from reput.commitlog.v1 import append_service_pb2_grpc

from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import STATE_QUEUE_ID, STATE_TOPIC
from libs.machine.workers import workers
from libs.requests.durable import until_durable
from libs.requests.errors import PeerError
from libs.runtime.peer.calls import by_reason
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from services.indexer.errors import AppendRefused
from services.indexer.rpc.log.errors import ERRORS, SERVICE

_Appends = append_service_pb2_grpc.AppendServiceStub
REFUSALS = ("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED")
TIMEOUT_S = 30.0
"""Longer than the log waits for its disk."""


class LogAppender:
    """The LogSink over gRPC. `connect` opens a channel to another log."""

    def __init__(self, log: Connection, connect: Callable[[str], Connection]) -> None:
        patient = replace(log, timeout_s=TIMEOUT_S)
        self._leader = LeaderClient(SERVICE, [patient], lambda target: replace(connect(target), timeout_s=TIMEOUT_S))
        self._writer = _new_writer()

    async def share(self, records: Sequence[StateRecord]) -> None:
        """See LogSink."""
        writer, self._writer = self._writer, _new_writer()
        request = messages.AppendStateRequest(messages=[_state_message(one) for one in records], writer=writer)

        async def append() -> messages.AppendResult:
            result: messages.AppendResult = (await self._leader.call(_Appends, "AppendState", request)).result
            return result

        with by_reason(ERRORS), _refusals():
            await until_durable(append, is_repeatable=True)
        writer.sequence += 1
        self._writer = writer

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
        raise AppendRefused(f"{error.reason}: {error.text}") from error


def _new_writer() -> messages.Writer:
    """Return a new, unique writer, before its first batch."""
    return messages.Writer(id=f"{STATE_TOPIC}_{workers().chance().getrandbits(64):016x}")


def _state_message(record: StateRecord) -> messages.AppendMessage:
    return messages.AppendMessage(topic=STATE_TOPIC, queue_id=STATE_QUEUE_ID, body=record.encode())
