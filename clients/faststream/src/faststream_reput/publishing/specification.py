# SPDX-License-Identifier: Apache-2.0
"""The AsyncAPI description of a publisher."""

from dataclasses import dataclass

from faststream._internal.configs import PublisherSpecificationConfig
from faststream._internal.endpoint.publisher import PublisherSpecification
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message, Operation, PublisherSpec

from faststream_reput.config import ReputBrokerConfig


@dataclass(kw_only=True)
class ReputPublisherSpecificationConfig(PublisherSpecificationConfig):
    """The description of a publisher."""

    topic: str


class ReputPublisherSpecification(PublisherSpecification[ReputBrokerConfig, ReputPublisherSpecificationConfig]):
    """A channel for each topic."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """The topic with the prefixes of the routers."""
        return f"{self._outer_config.prefix}{self.config.topic}"

    @property
    def name(self) -> str:
        """The name of the channel."""
        return self.config.title_ or f"{self.topic}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """Return the channel. AsyncAPI has no bindings for Reput."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        message = Message(title=f"{self.name}:Message", payload=payload)
        return {
            self.name: PublisherSpec(
                address=self.topic,
                description=self.config.description_,
                operation=Operation(message=message, bindings=None),
                bindings=None,
            )
        }
