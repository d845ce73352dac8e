# SPDX-License-Identifier: Apache-2.0
"""ReputRouter, and the routes and publishers that it takes as values."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional

from faststream._internal.broker.router import ArgsContainer, BrokerRouter, SubscriberRoute
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from faststream_reput.broker.registrator import ReputRegistrator
from faststream_reput.config import ReputBrokerConfig

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.basic_types import SendableMessage
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class ReputRoutePublisher(ArgsContainer):
    """A publisher of a route. Its arguments are the arguments of `router.publisher`."""

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)


class ReputRoute(SubscriberRoute):
    """A subscriber of a router as a value. Its arguments are the arguments of `router.subscriber`."""

    def __init__(
        self,
        call: "Callable[..., SendableMessage] | Callable[..., Awaitable[SendableMessage]]",
        topic: str,
        *,
        publishers: Iterable[ReputRoutePublisher] = (),
        **options: Any,
    ) -> None:
        super().__init__(call, topic, publishers=publishers, **options)


class ReputRouter(ReputRegistrator, BrokerRouter[Any, ReputBrokerConfig]):
    """Subscribers and publishers that a broker includes, with a common prefix, group and middlewares."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[ReputRoute] = (),
        *,
        group: str = "",
        dependencies: "Sequence[Dependant]" = (),
        middlewares: "Sequence[BrokerMiddleware[Any, Any]]" = (),
        routers: Iterable[ReputRegistrator] = (),
        parser: Optional["CustomCallable"] = None,
        decoder: Optional["CustomCallable"] = None,
        codec: Optional["CodecProto"] = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        config = ReputBrokerConfig(
            prefix=prefix,
            group=group,
            ack_policy=ack_policy,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            include_in_schema=include_in_schema,
        )
        super().__init__(handlers=handlers, config=config, routers=routers)
