# SPDX-License-Identifier: Apache-2.0
"""Records of transactions: half messages, and records of their ends. Spec: docs/formats/transaction_record.md.

It uses properties and bodies, no files. RocketMQ's counterparts are TransactionalMessageBridge and
TransactionalMessageUtil.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX, INT64_MAX

HALF_QUEUE_ID = OP_QUEUE_ID = 0
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets in the two topics are the places from where on half messages may be open."""

REAL_TOPIC, REAL_QID = "REAL_TOPIC", "REAL_QID"
UNIQ_KEY, KEYS, TAGS = "UNIQ_KEY", "KEYS", "TAGS"
PRODUCER_GROUP = "PGROUP"
IMMUNITY = "CHECK_IMMUNITY_TIME_IN_SECONDS"
CHECK_COUNT = "TRANSACTION_CHECK_TIMES"
FORMER_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
"""Property of a half message that RocketMQ appended again while it was immune: its first queue offset."""
FIRST = "REPUT_HALF"
"""Property of a half message that this store appended again: offset id and store time of the first record."""
ENDED_AS = "REPUT_ENDED_AS"
"""Property of an end record: how the half message has ended."""

ENDED_TAG = "d"
COMMIT, ROLLBACK, PARKED, RENEWED = "commit", "rollback", "parked", "renewed"
"""The ends of a half message. RENEWED: it was appended again, and its transaction is open."""
UNKNOWN = ""
"""The end in RocketMQ's records, which do not tell how a half message has ended."""
_ENDS = frozenset({COMMIT, ROLLBACK, PARKED, RENEWED})

IMMUNITY_S_MAX = 40 * 86_400
DIGIT_COUNT_MAX = 19


class Half(Struct, frozen=True):
    """A half message, without its body."""

    queue_offset: int
    physical_offset: int
    store_time_ms: int
    size_bytes: int
    id: str
    """Id of the transaction: the unique id, or the first offset id of a message without a unique id."""
    first_offset_id: str
    first_time_ms: int
    """Store time of the first record."""
    producer_group: str
    topic: str
    queue_id: int
    """Topic and queue id of the message after a commit."""
    check_count: int = 0
    """How often the producer was asked."""
    immunity_ms: int | None = None
    """How long the producer is not asked. None: the store's default."""
    former_offset: int = -1


class Ended(Struct, frozen=True):
    """An end record: a record of the end of half messages."""

    queue_offset: int
    half_offsets: tuple[int, ...]
    ids: tuple[str, ...]
    """Ids of the transaction; empty if RocketMQ wrote the record."""
    how: str


def half_of(
    properties: Mapping[str, str],
    *,
    queue_offset: int,
    physical_offset: int,
    store_time_ms: int,
    size_bytes: int,
    offset_id: str,
) -> Half:
    """Return the half message of a record of the half topic. Raises BadField if its topic or queue id is missing."""
    topic, queue_id = properties.get(REAL_TOPIC, ""), _number(properties.get(REAL_QID, ""), INT32_MAX)
    if not topic or queue_id is None:
        raise BadField(position=0, reason="it does not say where it goes", field="half message")
    first_id, _, first_time = properties.get(FIRST, "").partition(" ")
    first_time_ms = _number(first_time, INT64_MAX)
    immunity_s = _number(properties.get(IMMUNITY, ""), IMMUNITY_S_MAX)
    former_offset = _number(properties.get(FORMER_OFFSET, ""), INT64_MAX)
    first_id = first_id or offset_id
    return Half(
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        store_time_ms=store_time_ms,
        size_bytes=size_bytes,
        id=properties.get(UNIQ_KEY) or first_id,
        first_offset_id=first_id,
        first_time_ms=store_time_ms if first_time_ms is None else first_time_ms,
        producer_group=properties.get(PRODUCER_GROUP, ""),
        topic=topic,
        queue_id=queue_id,
        check_count=_number(properties.get(CHECK_COUNT, ""), INT32_MAX) or 0,
        immunity_ms=None if immunity_s is None else immunity_s * 1000,
        former_offset=-1 if former_offset is None else former_offset,
    )


def renewed_properties(half: Half, check_count: int) -> dict[str, str]:
    """Return the additional properties of a half message that is appended again, after `check_count` questions."""
    properties = {FIRST: f"{half.first_offset_id} {half.first_time_ms}"}
    if check_count:
        properties[CHECK_COUNT] = str(check_count)
    return properties


def ended_properties(ids: Iterable[str], how: str) -> dict[str, str]:
    """Return the properties of an end record."""
    properties = {TAGS: ENDED_TAG, KEYS: " ".join(dict.fromkeys(ids))}
    return {**properties, ENDED_AS: how} if how else properties


def ended_body(half_offset: int) -> bytes:
    """Return the body of an end record: a single number, which readers of RocketMQ 4 and 5 understand."""
    return str(half_offset).encode()


def ended_of(body: bytes, properties: Mapping[str, str], *, queue_offset: int) -> Ended:
    """Return the end record in a record of the op topic. Raises BadField for other records."""
    words = [word for word in body.decode("ascii", "replace").split(",") if word]
    offsets = [_number(word, INT64_MAX) for word in words]
    known = tuple(offset for offset in offsets if offset is not None)
    if properties.get(TAGS) != ENDED_TAG or len(known) < len(offsets) or not known:
        raise BadField(position=0, reason=f"{body[:40]!r} is no list of queue offsets", field="ended half messages")
    how = properties.get(ENDED_AS, UNKNOWN)
    ids = tuple(name for name in properties.get(KEYS, "").split(" ") if name) if how in _ENDS else ()
    return Ended(queue_offset, known, ids, how if how in _ENDS else UNKNOWN)


def _number(text: str, most: int) -> int | None:
    """Return a number of decimal digits from 0 to `most`, None for other text."""
    if not (text.isascii() and text.isdigit() and len(text) <= DIGIT_COUNT_MAX):
        return None
    number = int(text)
    return number if number <= most else None
