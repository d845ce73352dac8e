# SPDX-License-Identifier: Apache-2.0
"""ReputBroker: FastStream's connection to a store."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Unpack

import reput_client.aio
from fast_depends import Provider, dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec
from reput_client import NotFoundError, ReputError, RetryPolicy, SendResult
from reput_client.aio import AsyncClient

from faststream_reput.broker.log import make_reput_logger_state
from faststream_reput.broker.registrator import ReputRegistrator
from faststream_reput.config import POLL_S, ReputBrokerConfig
from faststream_reput.messages.message import ReputMessage
from faststream_reput.messages.response import ReputPublishCommand, Sending, SendingFields
from faststream_reput.publishing.producer import ReputProducer

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from fast_depends.library.serializer import SerializerProto
    from faststream._internal.basic_types import LoggerProto, SendableMessage
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable
    from faststream.specification.schema.extra import Tag, TagDict

ADDRESS = "127.0.0.1:7101"
REPLY_TOPIC = "faststream-replies"


class ReputBroker(ReputRegistrator, BrokerUsecase[Any, AsyncClient, ReputBrokerConfig]):
    """Publishes to a store, and delivers its messages to handlers.

    Addresses and credentials are as in `reput_client.connect`: `store` is the address of the store, and a missing
    argument comes from the environment.
    `group` is the group of subscribers that name none. Requests read their replies from `reply_topic`.
    A stop waits for the calls that wait for a message, at most `poll_s` seconds.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        commitlog: str | None = None,
        indexer: str | None = None,
        delivery: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        key_file: str | None = None,
        server_name: str | None = None,
        token: str | Callable[[], str] | None = None,
        timeout_s: float | None = None,
        retry: RetryPolicy | None = None,
        group: str = "",
        reply_topic: str = REPLY_TOPIC,
        poll_s: float = POLL_S,
        graceful_timeout: float | None = 15.0,
        parser: Optional["CustomCallable"] = None,
        decoder: Optional["CustomCallable"] = None,
        codec: Optional["CodecProto"] = None,
        dependencies: "Sequence[Dependant]" = (),
        middlewares: "Sequence[BrokerMiddleware[Any, Any]]" = (),
        routers: Iterable[ReputRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        id_generator: Callable[[], str] = gen_cor_id,
        specification_url: str | None = None,
        protocol: str = "reput",
        protocol_version: str | None = None,
        description: str | None = None,
        specification_tags: "Iterable[Tag | TagDict]" = (),
        logger: Optional["LoggerProto"] = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Optional["SerializerProto"] = EMPTY,
        provider: Provider | None = None,
        context: ContextRepo | None = None,
    ) -> None:
        self._reply_topic, self._sender = reply_topic, ReputProducer(parser, decoder)
        config = ReputBrokerConfig(
            group=group,
            poll_s=poll_s,
            producer=self._sender,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            logger=make_reput_logger_state(logger=logger, log_level=log_level),
            fd_config=_injection(apply_types, serializer, provider, context),
            broker_dependencies=dependencies,
            graceful_timeout=graceful_timeout,
            ack_policy=ack_policy,
            id_generator=id_generator,
            extra_context={"broker": self},
        )
        addresses = {"store": store, "commitlog": commitlog, "indexer": indexer, "delivery": delivery}
        urls = (specification_url or store or commitlog or ADDRESS).split(",")
        super().__init__(
            config=config,
            specification=BrokerSpec(urls, protocol, protocol_version, description, specification_tags, None),
            routers=routers,
            **addresses,
            ca_file=ca_file,
            certificate_file=certificate_file,
            key_file=key_file,
            server_name=server_name,
            token=token,
            timeout_s=timeout_s,
            retry=retry,
        )

    async def start(self) -> None:
        """Connect and start the subscribers."""
        await self.connect()
        await super().start()

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Stop the subscribers, send the waiting messages, and close the connections."""
        await super().stop(exc_type, exc_val, exc_tb)
        client, self._connection = self._connection, None
        if client is not None:
            await self._sender.disconnect()
            self._own_config.connected = None
            await client.close()

    async def ping(self, timeout: float | None = None) -> bool:
        """Return whether the CommitLog answers within `timeout` seconds, None for the client's own time-out."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                await self._connection.topics.get(self._reply_topic)
        except NotFoundError:
            return True
        except (ReputError, TimeoutError):
            return False
        return True

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
        """Publish a message, and return where it is stored. Raises ReputError.

        `headers` become properties, as text. `keys` find the message later; messages with the same `sharding_key` stay
        in order. It is delivered after `delay_s` seconds or at `deliver_at`. `durability` is what the store waits for
        before it answers.
        """
        cmd = ReputPublishCommand(
            message,
            topic=topic,
            sending=Sending(**sending),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            _publish_type=PublishType.PUBLISH,
        )
        result: SendResult = await self._basic_publish(cmd, producer=self.config.producer)
        return result

    async def publish_batch(  # type: ignore[override]
        self,
        *messages: "SendableMessage",
        topic: str,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        **sending: Unpack[SendingFields],
    ) -> list[SendResult]:
        """Publish messages with the same fields together, and return where each is stored. Raises ReputError."""
        cmd = ReputPublishCommand(
            *messages,
            topic=topic,
            sending=Sending(**sending),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            _publish_type=PublishType.PUBLISH,
        )
        results: list[SendResult] = await self._basic_publish_batch(cmd, producer=self.config.producer)
        return results

    async def request(  # type: ignore[override]
        self,
        message: "SendableMessage" = None,
        topic: str = "",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        sharding_key: str | None = None,
        timeout: float | None = 30.0,
    ) -> ReputMessage:
        """Publish a message and return the reply. Raises TimeoutError without a reply in time, and ReputError."""
        cmd = ReputPublishCommand(
            message,
            topic=topic,
            sending=Sending(tag=tag, keys=keys, sharding_key=sharding_key),
            headers=headers,
            correlation_id=correlation_id or self.config.id_generator(),
            timeout=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: ReputMessage = await self._basic_request(cmd, producer=self.config.producer)
        return reply

    @property
    def _own_config(self) -> ReputBrokerConfig:
        return self.config.broker_config

    async def _connect(self) -> AsyncClient:
        client = reput_client.aio.connect(**self._connection_kwargs)
        config = self._own_config
        config.connected = client
        self._sender.connect(
            client,
            reply_topic=self._reply_topic,
            serializer=config.fd_config._serializer,
            codec=config.broker_codec,
        )
        return client


def _injection(
    apply_types: bool,
    serializer: Optional["SerializerProto"],
    provider: Provider | None,
    context: ContextRepo | None,
) -> FastDependsConfig:
    """Return how the arguments of handlers are filled."""
    return FastDependsConfig(
        use_fastdepends=apply_types,
        serializer=serializer,
        provider=provider or dependency_provider,
        context=context or ContextRepo(),
    )
