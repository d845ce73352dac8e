# SPDX-License-Identifier: Apache-2.0
"""DeliveryService over what this process delivers."""

from reput.delivery.v1 import delivery_service_pb2 as messages

from libs.filters.property_filter import parse_where
from libs.requests import arguments
from libs.requests.checks import size_of_page
from libs.requests.errors import BadArgument
from libs.runtime.rpc.errors import status_of
from libs.runtime.rpc.timestamps import timestamp
from services.delivery.engine.owned import Outcome, Wish
from services.delivery.engine.ownership import Ownership
from services.delivery.engine.ports import Wanted
from services.delivery.engine.subscription import Delivered
from services.delivery.rpc.error_table import ERROR_TABLE
from services.delivery.rpc.names import group_name

COUNT_DEFAULT = 32
WAIT_MAX_S = 30.0
DELAY_MS_MAX = 12 * 3_600_000
ENTRY_COUNT_MAX = 1_000
TAGS_SIZE_MAX, TAG_COUNT_MAX = 32_767, 1_000
"""As the Indexer has them, which is asked later on."""


class DeliveryServicer:
    """Answers the two calls."""

    def __init__(self, ownership: Ownership, *, receive_count_max: int) -> None:
        self._ownership = ownership
        self._receive_count_max = receive_count_max

    async def Receive(self, request: messages.ReceiveRequest, _: object) -> messages.ReceiveResponse:
        """Return messages that are the caller's for a while."""
        owned = await self._ownership.owned()
        delivered = await owned.receive(
            group_name(request.group),
            arguments.topic(request.topic),
            count=size_of_page(request, "message_count_max", default=COUNT_DEFAULT, most=self._receive_count_max),
            invisible_ms=arguments.duration_ms(request, "invisible", least=1, most=DELAY_MS_MAX),
            wanted=Wanted(_tags(request.tag_expression), parse_where(request.where, field="where").text),
            wait_s=arguments.wait_s(request, "wait", most_s=WAIT_MAX_S),
        )
        return messages.ReceiveResponse(messages=map(_message, delivered))

    async def Settle(self, request: messages.SettleRequest, _: object) -> messages.SettleResponse:
        """Do as the entries say."""
        count = len(request.entries)
        if not 1 <= count <= ENTRY_COUNT_MAX:
            reason = f"must be 1 to {ENTRY_COUNT_MAX}"
            raise BadArgument(reason, field="entries", value=count, limit=ENTRY_COUNT_MAX if count else 1)
        wishes = [_wish(entry, f"entries[{index}].") for index, entry in enumerate(request.entries)]
        outcomes = await (await self._ownership.owned()).settle(wishes)
        return messages.SettleResponse(outcomes=map(_outcome, outcomes))


def _tags(expression: str) -> str:
    size = len(expression.encode())
    if size > TAGS_SIZE_MAX:
        reason = f"must be at most {TAGS_SIZE_MAX} bytes"
        raise BadArgument(reason, field="tag_expression", value=size, limit=TAGS_SIZE_MAX)
    count = expression.count("||") + 1
    if count > TAG_COUNT_MAX:
        raise BadArgument(f"may have {TAG_COUNT_MAX} tags", field="tag_expression", value=count, limit=TAG_COUNT_MAX)
    return expression or "*"


def _message(delivered: Delivered) -> messages.ReceivedMessage:
    return messages.ReceivedMessage(
        message=delivered.message,
        handle=delivered.handle,
        attempt=delivered.attempt,
        invisible_until=timestamp(delivered.until_ms),
    )


def _wish(entry: messages.SettleEntry, path: str) -> Wish:
    verb = entry.WhichOneof("action")
    if verb == "nack":
        return Wish(entry.handle, verb, arguments.duration_ms(entry.nack, "delay", f"{path}nack.", most=DELAY_MS_MAX))
    if verb == "extend":
        delay_ms = arguments.duration_ms(entry.extend, "invisible", f"{path}extend.", least=1, most=DELAY_MS_MAX)
        return Wish(entry.handle, verb, delay_ms, keeps_handle=entry.extend.keeps_handle)
    if verb is None:
        raise BadArgument("one of ack, nack, extend, terminate and bury must be set", field=f"{path}action")
    return Wish(entry.handle, verb)


def _outcome(outcome: Outcome) -> messages.SettleOutcome:
    if outcome.error is not None:
        return messages.SettleOutcome(error=status_of(outcome.error, ERROR_TABLE))
    return messages.SettleOutcome(handle=outcome.handle)
