# SPDX-License-Identifier: Apache-2.0
"""The AsyncAPI description of a subscriber."""

from dataclasses import dataclass

from faststream._internal.configs import SubscriberSpecificationConfig
from faststream._internal.endpoint.subscriber import SubscriberSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, SubscriberSpec

from faststream_reput.config import ReputBrokerConfig


@dataclass(kw_only=True)
class ReputSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """The description of a subscriber."""

    topic: str


class ReputSubscriberSpecification(SubscriberSpecification[ReputBrokerConfig, ReputSubscriberSpecificationConfig]):
    """A channel for each topic and handler."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic with the prefixes of the routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def channel_labels(self) -> list[str]:
        """The topic, which names the channel."""
        return [self.topic]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """Return the channel. AsyncAPI has no bindings for Reput."""
        message = Message(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        return {
            self.name: SubscriberSpec(
                address=self.topic,
                description=self.description,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
