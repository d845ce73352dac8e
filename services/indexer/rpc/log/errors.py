# SPDX-License-Identifier: Apache-2.0
"""The errors of the engine for the reasons of the CommitLog."""

from libs.requests.errors import LogFollows, PeerError, RecordDamaged, TopicNotFound
from libs.runtime.peer.calls import PeerErrors
from services.indexer.errors import LogEndsEarlier, NotARecord

SERVICE = "commitlog"


def _record_damaged(error: PeerError) -> Exception:
    told = error.metadata
    return RecordDamaged(segment=told["segment"], position=_number(told["position"]), reason=told["reason"])


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else -1


ERRORS: PeerErrors = {
    "NOT_A_RECORD": lambda error: NotARecord(_number(error.metadata["value"])),
    "OFFSET_BEYOND_END": LogEndsEarlier.of,
    "NOT_LEADER": LogFollows.of,
    "TOPIC_NOT_FOUND": lambda error: TopicNotFound(error.metadata["topic"]),
    "BAD_TOPIC_NAME": lambda error: TopicNotFound(error.metadata["topic"]),
    "RECORD_DAMAGED": _record_damaged,
}
