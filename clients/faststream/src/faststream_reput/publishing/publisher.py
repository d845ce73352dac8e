# SPDX-License-Identifier: Apache-2.0
"""ReputPublisher: publishes to a topic, by a call or with the results of a handler."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from faststream._internal.configs import PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from reput_client import SendResult

from faststream_reput.config import ReputBrokerConfig
from faststream_reput.messages.message import ReputMessage
from faststream_reput.messages.response import ReputPublishCommand, Sending, SendingFields

if TYPE_CHECKING:
    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.endpoint.publisher import PublisherSpecification
    from faststream._internal.producer import ProducerProto
    from faststream._internal.types import PublisherMiddleware


@dataclass(kw_only=True)
class ReputPublisherConfig(PublisherUsecaseConfig):
    """The arguments of `broker.publisher`."""

    topic: str
    sending: Sending
    headers: dict[str, str]
    reply_to: str
    batch: bool


class ReputPublisher(PublisherUsecase):
    """Publishes to a topic. Arguments of a call take precedence over the declaration's."""

    __slots__ = ("_topic", "batch", "headers", "reply_to", "sending")

    _outer_config: ReputBrokerConfig

    def __init__(self, config: ReputPublisherConfig, specification: "PublisherSpecification[Any, Any]") -> None:
        super().__init__(config, specification)
        self._topic, self.sending, self.headers = config.topic, config.sending, config.headers
        self.reply_to, self.batch = config.reply_to, config.batch

    @property
    def topic(self) -> str:
        """The topic with the prefixes of the routers."""
        return f"{self._outer_config.prefix}{self._topic}"

    async def publish(
        self,
        message: "SendableMessage" = None,
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **sending: Unpack[SendingFields],
    ) -> SendResult:
        """Publish a message, and return where it is stored. Raises ReputError."""
        cmd = self._command(PublishType.PUBLISH, message, topic, headers, correlation_id, Sending(**sending))
        cmd.reply_to = reply_to or self.reply_to
        producer = self._outer_config.producer
        result: SendResult = await self._basic_publish(cmd, producer=producer, _extra_middlewares=())
        return result

    async def request(
        self,
        message: "SendableMessage" = None,
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        timeout: float | None = 30.0,
    ) -> ReputMessage:
        """Publish a message and return the reply. Raises TimeoutError without a reply in time."""
        cmd = self._command(PublishType.REQUEST, message, topic, headers, correlation_id, Sending())
        cmd.timeout = timeout
        reply: ReputMessage = await self._basic_request(cmd, producer=self._outer_config.producer)
        return reply

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable["PublisherMiddleware"]) -> None:
        """Publish the result of a handler."""
        cmd = ReputPublishCommand.from_cmd(cmd, batch=self.batch)
        cmd.destination = self.topic
        cmd.add_headers(self.headers, override=False)
        cmd.reply_to = cmd.reply_to or self.reply_to
        cmd.sending = cmd.sending.over(self.sending)
        publish = self._basic_publish_batch if self.batch else self._basic_publish
        await publish(cmd, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    def _command(
        self,
        kind: PublishType,
        message: "SendableMessage",
        topic: str,
        headers: dict[str, Any] | None,
        correlation_id: str | None,
        given: Sending,
    ) -> ReputPublishCommand:
        return ReputPublishCommand(
            message,
            topic=topic or self.topic,
            sending=given.over(self.sending),
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            _publish_type=kind,
        )


class ReputReplyPublisher(FakePublisher):
    """Publishes the result of a handler to the address that the message asks for."""

    __slots__ = ("address",)

    def __init__(self, producer: "ProducerProto[Any]", address: str) -> None:
        super().__init__(producer=producer)
        self.address = address

    def patch_command(self, cmd: PublishCommand) -> ReputPublishCommand:
        """Return the command with the address for replies."""
        reply = ReputPublishCommand.from_cmd(super().patch_command(cmd))
        reply.destination = self.address
        return reply
