# SPDX-License-Identifier: Apache-2.0
"""AsyncDelayedMessages: lists and cancels messages that wait for their delivery time, and shows delay levels."""

from collections.abc import AsyncIterator, Sequence

from reput.delivery.v1 import delay_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import Call
from reput_client.core.sharing.delayed import DelayedMessage, DelayLevel, delay_level_of, delayed_of
from reput_client.core.types import TimeLike, to_timestamp


class AsyncDelayedMessages:
    """Messages that were sent with `deliver_at` or `delay_s`, and that wait for their time."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels

    def list(
        self,
        topic: str = "",
        *,
        key: str = "",
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[DelayedMessage]:
        """Yield waiting messages of a topic, or of all topics, that are due in [start, end), the earliest first.

        With a `key` (or unique id) and no times it yields the messages that have this key. Fetches pages as needed.
        """
        request = delay_service_pb2.ListDelayedRequest(
            topic=topic, key=key, start_time=to_timestamp(start), end_time=to_timestamp(end), page_size=page_size
        )
        return self._channels.pages(request, lambda page: map(delayed_of, page.messages))

    async def cancel(self, topic: str, message_id: str) -> DelayedMessage:
        """Cancel a message before it is delivered, by the unique id or the offset message id of its SendResult.

        Afterwards it is never delivered. Raises FailedPreconditionError (DELAYED_TOO_LATE) if it was delivered, and
        NotFoundError. May be repeated.
        """
        request = delay_service_pb2.CancelDelayedRequest(topic=topic, message_id=message_id)
        return await self._channels.run(Call(request, lambda answer: delayed_of(answer.message)))

    async def levels(self) -> Sequence[DelayLevel]:
        """Return the delay levels, from level 1 on. Messages of delay levels are not listed or cancelled."""
        request = delay_service_pb2.GetDelayLevelsRequest()
        return await self._channels.run(Call(request, lambda answer: [delay_level_of(one) for one in answer.levels]))
