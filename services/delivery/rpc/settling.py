# SPDX-License-Identifier: Apache-2.0
"""Conversions that the calls of DeliveryService share: filters, requests to settle and outcomes, and protobuf."""

import functools
from collections.abc import Iterable, Sequence

from reput.delivery.v1 import delivery_service_pb2 as messages

from libs.filters.property_filter import parse_where
from libs.filters.tag_expression import parse_tags, text_of
from libs.formats import fields
from libs.formats.protobuf_wire import int_field, length_delimited
from libs.requests import arguments
from libs.requests.errors import BadArgument
from libs.runtime.rpc.errors import status_of
from libs.runtime.rpc.timestamps import timestamp
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleOutcome, SettleRequest
from services.delivery.rpc.error_table import ERROR_TABLE
from services.delivery.rpc.log.stored import StoredContent
from services.delivery.rpc.policies import DELAY_MS_MAX

ENTRY_COUNT_MAX = 1_000
ATTEMPT_ID_SIZE_BYTES_MAX = 100
UNTIL_COUNT = 64
"""Serialized times that are kept."""
_DONE = messages.SettleOutcome()


def wanted_of(request: messages.ReceiveRequest | messages.ConsumeBegin, prefix: str = "") -> Wanted:
    """Return the filter of a request, equal for equal filters: tags sorted, each once, without spaces around them.

    `prefix` is the path to the fields. Raises BadArgument.
    """
    tags = parse_tags(request.tag_expression, field=f"{prefix}tag_expression")
    return Wanted(text_of(tags), parse_where(request.where, field=f"{prefix}where").text.strip())


def invisible_ms_of(request: messages.ReceiveRequest | messages.ConsumeBegin, prefix: str = "") -> int | None:
    """Return for how long messages are the caller's, None for the policy's time. Raises BadArgument."""
    return arguments.duration_ms(request, "invisible", prefix, least=1, most=DELAY_MS_MAX)


def attempt_id_of(request: messages.ReceiveRequest) -> str:
    """Return the id by which a receive may be repeated, "" for none. Raises BadArgument."""
    size_bytes = len(request.attempt_id.encode())
    if size_bytes > ATTEMPT_ID_SIZE_BYTES_MAX:
        reason = f"must have at most {ATTEMPT_ID_SIZE_BYTES_MAX} bytes"
        raise BadArgument(reason, field="attempt_id", value=size_bytes, limit=ATTEMPT_ID_SIZE_BYTES_MAX)
    return request.attempt_id


def settle_requests_of(entries: Sequence[messages.SettleEntry], prefix: str = "") -> list[SettleRequest]:
    """Return the requests to settle of these entries. Raises BadArgument."""
    count = len(entries)
    if not 1 <= count <= ENTRY_COUNT_MAX:
        reason = f"must be 1 to {ENTRY_COUNT_MAX}"
        raise BadArgument(reason, field=f"{prefix}entries", value=count, limit=ENTRY_COUNT_MAX if count else 1)
    return [
        SettleRequest(entry.handle, "ack")
        if entry.HasField("ack")
        else _settle_request(entry, f"{prefix}entries[{index}].")
        for index, entry in enumerate(entries)
    ]


def messages_of(delivered: Iterable[Delivered], number: int) -> bytes:
    """Return delivered messages as serialized fields of this number, 1 to 15, that are ReceivedMessages."""
    return b"".join(length_delimited(number, _received(one)) for one in delivered)


def outcome_of(outcome: SettleOutcome) -> messages.SettleOutcome:
    """Return the outcome of a request as the API shows it."""
    if outcome.error is not None:
        return messages.SettleOutcome(error=status_of(outcome.error, ERROR_TABLE))
    return messages.SettleOutcome(handle=outcome.handle) if outcome.handle else _DONE


def _settle_request(entry: messages.SettleEntry, path: str) -> SettleRequest:
    verb = entry.WhichOneof("action")
    if verb == "nack":
        delay_ms = arguments.duration_ms(entry.nack, "delay", f"{path}nack.", most=DELAY_MS_MAX)
        return SettleRequest(entry.handle, verb, delay_ms, is_untried=entry.nack.is_untried)
    if verb == "extend":
        delay_ms = arguments.duration_ms(entry.extend, "invisible", f"{path}extend.", least=1, most=DELAY_MS_MAX)
        return SettleRequest(entry.handle, verb, delay_ms, keeps_handle=entry.extend.keeps_handle)
    if verb is None:
        raise BadArgument("one of ack, nack, extend, terminate and bury must be set", field=f"{path}action")
    return SettleRequest(entry.handle, verb)


def _received(delivered: Delivered) -> bytes:
    content: StoredContent = delivered.message
    handle = delivered.handle.encode()
    return b"".join(
        (
            content.field(fields.RECEIVED_MESSAGE_MESSAGE),
            length_delimited(fields.RECEIVED_MESSAGE_HANDLE, handle),
            int_field(fields.RECEIVED_MESSAGE_ATTEMPT, delivered.attempt),
            _until(delivered.until_ms),
        )
    )


@functools.lru_cache(UNTIL_COUNT)
def _until(until_ms: int) -> bytes:
    """Return the field of the time until which a message is its receiver's. Messages of an answer have the same."""
    until = messages.ReceivedMessage(invisible_until=timestamp(until_ms))
    return until.SerializeToString()
