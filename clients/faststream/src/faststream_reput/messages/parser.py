# SPDX-License-Identifier: Apache-2.0
"""From a stored message to FastStream's message: body, headers, ids."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faststream.message import StreamMessage, decode_message

from faststream_reput.messages.delivery import Delivery
from faststream_reput.messages.message import ReputBatchMessage, ReputMessage

if TYPE_CHECKING:
    from faststream._internal.basic_types import DecodedMessage

CONTENT_TYPE, CORRELATION_ID, REPLY_TO = "content-type", "correlation_id", "reply_to"
"""The properties that have FastStream's own fields."""
OF_THE_STORE = frozenset({"TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "CLUSTER", "REAL_TOPIC", "REAL_QID", "PGROUP"})
PREFIXES_OF_THE_STORE = ("__", "TIMER_", "TRAN_", "DLQ_")


class ReputParser:
    """Parses single messages, also replies."""

    async def parse_message(self, delivery: Delivery) -> ReputMessage:
        """Return FastStream's message for a delivery."""
        stored = delivery.message
        headers = headers_of(stored.properties)
        return ReputMessage(
            raw_message=delivery,
            body=stored.body,
            headers=headers,
            reply_to=headers.get(REPLY_TO, ""),
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=headers.get(CORRELATION_ID),
            message_id=stored.unique_id or stored.offset_message_id,
        )

    async def decode_message(self, message: "StreamMessage[Any]") -> "DecodedMessage":
        """Return the decoded body."""
        return decode_message(message)


class ReputBatchParser(ReputParser):
    """Parses messages that a handler gets together."""

    async def parse_batch(self, deliveries: tuple[Delivery, ...]) -> ReputBatchMessage:
        """Return FastStream's message for deliveries. It has the headers of the first."""
        batch_headers = [headers_of(one.message.properties) for one in deliveries]
        first = batch_headers[0] if batch_headers else {}
        return ReputBatchMessage(
            raw_message=deliveries,
            body=[one.message.body for one in deliveries],
            headers=first,
            batch_headers=batch_headers,
            content_type=first.get(CONTENT_TYPE),
            correlation_id=first.get(CORRELATION_ID),
        )

    async def decode_batch(self, message: "StreamMessage[tuple[Delivery, ...]]") -> "list[DecodedMessage]":
        """Return the decoded bodies."""
        return [decode_message(await self.parse_message(one)) for one in message.raw_message]


def headers_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the program set, without the store's own."""
    return {
        name: value
        for name, value in properties.items()
        if name not in OF_THE_STORE and not name.startswith(PREFIXES_OF_THE_STORE)
    }
