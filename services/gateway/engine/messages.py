# SPDX-License-Identifier: Apache-2.0
"""Messages: turns a client's message into the properties that RocketMQ's own proxy stores, and back.

A message that RocketMQ's proxy accepts is accepted, and consumers get it as from RocketMQ's proxy: keys are joined by a
space and split at spaces, and an empty property is not returned. Other messages are refused, and the error names the
fault.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from services.gateway.errors import Refused

TAGS, KEYS, UNIQ_KEY, GROUP = "TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY"
BORN_HOST, BORN_TIME, TRACE = "__BORNHOST", "BORN_TIMESTAMP", "TRACE_CONTEXT"
ORIGIN_TOPIC, ORIGIN_ID = "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"
TRANSACTION, PRODUCER_GROUP, IMMUNITY = "TRAN_MSG", "PGROUP", "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_ID = "__transactionId__"
DELIVERY_TIME, TIME_DIGITS = "TIMER_DELIVER_MS", 15
BODY_FAULT = "REPUT_BODY_FAULT"
"""The property that tells a consumer why the body can't be inflated. It is never stored."""
DELAYS = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")

HIDDEN = frozenset(
    {
        "1ST_POP_TIME",
        "ARRIVE_TIME",
        "BORN_TIMESTAMP",
        "BUYER_ID",
        "CLUSTER",
        "CONSUME_START_TIME",
        "CORRECTION_FLAG",
        "CORRELATION_ID",
        "DELAY",
        "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC",
        "EXTEND_UNIQ_INFO",
        "INNER_MULTI_QUEUE_OFFSET",
        "INSTANCE_ID",
        "KEYS",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "MQ2_FLAG",
        "MSG_REGION",
        "MSG_TYPE",
        "ORIGIN_MESSAGE_ID",
        "PGROUP",
        "POP_CK",
        "POP_CK_OFFSET",
        "PUSH_REPLY_TIME",
        "REAL_QID",
        "REAL_TOPIC",
        "RECONSUME_TIME",
        "REPLY_TO_CLIENT",
        "REPUT_BODY_FAULT",
        "REPUT_CANCELLED",
        "REPUT_ENDED_AS",
        "REPUT_HALF",
        "REPUT_WRITER",
        "RETRY_TOPIC",
        "TAGS",
        "TRACE_ON",
        "TRANSFER_FLAG",
        "TRAN_MSG",
        "TRAN_PREPARED_QUEUE_OFFSET",
        "TTL",
        "UNIQ_KEY",
        "WAIT",
        "__BORNHOST",
        "__CRC32#",
    }
)
"""Names of properties that clients neither set nor see: names of MessageConst.STRING_HASH_SET in RocketMQ 5.3.3, and
Reput's own names. All names that begin with TIMER_ are hidden, too.
"""
FORBIDDEN = HIDDEN | {
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "DUP_INFO",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_NUM",
    "TRANSACTION_CHECK_TIMES",
}
"""Names of properties that producers can't set. Consumers see the six names above. RocketMQ accepts a producer's values
of these six properties, and acts upon the values.
"""

USER_PROPERTY_COUNT_MAX, USER_PROPERTIES_SIZE_BYTES_MAX = 128, 16 << 10
"""The limit of the size includes the tag and the keys. The limit of the number does not."""
GROUP_SIZE_BYTES_MAX = 64
ID_SIZE_BYTES_MAX = 255
UTF8_SIZE_BYTES_MAX = 4
"""The size of the largest character in UTF-8."""
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""The characters that texts must not have."""
DIGESTS = {"MD5": hashlib.md5, "SHA1": hashlib.sha1}
"""The digests that all clients write in the same way. Clients write a CRC-32 differently, so it is not checked."""


class Message(Struct, frozen=True, kw_only=True):
    """A message as clients see it. Attributes that it lacks are empty."""

    id: str
    tag: str = ""
    keys: Sequence[str] = ()
    group: str = ""
    user: Mapping[str, str] = field(default_factory=dict)
    born_host: str = ""
    trace: str = ""
    producer_group: str = ""
    """Of a half message: the producer group that knows how the transaction ends."""
    immunity_s: int = 0
    """For how long the producer group is not asked. 0 means the store's default."""
    deliver_ms: int = 0
    """The delivery time, which may be over."""
    origin_topic: str = ""
    origin_id: str = ""
    """Of a dead letter: the topic and the id of the original message."""

    def check(self) -> None:
        """Return if the message can be stored. Raises Refused."""
        _check_text(self.id, "ILLEGAL_MESSAGE_ID", "the message id", ID_SIZE_BYTES_MAX)
        if not self.id:
            raise Refused("ILLEGAL_MESSAGE_ID", "the message has no id: its sender makes one")
        _check_text(self.tag, "ILLEGAL_MESSAGE_TAG", "the tag")
        if "|" in self.tag or (self.tag and not self.tag.strip()):
            raise Refused("ILLEGAL_MESSAGE_TAG", f"the tag is {self.tag[:64]!r}, and must have no | and not be blank")
        for key in self.keys:
            _check_text(key, "ILLEGAL_MESSAGE_KEY", "a key")
            if key and not key.strip():
                raise Refused("ILLEGAL_MESSAGE_KEY", f"a key is {key[:64]!r}, and must not be blank")
        _check_text(self.group, "ILLEGAL_MESSAGE_GROUP", "the message group", GROUP_SIZE_BYTES_MAX)
        if self.group and not self.group.strip():
            raise Refused("ILLEGAL_MESSAGE_GROUP", "the message group must not be blank")
        self._check_size()
        self._check_user()

    def _check_size(self) -> None:
        texts = [self.tag, *self.keys, *self.user.keys(), *self.user.values()]
        if UTF8_SIZE_BYTES_MAX * sum(map(len, texts)) <= USER_PROPERTIES_SIZE_BYTES_MAX:
            return
        size = sum(len(text.encode()) for text in texts)
        if size > USER_PROPERTIES_SIZE_BYTES_MAX:
            text = f"user properties, tag and keys have {size} bytes, the limit is {USER_PROPERTIES_SIZE_BYTES_MAX}"
            raise Refused("MESSAGE_PROPERTIES_TOO_LARGE", text)

    def _check_user(self) -> None:
        code = "ILLEGAL_MESSAGE_PROPERTY_KEY"
        if len(self.user) > USER_PROPERTY_COUNT_MAX:
            text = f"the message has {len(self.user)} properties, the limit is {USER_PROPERTY_COUNT_MAX}"
            raise Refused("MESSAGE_PROPERTIES_TOO_LARGE", text)
        for name, value in self.user.items():
            if is_forbidden(name):
                raise Refused(code, f"the property {name[:64]} is the store's own: give it another name")
            if not name:
                raise Refused(code, "a property must have a name")
            _check_text(name + value, code, f"the property {name[:64]!r}")

    def properties(self, born_ms: int) -> dict[str, str]:
        """Return the properties to store, without empty values. `born_ms` 0 means that the born time is unknown."""
        own = {
            UNIQ_KEY: self.id,
            TAGS: self.tag,
            KEYS: " ".join(filter(None, self.keys)),
            GROUP: self.group,
            TRACE: self.trace,
            BORN_HOST: self.born_host,
            BORN_TIME: str(born_ms) if born_ms else "",
            TRANSACTION: "true" if self.producer_group else "",
            PRODUCER_GROUP: self.producer_group,
            IMMUNITY: str(self.immunity_s) if self.immunity_s else "",
            DELIVERY_TIME: str(self.deliver_ms) if self.deliver_ms else "",
        }
        return {name: value for name, value in (*self.user.items(), *own.items()) if value}


def from_properties(properties: Mapping[str, str], offset_message_id: str) -> Message:
    """Return a stored message as clients see it. A message without an id gets its offset message id."""
    return Message(
        id=properties.get(UNIQ_KEY) or offset_message_id,
        tag=properties.get(TAGS, ""),
        keys=[key for key in properties.get(KEYS, "").split(" ") if key],
        group=properties.get(GROUP, ""),
        user=_shown(properties),
        born_host=properties.get(BORN_HOST, ""),
        trace=properties.get(TRACE, ""),
        deliver_ms=int(time)
        if (time := properties.get(DELIVERY_TIME, "")).isdecimal() and len(time) < TIME_DIGITS
        else 0,
        origin_topic=properties.get(ORIGIN_TOPIC, ""),
        origin_id=properties.get(ORIGIN_ID, ""),
    )


def kind_of(properties: Mapping[str, str]) -> str:
    """Return the kind of a stored message, by its name in the protocol."""
    if properties.get(TRANSACTION) == "true":
        return "TRANSACTION"
    if any(name in properties for name in DELAYS):
        return "DELAY"
    return "FIFO" if GROUP in properties else "NORMAL"


def is_forbidden(name: str) -> bool:
    """Return whether producers can't set a property of this name."""
    return name in FORBIDDEN or name.startswith("TIMER_")


def _shown(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that consumers see, as RocketMQ's proxy shows them."""
    user = {name: value for name, value in properties.items() if name not in HIDDEN and not name.startswith("TIMER_")}
    if properties.get(TRANSACTION) == "true" and UNIQ_KEY in properties:
        user[TRANSACTION_ID] = properties[UNIQ_KEY]
    return user


def digest_of(body: bytes, kind: str = "MD5") -> str:
    """Return a body's digest as clients write it."""
    return DIGESTS[kind](body).hexdigest().upper()


def check_digest(body: bytes, kind: str, digest: str) -> None:
    """Return if the body matches its digest, or if the digest is of a kind that is not checked. Raises Refused."""
    if kind in DIGESTS and digest_of(body, kind) != digest.upper():
        raise Refused("MESSAGE_CORRUPTED", f"the body is not what its {kind} says: send it again")


def _check_text(text: str, code: str, what: str, size_bytes_max: int | None = None) -> None:
    """Return if a text can be stored. A text without its own limit is limited by the user properties' size."""
    if size_bytes_max is not None and (size := len(text.encode())) > size_bytes_max:
        raise Refused(code, f"{what} has {size} bytes, the limit is {size_bytes_max}")
    if CONTROL.search(text):
        raise Refused(code, f"{what} must have no control characters")
