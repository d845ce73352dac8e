# SPDX-License-Identifier: Apache-2.0
"""ReputProducer: encodes commands and sends them over the client, and waits for replies."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Optional

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import BatchCodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState
from reput_client import Durability, NewMessage, ProducerOptions, ReputError, SendResult
from reput_client.aio import AsyncClient, AsyncProducer

from faststream_reput.messages.delivery import Delivery
from faststream_reput.messages.parser import CONTENT_TYPE, CORRELATION_ID, REPLY_TO, ReputParser
from faststream_reput.messages.response import ReputPublishCommand
from faststream_reput.publishing.replies import Replies, split_address

if TYPE_CHECKING:
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import CustomCallable

REQUEST_TIMEOUT_S = 30.0


class ReputProducer(ProducerProto[ReputPublishCommand]):
    """Sends the messages of a broker. It has a producer of the client for each durability that is used."""

    def __init__(self, parser: Optional["CustomCallable"], decoder: Optional["CustomCallable"]) -> None:
        default = ReputParser()
        self._parser = ParserComposition(parser, default.parse_message)
        self._decoder = ParserComposition(decoder, default.decode_message)
        self.codec: CodecProto = DefaultCodec()
        self.serializer: SerializerProto | None = None
        self._client: AsyncClient | None = None
        self._replies: Replies | None = None
        self._senders: dict[Durability, AsyncProducer] = {}

    def connect(
        self,
        client: AsyncClient,
        *,
        reply_topic: str,
        serializer: Optional["SerializerProto"],
        codec: Optional["CodecProto"],
    ) -> None:
        """Send over this client from now on."""
        self._client, self._replies = client, Replies(client, reply_topic)
        self.serializer = serializer
        self.codec = codec or DefaultCodec()

    async def disconnect(self) -> None:
        """Wait for no more replies. The client closes its producers."""
        if self._replies is not None:
            await self._replies.close()
        self._client = self._replies = None
        self._senders.clear()

    async def publish(self, cmd: ReputPublishCommand) -> SendResult:
        """Send a message, and return where it is stored. Raises ReputError."""
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        return await self._send(cmd, body, content_type)

    async def publish_batch(self, cmd: ReputPublishCommand) -> list[SendResult]:
        """Send messages together, and return where each is stored. Raises the first error after all have an outcome."""
        encoded = await self._encode_all(cmd)
        messages = [new_message(cmd, body, content_type) for body, content_type in encoded]
        outcomes = await (await self._sender(cmd).send_batch(messages))
        results = [one for one in outcomes if not isinstance(one, ReputError)]
        if len(results) < len(outcomes):
            raise next(one for one in outcomes if isinstance(one, ReputError))
        return results

    async def request(self, cmd: ReputPublishCommand) -> Delivery:
        """Send a message and return its reply. Raises TimeoutError without a reply in time."""
        if self._replies is None:
            raise _not_connected()
        async with asyncio.timeout(REQUEST_TIMEOUT_S if cmd.timeout is None else cmd.timeout):
            reply = await self._replies.expect(cmd.correlation_id or "")
            try:
                cmd.reply_to = self._replies.address
                body, content_type = await self.codec.encode(cmd.body, self.serializer)
                await self._send(cmd, body, content_type)
                return Delivery(await reply)
            finally:
                reply.cancel()

    async def _send(self, cmd: ReputPublishCommand, body: bytes, content_type: str | None) -> SendResult:
        return await (await self._sender(cmd).send_message(new_message(cmd, body, content_type)))

    async def _encode_all(self, cmd: ReputPublishCommand) -> list[tuple[bytes, str | None]]:
        if isinstance(self.codec, BatchCodecProto):
            return await self.codec.encode_batch(cmd.batch_bodies, self.serializer)
        return [await self.codec.encode(body, self.serializer) for body in cmd.batch_bodies]

    def _sender(self, cmd: ReputPublishCommand) -> AsyncProducer:
        """Return the client's producer for the durability of a command."""
        if self._client is None:
            raise _not_connected()
        durability = cmd.sending.durability or Durability.DEFAULT
        if durability not in self._senders:
            self._senders[durability] = self._client.producer(ProducerOptions(durability=durability))
        return self._senders[durability]


def new_message(cmd: ReputPublishCommand, body: bytes, content_type: str | None) -> NewMessage:
    """Return the message of a command for the client."""
    topic, tag = split_address(cmd.destination)
    sending = cmd.sending
    return NewMessage(
        topic,
        body,
        tag=tag or sending.tag,
        keys=sending.keys,
        sharding_key=sending.sharding_key,
        delay_s=sending.delay_s,
        deliver_at=sending.deliver_at,
        properties=properties_of(cmd, content_type),
    )


def properties_of(cmd: ReputPublishCommand, content_type: str | None) -> Mapping[str, str]:
    """Return the properties of a command: its own fields, over its headers as text."""
    own = {CONTENT_TYPE: content_type, CORRELATION_ID: cmd.correlation_id, REPLY_TO: cmd.reply_to}
    headers = {name: str(value) for name, value in cmd.headers.items() if value is not None}
    return headers | {name: value for name, value in own.items() if value}


def _not_connected() -> IncorrectState:
    return IncorrectState("the broker is not connected: call `connect` or `start` first")
