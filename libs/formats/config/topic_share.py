# SPDX-License-Identifier: Apache-2.0
"""The share of a topic that a log has, if the topic lies on several logs. Spec: docs/formats/config_files.md section 2.

It is the text of an attribute in topics.json, which RocketMQ keeps and does not read. No I/O.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from libs.formats.errors import BadField
from libs.formats.limits import QUEUE_COUNT_MAX

SHARE: Final = "reput.share"
"""The attribute's name."""

FIRST_FORMAT: Final = 1
"""Open queues without parents, and no change: releases before splits read it."""
FORMAT: Final = 2
HASH_MAX: Final = 2**32 - 1
VERSION_MAX: Final = 2**62
PARENT_COUNT_MAX: Final = 65_536
CHANGE_QUEUE_COUNT_MAX: Final = 256
CHANGE_STEP_COUNT: Final = 3
SHARD_NAME_SIZE_MAX: Final = 100
_SHARD_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def key_hash(key: str) -> int:
    """Return the hash of a message's key, 0 to HASH_MAX: the first four bytes of the SHA-256 of its text.

    Every language has SHA-256, and its first bits are as even as any, so ranges of hashes get equal parts of the keys.
    """
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big")


class Place(NamedTuple):
    """A queue of a topic, and the name of its shard."""

    shard: str
    queue_id: int


class QueueShare(Struct, frozen=True):
    """A queue, and the range of hashes whose keys it has, both ends included.

    A sealed queue takes no messages of clients any more, for good: other queues have its keys. `parents` are the sealed
    queues that had the keys before this queue.
    """

    queue_id: int
    first_hash: int
    last_hash: int
    is_sealed: bool = False
    parents: tuple[Place, ...] = ()


class Child(Struct, frozen=True):
    """A queue that a change opens."""

    place: Place
    first_hash: int
    last_hash: int


class ShareChange(Struct, frozen=True):
    """A change under way: the parents are sealed, then the children open. The parents' keys are the children's."""

    version: int
    """The version with which the change began. Its steps have the versions after it: see libs.shards.change."""
    parents: tuple[Place, ...]
    children: tuple[Child, ...]

    def fault(self) -> str:
        """Return why it is no change. Empty if it is one."""
        return next(_change_faults(self), "")


class TopicShare(Struct, frozen=True):
    """The queues of a topic that a log has, by number. The version grows with each change at any log.

    The change under way is at the log that has the queue with the smallest number, so that a topic has at most one.
    """

    version: int
    queues: tuple[QueueShare, ...]
    change: ShareChange | None = None

    @property
    def sealed_ids(self) -> frozenset[int]:
        """The queues that take no messages of clients any more."""
        return frozenset(queue.queue_id for queue in self.queues if queue.is_sealed)

    @property
    def open_ids(self) -> list[int]:
        """The queues that take messages of clients."""
        return [queue.queue_id for queue in self.queues if not queue.is_sealed]

    def fault(self, *, write_queue_count: int) -> str:
        """Return why it is no share of a topic with so many queues. Empty if it is one."""
        return next(_faults(self, write_queue_count), "")

    def fault_after(self, before: "TopicShare | None") -> str:
        """Return why it can't follow a share with a smaller version. Empty if it can.

        No queue goes, gets other hashes or parents, or opens again, and a change under way ends before the next begins.
        """
        now = {queue.queue_id: queue for queue in self.queues}
        for queue in before.queues if before is not None else ():
            if (later := now.get(queue.queue_id)) is None:
                return f"queue {queue.queue_id} is missing, and may have messages"
            if replace(later, is_sealed=queue.is_sealed) != queue:
                return f"queue {queue.queue_id} has other hashes or parents than before"
            if queue.is_sealed and not later.is_sealed:
                return f"queue {queue.queue_id} is sealed, and stays sealed"
        under_way = None if before is None else before.change
        if under_way is not None and self.change not in (None, under_way):
            return f"the change of version {under_way.version} is under way"
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
        yield from _range_faults(queue.queue_id, queue)
        yield from _place_faults(f"queue {queue.queue_id} has as a parent", queue.parents)
    if sum(len(queue.parents) for queue in share.queues) > PARENT_COUNT_MAX:
        yield f"its queues have more than {PARENT_COUNT_MAX} parents"
    yield from _overlaps([(queue.queue_id, queue) for queue in share.queues if not queue.is_sealed])
    if share.change is not None:
        yield from _change_faults(share.change)


def _change_faults(change: ShareChange) -> Iterator[str]:
    if not 1 <= change.version <= VERSION_MAX - CHANGE_STEP_COUNT:
        yield f"the change has version {change.version}, and must have 1 to {VERSION_MAX - CHANGE_STEP_COUNT}"
    if not (1 <= len(change.parents) <= CHANGE_QUEUE_COUNT_MAX and 1 <= len(change.children) <= CHANGE_QUEUE_COUNT_MAX):
        yield f"the change must have 1 to {CHANGE_QUEUE_COUNT_MAX} parents, and so many children"
    yield from _place_faults("the change has the parent", change.parents)
    yield from _place_faults("the change has the child", [child.place for child in change.children])
    for child in change.children:
        yield from _range_faults(child.place.queue_id, child)
    yield from _overlaps([(child.place.queue_id, child) for child in change.children])
    ids = [place.queue_id for place in (*change.parents, *(child.place for child in change.children))]
    if len(set(ids)) < len(ids):
        yield "the change has a queue twice"


def _place_faults(what: str, places: Iterable[Place]) -> Iterator[str]:
    for shard, queue_id in places:
        if not is_shard_name(shard) or not 0 <= queue_id < QUEUE_COUNT_MAX:
            yield f"{what} queue {queue_id} of the shard {shard[:SHARD_NAME_SIZE_MAX]!r}"


def _range_faults(queue_id: int, ranged: QueueShare | Child) -> Iterator[str]:
    if not 0 <= ranged.first_hash <= ranged.last_hash <= HASH_MAX:
        yield f"queue {queue_id} has the hashes {ranged.first_hash} to {ranged.last_hash}"


def _overlaps(queues: Sequence[tuple[int, QueueShare | Child]]) -> Iterator[str]:
    by_hash = sorted(queues, key=lambda entry: entry[1].first_hash)
    for (queue_id, ranged), (following_id, following) in pairwise(by_hash):
        if following.first_hash <= ranged.last_hash:
            yield f"the queues {queue_id} and {following_id} have common hashes"


def is_shard_name(name: str) -> bool:
    """Return whether a shard may have this name: the name of a broker of RocketMQ, which clients see."""
    return 1 <= len(name) <= SHARD_NAME_SIZE_MAX and _SHARD_NAME.fullmatch(name) is not None


class _AnyFormat(msgspec.Struct, array_like=True):
    format: int


class _First(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A share in the first format."""

    format: int
    version: int
    queues: list[tuple[int, int, int]]


class _Queue(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    queue_id: int
    first_hash: int
    last_hash: int
    is_sealed: bool
    parents: tuple[Place, ...]


class _Child(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    place: Place
    first_hash: int
    last_hash: int


class _Change(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    parents: tuple[Place, ...]
    children: list[_Child]


class _Stored(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    format: int
    version: int
    queues: list[_Queue]
    change: _Change | None


def dumps(share: TopicShare) -> str:
    """Return the text of a share, in the first format if that can hold it."""
    if share.change is None and not any(queue.is_sealed or queue.parents for queue in share.queues):
        ranges = [(queue.queue_id, queue.first_hash, queue.last_hash) for queue in share.queues]
        return msgspec.json.encode(_First(FIRST_FORMAT, share.version, ranges)).decode()
    queues = [msgspec.convert(queue, _Queue, from_attributes=True) for queue in share.queues]
    change = None if share.change is None else msgspec.convert(share.change, _Change, from_attributes=True)
    return msgspec.json.encode(_Stored(FORMAT, share.version, queues, change)).decode()


def loads(text: str) -> TopicShare:
    """Return the share of a text. Raises BadField, also for a share in a format of a later release."""
    try:
        share = _share(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadField(position=0, reason=f"{SHARE}: {error}", field=SHARE) from error
    if fault := share.fault(write_queue_count=QUEUE_COUNT_MAX):
        raise BadField(position=0, reason=f"{SHARE}: {fault}", field=SHARE)
    return share


def _share(text: str) -> TopicShare:
    match msgspec.json.decode(text, type=_AnyFormat).format:
        case 1:
            first = msgspec.json.decode(text, type=_First)
            return TopicShare(first.version, tuple(QueueShare(*queue) for queue in first.queues))
        case 2:
            return msgspec.convert(msgspec.json.decode(text, type=_Stored), TopicShare, from_attributes=True)
        case other:
            raise msgspec.ValidationError(f"it has format {other}, and this release knows 1 to {FORMAT}")
