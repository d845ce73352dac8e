# SPDX-License-Identifier: Apache-2.0
"""The errors of the engine for the reasons of the log and of its index."""

from libs.requests.errors import BadArgument, ConsumerOffsetNotFound, LogFollows, PeerError, TopicNotFound
from libs.runtime.peer.calls import PeerErrors
from services.delivery.errors import MessageDamaged


def _offset_not_found(error: PeerError) -> Exception:
    told = error.metadata
    return ConsumerOffsetNotFound(told["group"], told["topic"], int(told["queue_id"] or -1))


def _refused(error: PeerError) -> Exception:
    field, value, limit = (error.metadata.get(name) for name in ("field", "value", "limit"))
    return BadArgument(f"the {error.service} refuses it: {error.line}", field=field or "", value=value, limit=limit)


ERRORS: PeerErrors = {
    "TOPIC_NOT_FOUND": lambda error: TopicNotFound(error.metadata["topic"]),
    "QUEUE_NOT_FOUND": lambda error: TopicNotFound(error.metadata["topic"]),
    "CONSUMER_OFFSET_NOT_FOUND": _offset_not_found,
    "NOT_LEADER": LogFollows.of,
    "RECORD_DAMAGED": MessageDamaged.of,
}
CALLERS_ERRORS: PeerErrors = {**ERRORS, "BAD_ARGUMENT": _refused}
"""Turn errors of a call within the block into DependencyUnavailable, or into an error of a topic or an offset.

    `tells_refusals`: the arguments are a caller's. If the service refuses them, the caller gets BadArgument.
    """
