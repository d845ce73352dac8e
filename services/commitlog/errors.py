# SPDX-License-Identifier: Apache-2.0
"""Errors of the CommitLog, each with its coordinates as attributes.

Engines raise them; `rpc/error_table.py` has the code and reason of each. `field` is the path of a request's field, such
as `messages[3].queue_id`. `value` is the sent value (or its size). `limit` is the nearest accepted value.
"""

from pathlib import Path

from libs.requests.errors import RequestRefused, ServiceError
from libs.segments.errors import StoreError


class QueueOutOfRange(RequestRefused):
    """The queue id is outside of the topic's queues."""

    def __init__(self, *, field: str, topic: str, value: int, limit: int) -> None:
        reason = f"topic {topic} has no queue {value}, its last one is {limit}"
        super().__init__(reason, field=field, value=value, limit=limit)
        self.topic = topic


class QueueNotHere(RequestRefused):
    """The topic lies on several logs, and another log has the queue, it is sealed, or the message names none.

    `version` is the version of this log's share. A message that names no queue has the queue id -1.
    """

    def __init__(self, *, field: str, topic: str, value: int, version: int, is_sealed: bool = False) -> None:
        reason = f"queue {value} of topic {topic} is on another shard"
        if is_sealed:
            reason = f"queue {value} of topic {topic} is sealed, and other queues have its keys"
        elif value < 0:
            reason = f"topic {topic} lies on several shards, and the message names no queue"
        super().__init__(f"{reason} (version {version})", field=field, value=value)
        self.topic, self.version = topic, version


class ShareOutdated(ServiceError):
    """A share is not newer than the share that the log has."""

    def __init__(self, topic: str, *, given: int, version: int) -> None:
        super().__init__(f"the share of topic {topic} has version {version} here, and version {given} is not newer")
        self.topic, self.version, self.field = topic, version, "share.version"


class BatchEmpty(RequestRefused):
    """An append without messages."""

    def __init__(self) -> None:
        super().__init__("there is no message to append", field="messages")


class BatchTooLarge(RequestRefused):
    """A batch has more bytes, messages, topics or new queues than one append may have."""

    def __init__(self, reason: str, *, value: int, limit: int) -> None:
        super().__init__(reason, field="messages", value=value, limit=limit)


class TooManyNewQueues(RequestRefused):
    """Queues begin faster than the log permits. Nothing of the batch was stored, so it may be sent again."""

    def __init__(self, value: int, *, limit: int) -> None:
        reason = (
            f"too many new queues: {limit} a second may begin (new_queues_per_s_max), and there is no room now for a "
            f"batch with the first messages of {value}; send it again a moment later"
        )
        super().__init__(reason, field="messages", value=value, limit=limit)


class MessageTooLarge(RequestRefused):
    """A body is longer than the largest message, or its record would not fit into a segment."""

    def __init__(self, what: str, *, field: str, value: int, limit: int) -> None:
        reason = f"a {what} of {value} bytes is too large, the limit is {limit}"
        super().__init__(reason, field=field, value=value, limit=limit)


class BadProperties(RequestRefused):
    """Properties are not well formed."""


class PropertiesTooLarge(RequestRefused):
    """The property string is longer than its field in a record can hold."""


class DelayNotSupported(RequestRefused):
    """The message asks for delivery at a time (properties `TIMER_...`) that is invalid or too far away."""


class WriterError(ServiceError):
    """Base: a writer's batch is neither its next batch nor a batch that the log remembers. Nothing was stored."""

    reason: str

    def __init__(self, writer_id: str, sequence: int) -> None:
        super().__init__(f"batch {sequence} of writer {writer_id} {self.reason}")
        self.writer_id, self.value, self.field = writer_id, sequence, "writer.sequence"


class WriterSequenceGap(WriterError):
    """An earlier batch of the writer is missing."""

    def __init__(self, writer_id: str, sequence: int, *, expected: int) -> None:
        self.expected, self.reason = expected, f"has come too early, {expected} is next"
        super().__init__(writer_id, sequence)


class WriterContentDiffers(WriterError):
    """The log has a batch with this number, but with other content."""

    reason = "is stored with other content"


class WriterForgotten(WriterError):
    """The batch may have been stored. The log cannot tell, because too many others came since."""

    reason = "is not among those that are remembered"


class TopicExists(ServiceError):
    """A topic with this name exists."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic} exists")
        self.topic, self.field = topic, "name"


class TopicForbidden(ServiceError):
    """The topic's permissions forbid the call, or the store itself needs the topic."""

    def __init__(self, topic: str, *, permission: str, field: str) -> None:
        super().__init__(f"topic {topic} does not permit to {permission}")
        self.topic, self.permission, self.field = topic, permission, field


class NotARecord(ServiceError):
    """No record starts at the physical offset, or it has another size."""

    def __init__(self, value: int, *, field: str) -> None:
        super().__init__(f"no record of this size starts at physical offset {value}")
        self.value, self.field = value, field


class BelowMinOffset(ServiceError):
    """The start of a read lies below the oldest byte of the log."""

    def __init__(self, value: int, *, min_physical_offset: int) -> None:
        super().__init__(f"physical offset {value} is gone, the log begins at {min_physical_offset}")
        self.value, self.min, self.field = value, min_physical_offset, "start_physical_offset"


class BeyondMaxOffset(ServiceError):
    """The offset lies beyond the end of the readable bytes."""

    def __init__(self, value: int, *, max_physical_offset: int, field: str) -> None:
        super().__init__(f"physical offset {value} is beyond the end {max_physical_offset}")
        self.value, self.max, self.field = value, max_physical_offset, field


class LogDamaged(StoreError):
    """A start found damage in the middle of the log and changed nothing."""

    def __init__(self, *, segment: str, position: int, reason: str) -> None:
        super().__init__(
            f"segment {segment} is damaged at byte {position}: {reason}; nothing was changed, because only a person "
            "can decide about data: look at the file with `reput inspect`, or restore it; where another log of the "
            "in-sync set is well, this one may begin again with an empty directory"
        )
        self.segment, self.position, self.reason = segment, position, reason


class EpochsDamaged(StoreError):
    """The epoch file does not follow its format, so the log's histories are unknown."""

    def __init__(self, *, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}; nothing was changed: restore the file from a copy, or remove it, and then run "
            "`reput index rebuild` for every Indexer"
        )
        self.path, self.reason = path, reason


class AppendsRefused(ServiceError):
    """The disk is too full to accept appends."""


class QueueOffsetsUnknown(ServiceError):
    """Older records are gone, and so is the snapshot with the queues' message counts."""

    def __init__(self) -> None:
        super().__init__(
            "the queue offsets that were given before are not known: appends wait for the Indexer to tell them; "
            "without an Indexer that was there before, start once with accept_scanned_queue_offsets = true"
        )


class StoreReplaced(ServiceError):
    """An Indexer knows a longer log of another history."""

    def __init__(self) -> None:
        super().__init__(
            "the Indexer knows another, longer log: is the disk of data_dir mounted? If this store is the one that is "
            "wanted, `reput index rebuild` has the Indexer follow it, and appends are accepted"
        )


class StoreSealed(ServiceError):
    """A sync or a write failed. Nothing is accepted until a restart."""

    def __init__(self) -> None:
        super().__init__("a sync or a write failed, so the store accepts nothing more until it is restarted")


class NotLeader(ServiceError):
    """The log follows another log, which accepts the appends. Nothing was stored."""

    def __init__(self, leader_target: str = "") -> None:
        reason = f"follows {leader_target}, which takes" if leader_target else "does not know which one takes"
        super().__init__(f"this log {reason} appends and changes of topics")
        self.leader = leader_target


class LeaseOver(ServiceError):
    """The log may not lead any more, so it is unknown whether the batch that was just stored here stays."""

    def __init__(self) -> None:
        super().__init__("the lease of this log is over, and another one may lead: what was stored may be given up")


class NotElected(ServiceError):
    """A coordinator elects the leader, and this log can't be elected."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this log can't lead: {reason}")


class AfterRefusal(ServiceError):
    """The batch of a stream needs the request before it, which was refused. Nothing was stored."""

    def __init__(self) -> None:
        super().__init__("the batch needs the request before it in its stream, and that one was refused")


class NotEnoughReplicas(ServiceError):
    """The batch would be on fewer disks than the caller asks for. Nothing was stored."""

    def __init__(self, *, in_sync: int = 0, needed: int = 0) -> None:
        super().__init__(f"{in_sync} of the in-sync set are connected, this log included, and {needed} are needed")
        self.in_sync, self.needed = in_sync, needed


class ReplicaBehind(ServiceError):
    """A follower can't lead now: it lacks bytes, or it is not connected."""

    def __init__(self, reason: str, *, replica_id: str = "") -> None:
        super().__init__(f"{replica_id}: {reason}")
        self.replica_id = replica_id


class MayLoseData(ServiceError):
    """It is unknown whether this log has all acknowledged batches."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; with accept_data_loss what others have besides is given up")


class HistoryDiffers(ServiceError):
    """Two logs have no common history, so neither can follow the other."""

    def __init__(self, *, mine: str, theirs: str) -> None:
        super().__init__(f"the log's history is {mine}, that of the other side is {theirs}: they are different logs")
        self.mine, self.theirs = mine, theirs


class StreamIdle(ServiceError):
    """An AppendStream brought no batch for too long."""

    def __init__(self, *, timeout_ms: int) -> None:
        super().__init__(f"the stream brought no batch for {timeout_ms} ms; open another one for the next")
        self.limit_ms = timeout_ms


class StaleEpoch(ServiceError):
    """The caller's epoch is behind the log's, or of another history."""

    def __init__(self, *, epoch: int, field: str = "epoch") -> None:
        super().__init__(f"the log is in epoch {epoch}" + (" of another history" if field == "history_id" else ""))
        self.epoch, self.field = epoch, field
