# SPDX-License-Identifier: Apache-2.0
"""ReputRegistrator: declares subscribers and publishers, of a broker or of a router."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.middlewares import AckPolicy
from reput_client import Durability, SharePolicy

from faststream_reput.config import ReputBrokerConfig
from faststream_reput.messages.response import Sending
from faststream_reput.publishing.publisher import ReputPublisher, ReputPublisherConfig
from faststream_reput.publishing.specification import ReputPublisherSpecification, ReputPublisherSpecificationConfig
from faststream_reput.subscribing.config import ReputSubscriberConfig
from faststream_reput.subscribing.specification import ReputSubscriberSpecification, ReputSubscriberSpecificationConfig
from faststream_reput.subscribing.subscriber import ReputBatchSubscriber, ReputSubscriber

if TYPE_CHECKING:
    from fast_depends.dependencies import Dependant
    from faststream._internal.parser import CodecProto
    from faststream._internal.types import BrokerMiddleware, CustomCallable


class ReputRegistrator(Registrator[Any, ReputBrokerConfig]):
    """Declares subscribers and publishers."""

    def subscriber(  # type: ignore[override]
        self,
        topic: str,
        *,
        group: str | None = None,
        policy: SharePolicy | None = None,
        tags: str = "*",
        where: str = "",
        max_workers: int = 1,
        batch: bool = False,
        max_records: int = 100,
        invisible_s: float | None = None,
        hold_s_max: float = 3600.0,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: "Sequence[Dependant]" = (),
        parser: Optional["CustomCallable"] = None,
        decoder: Optional["CustomCallable"] = None,
        codec: Optional["CodecProto"] = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> ReputSubscriber:
        """Declare a member of a group that shares the messages of a topic.

        `group` is the group's name, None for that of the router or broker. `policy` is set for the group at each start;
        without it the group keeps its policy. `tags` and `where` (docs/filters.md) apply to the whole group.

        Up to `max_workers` handlers run at the same time. With `batch` the handler gets a list of up to `max_records`
        messages that have arrived. Leases are extended by themselves, up to `hold_s_max` seconds; `invisible_s` is
        their length, None for that of the policy.
        """
        config = ReputSubscriberConfig(
            topic=topic,
            group=group,
            policy=policy,
            tags=tags,
            where=where,
            max_workers=max_workers,
            batch=batch,
            max_records=max_records,
            invisible_s=invisible_s,
            hold_s_max=hold_s_max,
            no_reply=no_reply,
            _outer_config=cast("ReputBrokerConfig", self.config),
            _ack_policy=ack_policy,
        )
        described = ReputSubscriberSpecificationConfig(
            topic=topic, title_=title, description_=description, include_in_schema=include_in_schema
        )
        calls = CallsCollection[Any]()
        specification = ReputSubscriberSpecification(cast("ReputBrokerConfig", self.config), described, calls)
        kind = ReputBatchSubscriber if batch else ReputSubscriber
        subscriber = kind(config, specification, calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        topic: str,
        *,
        headers: dict[str, str] | None = None,
        reply_to: str = "",
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        sharding_key: str | None = None,
        delay_s: float | None = None,
        durability: Durability | None = None,
        batch: bool = False,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> ReputPublisher:
        """Declare a publisher to a topic, with defaults for its messages.

        With `batch` each element of a list that a handler returns becomes a message.
        """
        sending = Sending(tag=tag, keys=keys, sharding_key=sharding_key, delay_s=delay_s, durability=durability)
        config = ReputPublisherConfig(
            topic=topic,
            sending=sending,
            headers=headers or {},
            reply_to=reply_to,
            batch=batch,
            _outer_config=cast("ReputBrokerConfig", self.config),
        )
        described = ReputPublisherSpecificationConfig(
            topic=topic, schema_=schema, title_=title, description_=description, include_in_schema=include_in_schema
        )
        specification = ReputPublisherSpecification(cast("ReputBrokerConfig", self.config), described)
        publisher = ReputPublisher(config, specification)
        super().publisher(publisher, persistent=persistent)
        return publisher

    def include_router(
        self,
        router: "ReputRegistrator",  # type: ignore[override]
        *,
        prefix: str = "",
        dependencies: "Sequence[Dependant]" = (),
        middlewares: "Sequence[BrokerMiddleware[Any, Any]]" = (),
        include_in_schema: bool | None = None,
    ) -> None:
        """Include the subscribers and publishers of a router. Raises TypeError for a router of another broker."""
        if not isinstance(router, ReputRegistrator):
            raise TypeError(f"router is a {type(router).__name__}: expected a ReputRouter")
        super().include_router(
            router,
            prefix=prefix,
            dependencies=dependencies,
            middlewares=middlewares,
            include_in_schema=include_in_schema,
        )
