# SPDX-License-Identifier: Apache-2.0
"""Refusals and failures that all services share. Each error carries its coordinates as attributes.

Engines raise these errors and their own errors; libs/runtime/rpc/errors.py gives each error here its code and reason.
`field` is the path of a request's field, such as `messages[3].queue_id`; `value` is the sent value (or its size),
`limit` the nearest value that would be accepted.
"""

from collections import defaultdict
from typing import Self


class ServiceError(Exception):
    """Base class of the refusals and failures of engines."""


class MalformedRequest(ServiceError):
    """The bytes are not valid protobuf for their type, or a field has the wrong wire type."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"malformed request: {reason}")


class RequestRefused(ServiceError):
    """Base class: a field of the request is at fault. Nothing was changed."""

    def __init__(self, reason: str, *, field: str, value: object = None, limit: object = None) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.value, self.limit = field, value, limit


class BadArgument(RequestRefused):
    """A field is missing, out of its range or contradicts another."""


class BadTopicName(RequestRefused):
    """A topic name is empty, too long or has a character that topics may not have."""


class BadPageToken(RequestRefused):
    """This list has not returned the page token for these arguments."""

    def __init__(self, reason: str = "is not one that this list returned for these arguments") -> None:
        super().__init__(reason, field="page_token")


class TopicSetApart(ServiceError):
    """RocketMQ stores the topic or queue in a form that is not served here; `why` names the form."""

    def __init__(self, topic: str, *, why: str, field: str) -> None:
        super().__init__(f"{field}: {topic} ({why}) is RocketMQ's alone and not served here")
        self.topic, self.why, self.field = topic, why, field


class TopicNotFound(ServiceError):
    """There is no topic of this name, or with `is_empty` no message of it is indexed.

    `field` is the field of the request with the name, if the request itself has the name.
    """

    def __init__(self, topic: str, *, field: str | None = None, is_empty: bool = False) -> None:
        super().__init__(f"topic {topic} has no messages and never had" if is_empty else f"there is no topic {topic}")
        self.topic, self.field = topic, field


class ConsumerOffsetNotFound(ServiceError):
    """The group has no committed offset for the queue."""

    def __init__(self, group: str, topic: str, queue_id: int) -> None:
        super().__init__(f"group {group} has no offset for queue {queue_id} of topic {topic}")
        self.group, self.topic, self.queue_id = group, topic, queue_id


class RecordDamaged(ServiceError):
    """Stored bytes fail their check. Needs a replica or an operator, not a retry."""

    def __init__(self, *, segment: str, position: int, reason: str) -> None:
        super().__init__(f"segment {segment} is damaged at byte {position}: {reason}")
        self.segment, self.position, self.reason = segment, position, reason


class WindowFull(ServiceError):
    """Too many items of a kind are in flight or kept."""

    def __init__(self, what: str, *, limit: int) -> None:
        super().__init__(f"too many {what}, the limit is {limit}")
        self.limit = limit


class DependencyUnavailable(ServiceError):
    """Another service that is needed for the answer can't be reached, or is not ready. A later retry may succeed."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"{service} is not available: {reason}")
        self.service, self.reason = service, reason

    @classmethod
    def of(cls, error: "PeerError") -> Self:
        """Return the error of a caller of the service."""
        return cls(error.service, error.line)


class LogFollows(DependencyUnavailable):
    """The log is a follower, and only its leader can answer the request."""


class PeerError(ServiceError):
    """Another service has refused or failed a call, or could not be reached.

    `reason` is the name of its ErrorReason, and empty if it did not answer. `code` is the name of gRPC's code. A key
    that `metadata` lacks is read as an empty text.
    """

    def __init__(self, service: str, reason: str, text: str, code: str = "UNKNOWN", /, **metadata: str) -> None:
        self.service, self.reason, self.text, self.code = service, reason, text, code
        self.metadata = defaultdict(str, metadata)
        super().__init__(f"{service}: {text or self.line}")

    @property
    def line(self) -> str:
        """The code and the text, as a part of a line."""
        return f"{self.code}: {self.text}"


class NotDurableYet(ServiceError):
    """The change of a call is in the log of the leader, but not as durable yet as the store promises: it may be undone.

    `durability` is the reached durability. The call may be repeated.
    """

    def __init__(self, what: str = "the change", *, durability: int = 0, reason: str = "") -> None:
        super().__init__(
            f"{what} is in the log of the leader, and not yet as durable as the store promises: "
            f"it stays, or is undone if the leader is lost{reason and f' ({reason})'}; repeat the call"
        )
        self.durability = durability


class Stopping(ServiceError):
    """The server shuts down and accepts no new calls."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down")
