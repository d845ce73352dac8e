# SPDX-License-Identifier: Apache-2.0
"""What the Indexer refuses and what can go wrong in it, each with its coordinates as attributes.

Engines raise these; `rpc/error_table.py` gives each its code and reason. `field` is the path of a request's field, such
as `ranges[3].queue_id`; `value` is what was sent (or its size), `limit` the nearest value that would have been taken.
"""

from datetime import UTC, datetime


class IndexerError(Exception):
    """Base of all of them."""


class RequestRefused(IndexerError):
    """Base: a field of the request is at fault. Nothing was changed."""

    def __init__(self, reason: str, *, field: str, value: object = "", limit: object = "") -> None:
        super().__init__(f"{field}: {reason}")
        self.field, self.value, self.limit = field, value, limit


class BadArgument(RequestRefused):
    """A field is missing, out of its range or contradicts another."""


class BadTopicName(RequestRefused):
    """A topic name is empty, too long or has a character that topics may not have."""


class BadPageToken(RequestRefused):
    """The page token is not one that this query returned for these arguments."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, field="page_token")


class OffsetBeyondEnd(IndexerError):
    """The offset lies beyond the end of what is indexed."""

    def __init__(self, value: int, *, end: int, field: str) -> None:
        super().__init__(f"{field}: {value} is beyond the end of what is indexed, {end}")
        self.value, self.max, self.field = value, end, field


class OffsetTrimmed(IndexerError):
    """The offset lies below the oldest that is kept."""

    def __init__(self, value: int, *, start: int, field: str) -> None:
        super().__init__(f"{field}: {value} is gone, the oldest that is kept is {start}")
        self.value, self.min, self.field = value, start, field


class QueueNotFound(IndexerError):
    """The queue has no messages and never had."""

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__(f"topic {topic} has no messages in queue {queue_id} and never had")
        self.topic, self.queue_id = topic, queue_id


class MessageNotFound(IndexerError):
    """No message has this id."""

    def __init__(self, message_id: str) -> None:
        super().__init__(f"there is no message {message_id}")
        self.message_id = message_id


class ConsumerOffsetNotFound(IndexerError):
    """The group has committed nothing for the queue."""

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        super().__init__(f"group {group} has no offset for queue {queue_id} of topic {topic}")
        self.group, self.topic, self.queue_id = group, topic, queue_id


class WindowFull(IndexerError):
    """Too many of something are in flight or kept."""

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"too many {what}, the limit is {limit}")
        self.limit = limit


class DependencyUnavailable(IndexerError):
    """Another service that is needed for the answer can't be reached."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"{service} is not available: {reason}")
        self.service, self.reason = service, reason


class Incomplete(IndexerError):
    """The indexes are being built again, and do not yet hold all that was answered from them before."""

    def __init__(self, indexed: int, *, target: int | None) -> None:
        super().__init__(f"the indexes are being built again: {indexed} of {target or 'an unknown number of'} bytes")
        self.indexed, self.target = indexed, target


class RebuildRunning(IndexerError):
    """A rebuild is under way already. `started` is when it began, in ISO 8601."""

    def __init__(self, started_ms: int) -> None:
        self.started = datetime.fromtimestamp(started_ms / 1000, UTC).isoformat(timespec="seconds")
        super().__init__(f"a rebuild is under way since {self.started}")


class LogEndsEarlier(DependencyUnavailable):
    """The log ends before a record that is indexed: it lost its tail, and the indexes have yet to follow."""


class TopicNotFound(IndexerError):
    """No message of this topic is indexed, or nobody has made it."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} has no messages and never had")
        self.topic = topic


class TopicSetApart(IndexerError):
    """RocketMQ keeps the topic or queue in a way that is not served here; `why` names it."""

    def __init__(self, topic: str, *, why: str, field: str) -> None:
        super().__init__(f"{field}: {topic} ({why}) is RocketMQ's alone and not served here")
        self.topic, self.why, self.field = topic, why, field


class RecordDamaged(IndexerError):
    """Stored bytes fail their check. Needs a replica or a person, not a retry."""

    def __init__(self, *, segment: str, position: int, reason: str) -> None:
        super().__init__(f"segment {segment} is damaged at byte {position}: {reason}")
        self.segment, self.position, self.reason = segment, position, reason


class NotARecord(IndexerError):
    """No record starts at a physical offset that was asked for: it came from a stale or foreign pointer."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(f"no record starts at physical offset {physical_offset}")
        self.value = physical_offset


class AppendRefused(IndexerError):
    """The log refuses to take messages; nothing was appended. `message_index` is the one at fault, -1 if none is."""

    def __init__(self, reason: str, *, message_index: int, text: str) -> None:
        super().__init__(f"the log refuses a message that is due: {text}")
        self.reason, self.message_index = reason, message_index


class Undeliverable(IndexerError):
    """A record of the schedule topic can't be brought to any topic. An operator decides."""

    def __init__(self, reason: str, physical_offset: int) -> None:
        super().__init__(f"the delayed message at physical offset {physical_offset} can't be delivered: {reason}")
        self.reason, self.physical_offset = reason, physical_offset


class Stopping(IndexerError):
    """The service is shutting down."""

    def __init__(self) -> None:
        super().__init__("the server is stopping")


class FilesMissing(IndexerError):
    """The files of the indexes hold less, or more, than what was synced for certain. They must be built anew."""

    def __init__(self, what: str, *, found: int, expected: int) -> None:
        super().__init__(f"{what}: {found}, but {expected} were synced")
        self.what, self.found, self.expected = what, found, expected


class SyncNeeded(IndexerError):
    """So many queue files have unsynced bytes that no more may be mapped. Sync them and call again."""


class Inapplicable(IndexerError):
    """A record can't be entered into the indexes as they are. The reput loop stops; an operator decides.

    `physical_offset` is the record (or the step of the stream) that is at fault.
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
