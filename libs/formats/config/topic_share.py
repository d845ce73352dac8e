# SPDX-License-Identifier: Apache-2.0
"""The share of a topic that a log has, if the topic lies on several logs. Spec: docs/formats/config_files.md section 2.

It is the text of an attribute in topics.json, which RocketMQ keeps and does not read. No I/O.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec

from libs.formats.errors import BadField
from libs.formats.limits import QUEUE_COUNT_MAX

SHARE: Final = "reput.share"
"""The attribute's name."""

FORMAT: Final = 1
HASH_MAX: Final = 2**32 - 1
VERSION_MAX: Final = 2**62


def key_hash(key: str) -> int:
    """Return the hash of a message's key, 0 to HASH_MAX: the first four bytes of the SHA-256 of its text.

    Every language has SHA-256, and its first bits are as even as any, so ranges of hashes get equal parts of the keys.
    """
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue, and the range of hashes whose keys it has, both ends included."""

    queue_id: int
    first_hash: int
    last_hash: int


@dataclass(frozen=True, slots=True)
class TopicShare:
    """The queues of a topic that a log has, by number. The version grows with each change at any log."""

    version: int
    queues: tuple[QueueShare, ...]

    def fault(self, *, write_queue_count: int) -> str:
        """Return why it is no share of a topic with so many queues. Empty if it is one."""
        return next(_faults(self, write_queue_count), "")

    def fault_after(self, before: "TopicShare | None") -> str:
        """Return why it can't follow a share with a smaller version: no queue goes, and none gets other hashes."""
        now = {queue.queue_id: queue for queue in self.queues}
        for queue in before.queues if before is not None else ():
            if (later := now.get(queue.queue_id)) is None:
                return f"queue {queue.queue_id} is missing, and may have messages"
            if later != queue:
                return f"queue {queue.queue_id} has other hashes than before"
        return ""


def _faults(share: TopicShare, write_queue_count: int) -> Iterator[str]:
    if not 1 <= share.version <= VERSION_MAX:
        yield f"the version is {share.version}, and must be 1 to {VERSION_MAX}"
    if not 1 <= len(share.queues) <= QUEUE_COUNT_MAX:
        yield f"it has {len(share.queues)} queues, and must have 1 to {QUEUE_COUNT_MAX}"
    ids = [queue.queue_id for queue in share.queues]
    if ids != sorted(set(ids)):
        yield "its queues must be sorted by number, each once"
    for queue in share.queues:
        if not 0 <= queue.queue_id < write_queue_count:
            yield f"queue {queue.queue_id} is not below the write queue count, {write_queue_count}"
        if not 0 <= queue.first_hash <= queue.last_hash <= HASH_MAX:
            yield f"queue {queue.queue_id} has the hashes {queue.first_hash} to {queue.last_hash}"
    by_hash = sorted(share.queues, key=lambda queue: queue.first_hash)
    for one, following in pairwise(by_hash):
        if following.first_hash <= one.last_hash:
            yield f"the queues {one.queue_id} and {following.queue_id} have common hashes"


class _Stored(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: int
    version: int
    queues: list[tuple[int, int, int]]


def dumps(share: TopicShare) -> str:
    """Return the text of a share."""
    queues = [(queue.queue_id, queue.first_hash, queue.last_hash) for queue in share.queues]
    return msgspec.json.encode(_Stored(FORMAT, share.version, queues)).decode()


def loads(text: str) -> TopicShare:
    """Return the share of a text. Raises BadField, also for a share in a format of a later release."""
    try:
        stored = msgspec.json.decode(text, type=_Stored)
    except msgspec.MsgspecError as error:
        raise BadField(position=0, reason=f"{SHARE}: {error}", field=SHARE) from error
    if stored.format != FORMAT:
        reason = f"{SHARE} has format {stored.format}, this release knows {FORMAT}"
        raise BadField(position=0, reason=reason, field=SHARE)
    share = TopicShare(stored.version, tuple(QueueShare(*queue) for queue in stored.queues))
    if fault := share.fault(write_queue_count=QUEUE_COUNT_MAX):
        raise BadField(position=0, reason=f"{SHARE}: {fault}", field=SHARE)
    return share
