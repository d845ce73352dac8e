# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for their time: list them, take them back."""

from collections.abc import AsyncIterator

from reput.delivery.v1 import delay_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.core.call import Call
from reput_client.core.sharing.delayed import DelayedMessage, delayed_of
from reput_client.core.types import TimeLike, to_timestamp


class AsyncDelayedMessages:
    """Messages that were sent with `deliver_at` or `delay_s`, and wait."""

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
        """Yield messages that wait, for a topic or for all, and are due in [start, end), the earliest first.

        With a `key`, or unique id, and no time: those that have it. Fetches pages as needed.
        """
        request = delay_service_pb2.ListDelayedRequest(
            topic=topic, key=key, start_time=to_timestamp(start), end_time=to_timestamp(end), page_size=page_size
        )
        return self._channels.pages(request, lambda page: map(delayed_of, page.messages))

    async def cancel(self, topic: str, message_id: str) -> DelayedMessage:
        """Take a message back before it is delivered, by the unique id or offset id that its sender was answered.

        Afterwards it never comes. Raises FailedPreconditionError (DELAYED_TOO_LATE) if it was delivered, and
        NotFoundError. May be repeated.
        """
        request = delay_service_pb2.CancelDelayedRequest(topic=topic, message_id=message_id)
        return await self._channels.run(Call(request, lambda answer: delayed_of(answer.message)))
