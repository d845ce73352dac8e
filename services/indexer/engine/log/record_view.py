# SPDX-License-Identifier: Apache-2.0
"""RecordView: reads the fields that queries need from the raw bytes of a record, without decoding the rest.

The bytes come from the CommitLog, which checked them; lengths are checked again here, so that no byte outside of the
record is ever read. Every function raises RecordDamaged. Layout: docs/formats/commit_log.md.
"""

from typing import NamedTuple

from libs.formats.errors import FormatError
from libs.formats.records import properties, record
from libs.formats.records.record import RecordShape
from libs.requests.errors import RecordDamaged


class RecordView(NamedTuple):
    """A record in a buffer."""

    records: bytes | memoryview
    shape: RecordShape

    @property
    def store_time_ms(self) -> int:
        """Store time, in milliseconds since 1970."""
        return int(record.TIME.unpack_from(self.records, self.shape.store_time_at)[0])

    @property
    def physical_offset(self) -> int:
        """Offset of its first byte in the log, as the record itself states."""
        return int(record.LONG.unpack_from(self.records, self.shape.position + record.PHYSICAL_OFFSET_AT)[0])

    @property
    def queue_id(self) -> int:
        """Queue within the topic."""
        return int(record.INT.unpack_from(self.records, self.shape.position + record.QUEUE_ID_AT)[0])

    @property
    def queue_offset(self) -> int:
        """Entry number in the queue."""
        return int(record.LONG.unpack_from(self.records, self.shape.position + record.QUEUE_OFFSET_AT)[0])

    @property
    def is_batch(self) -> bool:
        """Whether it holds a batch of messages, as in RocketMQ's topics of type BatchCQ."""
        sys_flag: int = record.INT.unpack_from(self.records, self.shape.position + record.SYS_FLAG_AT)[0]
        return sys_flag & record.INNER_BATCH_FLAG != 0

    @property
    def store_host(self) -> bytes:
        """Address and port where it was stored, 8 or 20 bytes."""
        return bytes(self.records[self.shape.store_host_at : self.shape.reconsume_times_at])

    @property
    def topic(self) -> bytes:
        """Topic, UTF-8."""
        return bytes(self.records[self.shape.topic_at : self.shape.properties_size_at])

    @property
    def properties(self) -> bytes:
        """The properties as stored."""
        return bytes(self.records[self.shape.properties_at : self.shape.end])

    @property
    def tag(self) -> bytes | None:
        """The whole TAGS text, None without tags."""
        return properties.get(self.properties, properties.TAGS)

    @property
    def unique_id(self) -> bytes | None:
        """The client's unique id, None if the record has no such id."""
        return properties.get(self.properties, properties.UNIQ_KEY)

    @property
    def keys(self) -> list[bytes]:
        """The keys of the record in the index: the unique id and the keys."""
        return properties.keys_of(self.properties)


def view_record(records: bytes | memoryview, position: int, size: int) -> RecordView:
    """Return a view of the record of this size at this position."""
    try:
        shape = record.check_header(records, position, end=position + size)
    except FormatError as error:
        offset = (
            record.LONG.unpack_from(records, position + record.PHYSICAL_OFFSET_AT)[0]
            if size >= record.HEAD.size
            else -1
        )
        raise RecordDamaged(segment=f"at physical offset {offset}", position=0, reason=error.reason) from error
    return RecordView(records, shape)
