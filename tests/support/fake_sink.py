# SPDX-License-Identifier: Apache-2.0
"""FakeSink: the front of a FakeLog, which accepts or refuses append requests as the CommitLog would."""

from collections.abc import Awaitable, Callable, Sequence

from google.protobuf.json_format import MessageToDict
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendStateRequest
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK

from libs.formats.records import delay_level
from libs.formats.records.host import Host
from libs.formats.records.record import Record
from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import STATE_QUEUE_ID, STATE_TOPIC
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.log.source import Appended, StateBatch
from services.indexer.errors import AppendRefused
from services.indexer.rpc.log.appender import append_request
from tests.support import reference
from tests.support.fake_log import FakeLog, properties_text


class FakeSink:
    """A LogSink that appends to a FakeLog, and keeps the requests."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.is_on_disk = True
        self.refusals: dict[str, str] = {}
        """Reason by topic."""
        self.queue_count = 1_000
        self.message_count_max = 10_000
        self.on_answer: Callable[[], Awaitable[None]] | None = None
        """Awaited before a batch that was appended is answered."""
        self.batches: list[list[AppendMessage]] = []
        self.shared: list[StateRecord] = []
        """The records that were shared, copies included, oldest first."""
        self.is_leaderless = False
        self.on_append: Callable[[], Awaitable[None]] | None = None
        """Awaited before a batch is appended."""

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of all appended messages, in order."""
        return [message.body for batch in self.batches for message in batch]

    async def append(self, batch: list[Record], *, names_queue: bool, state: StateBatch | None = None) -> Appended:
        """See LogSink."""
        if not self.log.is_up:
            raise DependencyUnavailable("commitlog", "down")
        decoded = append_request(batch, names_queue=names_queue, state=state)
        assert decoded.durability == DURABILITY_LOCAL_DISK
        assert not MessageToDict(decoded).keys() - {"messages", "durability", "writer"}
        if isinstance(decoded, AppendStateRequest) and self._is_stored(decoded):
            return Appended(self.log.end_physical_offset, is_on_disk=self.is_on_disk)
        if len(decoded.messages) > self.message_count_max:
            raise AppendRefused("BATCH_TOO_LARGE", message_index=-1, text="too large")
        for index, message in enumerate(decoded.messages):
            reason = self.refusals.get(message.topic, "")
            if message.HasField("queue_id") and message.queue_id >= self.queue_count:
                reason = "QUEUE_OUT_OF_RANGE"
            if reason:
                raise AppendRefused(reason, message_index=index, text=reason)
        if self.on_append is not None:
            await self.on_append()
        for message in decoded.messages:
            if message.topic == STATE_TOPIC:
                self.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=message.body)
                continue
            self.log.append(
                message.topic,
                message.queue_id,
                body=message.body,
                properties=message.property_string,
                flag=message.flag,
                sys_flag=message.sys_flag,
                born_time_ms=message.born_time_ms,
                born_host=Host(message.born_host.address, message.born_host.port),
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
        self.batches.append([message for message in decoded.messages if message.topic != STATE_TOPIC])
        if self.on_answer is not None:
            await self.on_answer()
        return Appended(self.log.end_physical_offset, is_on_disk=self.is_on_disk)

    async def share(self, records: Sequence[StateRecord]) -> Appended:
        """See LogSink."""
        if not self.log.is_up or self.is_leaderless:
            raise DependencyUnavailable("commitlog", "nobody leads")
        for record in records:
            self.shared.append(record)
            self.log.append(STATE_TOPIC, STATE_QUEUE_ID, body=record.encode())
        return Appended(self.log.end_physical_offset, is_on_disk=self.is_on_disk)

    def _is_stored(self, request: AppendStateRequest) -> bool:
        """Whether the log has this batch of a writer, decided by number and content as in the CommitLog."""
        name, content = (request.writer.id, request.writer.sequence), request.SerializeToString()
        known = self.log.writers.get(name)
        if known is None:
            assert request.writer.sequence == sum(writer == name[0] for writer, _ in self.log.writers)
        elif known != content:
            raise DependencyUnavailable("commitlog", "WRITER_CONTENT_DIFFERS")
        self.log.writers[name] = content
        return known is not None


def delay(
    log: FakeLog, body: bytes, *, level: int = 1, topic: str = "T", queue_id: int = 0, **fields: object
) -> Record:
    """Append a delayed message to the log as the CommitLog stores it."""
    raw = properties_text(tag="red", keys="a b", DELAY=str(level))
    raw = reference.delayed_properties(raw, topic=topic.encode(), queue_id=queue_id)
    values = {"properties": raw, **fields}
    return log.append(delay_level.SCHEDULE_TOPIC, level - 1, body=body, **values)  # type: ignore[arg-type]
