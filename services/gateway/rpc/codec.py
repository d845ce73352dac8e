# SPDX-License-Identifier: Apache-2.0
"""Translation of messages between the protocol and the store."""

import functools
from collections.abc import Sequence
from typing import Literal

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.common.v1.message_pb2 import Host, StoredMessage
from reput.delivery.v1.delivery_service_pb2 import ReceivedMessage
from reput.delivery.v1.transaction_service_pb2 import TransactionCheck

from libs.formats.records.host import Host as StoredHost
from libs.formats.records.record import born_time_within
from libs.formats.records.transaction_record import IMMUNITY_S_MAX
from libs.runtime.rpc.timestamps import timestamp
from services.gateway.engine import messages
from services.gateway.engine.bodies import ZLIB_FLAGS, Bodies
from services.gateway.errors import Refused
from services.gateway.rpc.caller import Caller
from services.gateway.rpc.wire import messaging_pb2 as wire

OtherField = Literal["lite_topic", "priority"]

NOT_YET = {
    wire.MESSAGE_TYPE_LITE: "lite",
    wire.MESSAGE_TYPE_PRIORITY: "priority",
}
OF_OTHER_KINDS: Sequence[OtherField] = (
    "lite_topic",
    "priority",
)
"""Fields of messages of kinds that are not served."""

IMMUNITY_MS_MAX = 1000 * IMMUNITY_S_MAX

KINDS = {
    "NORMAL": wire.MESSAGE_TYPE_NORMAL,
    "FIFO": wire.MESSAGE_TYPE_FIFO,
    "DELAY": wire.MESSAGE_TYPE_DELAY,
    "TRANSACTION": wire.MESSAGE_TYPE_TRANSACTION,
}
"""The types of messages, by the kinds of `messages.kind_of`."""
ENCODINGS = (wire.ENCODING_UNSPECIFIED, wire.ENCODING_IDENTITY, wire.ENCODING_GZIP)
HOST_COUNT = 1_024
"""Texts of hosts that are kept."""
DIGEST_NAMES = {wire.DIGEST_TYPE_MD5: "MD5", wire.DIGEST_TYPE_SHA1: "SHA1"}


async def to_store(
    sent: wire.Message, topic: str, caller: Caller, bodies: Bodies, *, body_size_bytes_max: int
) -> AppendMessage:
    """Return a sent message in the form for the append. Raises Refused."""
    system, group, is_half = sent.system_properties, group_of(sent), is_transaction(sent)
    _check_kind(system, is_half=is_half, is_fifo=bool(group))
    if system.body_encoding not in ENCODINGS:
        text = f"body_encoding is {system.body_encoding}, and must be IDENTITY ({wire.ENCODING_IDENTITY}) or GZIP"
        raise Refused("BAD_REQUEST", f"{text} ({wire.ENCODING_GZIP})")
    if not (body := sent.body):
        raise Refused("MESSAGE_BODY_EMPTY", "the message has no body")
    if len(body) > body_size_bytes_max:
        text = f"the body has {len(body)} bytes, the limit is {body_size_bytes_max}"
        raise Refused("MESSAGE_BODY_TOO_LARGE", text)
    digest = system.body_digest
    messages.check_digest(body, DIGEST_NAMES.get(digest.type, ""), digest.checksum)
    message = messages.Message(
        id=system.message_id,
        tag=system.tag,
        keys=system.keys,
        group=group,
        user=sent.user_properties,
        born_host=system.born_host,
        trace=system.trace_context or sent.user_properties.get(messages.TRACE, ""),
        producer_group=topic if is_half else "",
        immunity_s=-(-milliseconds(system.orphaned_transaction_recovery_duration) // 1000) if is_half else 0,
        deliver_ms=delivery_ms(system),
    )
    message.check()
    born_ms = milliseconds(system.born_timestamp)
    is_packed = system.body_encoding == wire.ENCODING_GZIP
    return AppendMessage(
        topic=topic,
        body=await bodies.packed(body) if is_packed else body,
        properties=message.properties(born_ms),
        sys_flag=ZLIB_FLAGS if is_packed else 0,
        born_time_ms=born_time_within(born_ms),
        born_host=caller.host(),
    )


def is_transaction(sent: wire.Message) -> bool:
    """Return whether a message is a half message: consumers see it only if its producer commits the transaction."""
    return sent.system_properties.message_type == wire.MESSAGE_TYPE_TRANSACTION


def group_of(sent: wire.Message) -> str:
    """Return the message group. A producer may set it as the property in which RocketMQ stores it."""
    return sent.system_properties.message_group or sent.user_properties.get(messages.GROUP, "")


def delivery_ms(system: wire.SystemProperties) -> int:
    """Return the delivery time in ms, at least 1 ms after 1970, and 0 if the message has no delivery time."""
    return max(milliseconds(system.delivery_timestamp), 1) if system.HasField("delivery_timestamp") else 0


def _check_kind(system: wire.SystemProperties, *, is_half: bool, is_fifo: bool) -> None:
    """Return if a message is of a kind that is served. Raises Refused.

    The fields decide about the kind, as with RocketMQ's proxy: some libraries give every message the type NORMAL, also
    a message with a message group or a delivery time. A message without the field that its type needs is refused.
    """
    what = NOT_YET.get(system.message_type)
    if what is not None:
        raise Refused("UNSUPPORTED", f"{what} messages are not served yet")
    for field in OF_OTHER_KINDS:
        if system.HasField(field):
            raise Refused("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", f"{field} belongs to messages that are not served yet")
    is_delayed = system.HasField("delivery_timestamp")
    if system.HasField("orphaned_transaction_recovery_duration"):
        if not is_half:
            text = "orphaned_transaction_recovery_duration belongs to messages of the type TRANSACTION"
            raise Refused("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)
        immunity_ms = milliseconds(system.orphaned_transaction_recovery_duration)
        if not 0 <= immunity_ms <= IMMUNITY_MS_MAX:
            text = f"orphaned_transaction_recovery_duration is {immunity_ms} ms, and must be 0 to {IMMUNITY_MS_MAX}"
            raise Refused("BAD_REQUEST", text)
    if is_half and is_fifo:
        text = "a message of the type TRANSACTION must have no message group"
        raise Refused("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)
    if is_half and is_delayed:
        text = "a message of the type TRANSACTION must have no delivery time"
        raise Refused("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)
    if system.message_type == wire.MESSAGE_TYPE_DELAY and not is_delayed:
        raise Refused("ILLEGAL_DELIVERY_TIME", "a message of the type DELAY must have a delivery time")
    if is_delayed and is_fifo:
        text = "a message has a delivery time or a message group, not both"
        raise Refused("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)
    if system.message_type == wire.MESSAGE_TYPE_FIFO and not is_fifo:
        raise Refused("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "a message of the type FIFO must have a message group")


async def to_client(
    received: ReceivedMessage, caller: Caller, bodies: Bodies, *, invisible_ms: int | None
) -> wire.Message:
    """Return a message as its consumer gets it, with all fields that libraries need."""
    message = await _shown(received.message, caller, bodies)
    system = message.system_properties
    system.receipt_handle = received.handle
    system.delivery_attempt = received.attempt
    if invisible_ms is not None:
        system.invisible_duration.CopyFrom(Duration(seconds=invisible_ms // 1000, nanos=invisible_ms % 1000 * 10**6))
    return message


async def question(check: TransactionCheck, caller: Caller, bodies: Bodies) -> wire.TelemetryResponse:
    """Return the question to a producer about a transaction."""
    return wire.TelemetryResponse(
        recover_orphaned_transaction_command=wire.RecoverOrphanedTransactionCommand(
            message=await _shown(check.message, caller, bodies), transaction_id=check.transaction.transaction_id
        )
    )


async def _shown(stored: StoredMessage, caller: Caller, bodies: Bodies) -> wire.Message:
    """Return a stored message as clients see it.

    The encoding of a body that can't be inflated is IDENTITY, too: a library that can't inflate a body drops all
    messages of the same answer.
    """
    properties = {name: stored.properties[name] for name in stored.properties}
    message = messages.from_properties(properties, stored.offset_message_id)
    body = await bodies.inflated(stored.body, stored.sys_flag)
    system = wire.SystemProperties(
        keys=message.keys,
        message_id=message.id,
        body_digest=wire.Digest(type=wire.DIGEST_TYPE_MD5, checksum=body.digest),
        body_encoding=wire.ENCODING_IDENTITY,
        message_type=KINDS[messages.kind_of(properties)],
        born_timestamp=timestamp(stored.born_time_ms),
        born_host=message.born_host or host_text(stored.born_host),
        store_timestamp=timestamp(stored.store_time_ms),
        store_host=host_text(stored.store_host),
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
    )
    if message.tag:
        system.tag = message.tag
    if message.group:
        system.message_group = message.group
    if message.deliver_ms and (delivery_time := timestamp(message.deliver_ms)) is not None:
        system.delivery_timestamp.CopyFrom(delivery_time)
    if message.trace:
        system.trace_context = message.trace
    if message.origin_topic:
        origin = wire.DeadLetterQueue(topic=message.origin_topic, message_id=message.origin_id)
        system.dead_letter_queue.CopyFrom(origin)
    topic = caller.shown(stored.topic)
    user = {**message.user, messages.BODY_FAULT: body.fault} if body.fault else message.user
    return wire.Message(topic=topic, user_properties=user, system_properties=system, body=body.data)


def host_text(host: Host) -> str:
    """Return a host as text, "" without an address."""
    return _host_text(host.address, host.port) if host.address else ""


@functools.lru_cache(HOST_COUNT)
def _host_text(address: bytes, port: int) -> str:
    return str(StoredHost(address, port))


def milliseconds(time: Timestamp | Duration) -> int:
    """Return a time or duration in whole milliseconds."""
    return time.seconds * 1000 + time.nanos // 1_000_000
