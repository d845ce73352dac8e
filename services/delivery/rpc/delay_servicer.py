# SPDX-License-Identifier: Apache-2.0
"""DelayServicer: the gRPC service DelayService of this process."""

from google.protobuf.duration import from_milliseconds
from reput.delivery.v1 import delay_service_pb2 as messages

from libs.formats.limits import INT64_MAX, PROPERTIES_SIZE_BYTES_MAX
from libs.requests import arguments
from libs.requests.checks import size_of_page
from libs.requests.errors import BadArgument
from libs.requests.page_token import decode_token, encode_token
from libs.runtime.rpc.timestamps import timestamp
from libs.runtime.version import VERSION
from services.delivery.engine.delays.level import DelayLevel
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.ports.timers import Timed

PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX = 100, 500
LIST = "delayed messages"
BEGIN = (-1, -1)


class DelayServicer:
    """Lists and cancels delayed messages."""

    def __init__(self, owner: JournalOwner, start_time_ms: int = 0) -> None:
        self._owner, self._start_time_ms = owner, start_time_ms

    async def ListDelayed(self, request: messages.ListDelayedRequest, _: object) -> messages.ListDelayedResponse:
        """Return a page of messages that wait. The token is the due time and queue offset of the last message."""
        asking = (await self._owner.engine()).delay_queries
        count = size_of_page(request, "page_size", default=PAGE_SIZE_DEFAULT, most=PAGE_SIZE_MAX)
        topic = arguments.topic(request.topic) if request.topic else ""
        start_ms, end_ms = arguments.time_ms(request, "start_time"), arguments.time_ms(request, "end_time")
        if request.key:
            if start_ms is not None or end_ms is not None:
                raise BadArgument("goes with no time", field="key", value=request.key[: arguments.TEXT_SHOWN])
            found = await asking.by_key(topic, _word(request.key, "key"))
            return messages.ListDelayedResponse(messages=map(_message, found[:count]))
        asked = (topic, start_ms, end_ms)
        after = decode_token(LIST, asked, request.page_token, tuple[int, int]) or BEGIN
        last_ms = INT64_MAX if end_ms is None else end_ms
        found, more = await asking.between(start_ms or 0, last_ms, after, count)
        token = "" if more is None else encode_token(LIST, asked, more)
        shown = [one for one in found if topic in ("", one.topic)]
        return messages.ListDelayedResponse(messages=map(_message, shown), next_page_token=token)

    async def CancelDelayed(self, request: messages.CancelDelayedRequest, _: object) -> messages.CancelDelayedResponse:
        """Cancel a delayed message."""
        topic, message_id = arguments.topic(request.topic), _word(request.message_id, "message_id")
        cancelled = await (await self._owner.engine()).delay_queries.cancel(topic, message_id)
        return messages.CancelDelayedResponse(message=_message(cancelled))

    async def GetDelayLevels(
        self, _request: messages.GetDelayLevelsRequest, _: object
    ) -> messages.GetDelayLevelsResponse:
        """Return the delay levels."""
        levels = (await self._owner.engine()).delay_levels.levels
        return messages.GetDelayLevelsResponse(
            levels=map(_level, levels), version=VERSION, start_time=timestamp(self._start_time_ms or None)
        )


def _word(text: str, field: str) -> str:
    """Return a key or an id. Raises BadArgument."""
    if not text or " " in text or len(text.encode()) > PROPERTIES_SIZE_BYTES_MAX:
        reason = f"must be 1 to {PROPERTIES_SIZE_BYTES_MAX} bytes without spaces"
        raise BadArgument(reason, field=field, value=text[: arguments.TEXT_SHOWN], limit=PROPERTIES_SIZE_BYTES_MAX)
    return text


def _level(level: DelayLevel) -> messages.DelayLevel:
    return messages.DelayLevel(
        level=level.place.queue_id + 1,
        delay=from_milliseconds(level.delay_ms),
        waiting_count=level.waiting_count,
        lateness=from_milliseconds(level.lateness_ms),
        last_error=str(level.loop.last_error) if level.is_blocked else "",
    )


def _message(timed: Timed) -> messages.DelayedMessage:
    return messages.DelayedMessage(
        message=timed.message, topic=timed.topic, delivery_time=timestamp(timed.due_ms), message_id=timed.unique_id
    )
