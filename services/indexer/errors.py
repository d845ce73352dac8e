# SPDX-License-Identifier: Apache-2.0
"""The errors of the Indexer, each with its details as attributes.

Engines raise these; `rpc/error_table.py` gives each its code and reason. `field` is the path of a request's field, such
as `ranges[3].queue_id`; `value` is the value sent (or its size), `limit` the nearest value that would be accepted.
"""

from datetime import UTC, datetime

from libs.requests.errors import DependencyUnavailable, ServiceError


class OffsetBeyondEnd(ServiceError):
    """The offset lies beyond the end of the indexed records."""

    def __init__(self, value: int, *, end: int, field: str) -> None:
        super().__init__(f"{field}: {value} is beyond the end of what is indexed, {end}")
        self.value, self.max, self.field = value, end, field


class OffsetTrimmed(ServiceError):
    """The offset lies below the oldest kept offset."""

    def __init__(self, value: int, *, start: int, field: str) -> None:
        super().__init__(f"{field}: {value} is gone, the oldest that is kept is {start}")
        self.value, self.min, self.field = value, start, field


class QueueNotFound(ServiceError):
    """The queue has no messages and never had."""

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__(f"topic {topic} has no messages in queue {queue_id} and never had")
        self.topic, self.queue_id = topic, queue_id


class MessageNotFound(ServiceError):
    """No message has this id."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"there is no message {message_id}")
        self.message_id = message_id


class OtherLog(DependencyUnavailable):
    """The log is not the indexed log."""

    def __init__(self, *, known_end: int, met_end: int) -> None:
        super().__init__(
            "commitlog",
            f"this is another log than the one that was indexed up to physical offset {known_end}, and it ends at "
            f"{met_end}: is the disk of the CommitLog's data_dir mounted, and is commitlog_target right? The "
            "indexes stay until `reput index rebuild` drops them for those of this log",
        )


class Incomplete(ServiceError):
    """The indexes are being built again, and do not yet hold all records that were answered from them before."""

    def __init__(self, indexed: int, *, target: int | None) -> None:
        super().__init__(f"the indexes are being built again: {indexed} of {target or 'an unknown number of'} bytes")
        self.indexed, self.target = indexed, target


class NotIndexed(ServiceError):
    """A record was not indexed within the time that a call waits for it."""

    def __init__(self, physical_offset: int, *, indexed: int) -> None:
        super().__init__(f"the record at physical offset {physical_offset} is not indexed yet, but all below {indexed}")
        self.indexed, self.target = indexed, physical_offset + 1


class GroupsUnknown(ServiceError):
    """Offsets that groups committed at other Indexers, or at a lost disk, were not read from the log yet."""

    def __init__(self, reason: str = "what groups committed elsewhere is not read from the log yet") -> None:
        super().__init__(reason)


class RebuildRunning(ServiceError):
    """A rebuild is already running. `started` is the time of its begin, in ISO 8601."""

    def __init__(self, started_ms: int) -> None:
        self.started = datetime.fromtimestamp(started_ms / 1000, UTC).isoformat(timespec="seconds")
        super().__init__(f"a rebuild is under way since {self.started}")


class LogEndsEarlier(DependencyUnavailable):
    """The log ends before an indexed record: it lost its tail, and the indexes are not yet cut."""


class NotARecord(ServiceError):
    """No record starts at a requested physical offset: the offset came from a stale or foreign pointer."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(f"no record starts at physical offset {physical_offset}")
        self.value = physical_offset


class AppendRefused(ServiceError):
    """The log refuses records of the shared state, and nothing was appended."""

    def __init__(self, text: str) -> None:
        super().__init__(f"the log refuses records of the shared state: {text}")


class FilesMissing(ServiceError):
    """The files of the indexes hold less, or more, than was synced for certain. They must be built anew."""

    def __init__(self, what: str, *, found: int, expected: int) -> None:
        super().__init__(f"{what}: {found}, but {expected} were synced")
        self.what, self.found, self.expected = what, found, expected


class SyncNeeded(ServiceError):
    """So many queue files have unsynced bytes that no more may be mapped. Sync them and call again."""


class Inapplicable(ServiceError):
    """A record can't be entered into the indexes as they are. The reput loop stops, and an operator must decide.

    `physical_offset` is the offset of the faulty record (or step of the stream).
    """

    def __init__(self, reason: str, *, physical_offset: int) -> None:
        super().__init__(f"the record at physical offset {physical_offset} can't be indexed: {reason}")
        self.reason, self.physical_offset = reason, physical_offset


class QueueGap(Inapplicable):
    """A record's queue offset lies beyond the end of its queue, whose last messages are still kept."""

    def __init__(self, *, topic: str, queue_id: int, end: int, queue_offset: int, physical_offset: int) -> None:
        super().__init__(
            f"queue {topic}/{queue_id} ends at {end}, the record has queue offset {queue_offset}",
            physical_offset=physical_offset,
        )
        self.topic, self.queue_id, self.end, self.queue_offset = topic, queue_id, end, queue_offset


class QueueConflict(Inapplicable):
    """The queue already has another record at this queue offset."""

    def __init__(self, *, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> None:
        super().__init__(
            f"queue {topic}/{queue_id} holds another record at queue offset {queue_offset}",
            physical_offset=physical_offset,
        )
        self.topic, self.queue_id, self.queue_offset = topic, queue_id, queue_offset
