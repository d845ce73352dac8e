# SPDX-License-Identifier: Apache-2.0
"""FakeSink: the front of a FakeLog, which takes append requests or refuses them as the CommitLog would."""

from collections.abc import Awaitable, Callable

from google.protobuf.json_format import MessageToDict
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import DURABILITY_LOCAL_DISK

from libs.formats.records import delay_level
from libs.formats.records.host import Host
from libs.formats.records.record import Record
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.log.source import Appended
from services.indexer.errors import AppendRefused
from services.indexer.rpc.log.appender import append_request
from tests.support import reference
from tests.support.fake_log import FakeLog, properties_text


class FakeSink:
    """LogSink that appends to a FakeLog, and keeps what it was asked for."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.is_on_disk = True
        self.refusals: dict[str, str] = {}
        """Reason by topic."""
        self.queue_count = 1_000
        self.message_count_max = 10_000
        self.batches: list[list[AppendMessage]] = []
        self.on_append: Callable[[], Awaitable[None]] | None = None
        """Awaited before a batch is appended."""

    @property
    def bodies(self) -> list[bytes]:
        """Of all messages that were taken, in order."""
        return [message.body for batch in self.batches for message in batch]

    async def append(self, batch: list[Record], *, names_queue: bool) -> Appended:
        """See LogSink."""
        if not self.log.is_up:
            raise DependencyUnavailable("commitlog", "down")
        decoded = append_request(batch, names_queue=names_queue)
        assert decoded.durability == DURABILITY_LOCAL_DISK
        assert not MessageToDict(decoded).keys() - {"messages", "durability"}
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
        self.batches.append(list(decoded.messages))
        return Appended(self.log.end_physical_offset, is_on_disk=self.is_on_disk)


def delay(
    log: FakeLog, body: bytes, *, level: int = 1, topic: str = "T", queue_id: int = 0, **fields: object
) -> Record:
    """Append a delayed message to the log as the CommitLog stores it."""
    raw = properties_text(tag="red", keys="a b", DELAY=str(level))
    raw = reference.delayed_properties(raw, topic=topic.encode(), queue_id=queue_id)
    values = {"properties": raw, **fields}
    return log.append(delay_level.SCHEDULE_TOPIC, level - 1, body=body, **values)  # type: ignore[arg-type]
