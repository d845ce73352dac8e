# SPDX-License-Identifier: Apache-2.0
"""ReputPublishCommand and ReputResponse: a message to publish with all that the store knows of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from faststream.response.publish_type import PublishType
from faststream.response.response import BatchPublishCommand, PublishCommand, Response
from reput_client import Durability

if TYPE_CHECKING:
    from faststream._internal.basic_types import SendableMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a message is sent: the fields of a message beside body and headers. None and empty mean not given."""

    tag: str | None = None
    keys: str | Sequence[str] = ()
    sharding_key: str | None = None
    delay_s: float | None = None
    deliver_at: datetime | int | None = None
    durability: Durability | None = None

    def over(self, default: "Sending") -> "Sending":
        """Return these values, and the default's for missing values."""
        given = {name: value for name in self.__slots__ if (value := getattr(self, name)) not in (None, ())}
        if "delay_s" in given or "deliver_at" in given:
            default = replace(default, delay_s=None, deliver_at=None)
        return replace(default, **given)


class SendingFields(TypedDict, total=False):
    """The fields of `Sending` as keyword arguments."""

    tag: str | None
    keys: str | Sequence[str]
    sharding_key: str | None
    delay_s: float | None
    deliver_at: datetime | int | None
    durability: Durability | None


class ReputPublishCommand(BatchPublishCommand):
    """A publisher hands it to the producer, through the middlewares. `sending` may be replaced there."""

    def __init__(
        self,
        message: "SendableMessage" = None,
        /,
        *messages: "SendableMessage",
        topic: str = "",
        sending: Sending | None = None,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        timeout: float | None = None,
        _publish_type: PublishType,
    ) -> None:
        super().__init__(
            message,
            *messages,
            destination=topic,
            correlation_id=correlation_id,
            headers=headers,
            reply_to=reply_to,
            _publish_type=_publish_type,
        )
        self.sending = sending or Sending()
        self.timeout = timeout

    @classmethod
    def from_cmd(cls, cmd: PublishCommand, *, batch: bool = False) -> "ReputPublishCommand":
        """Return the command of a handler's result as a command of this broker."""
        if isinstance(cmd, cls):
            return cmd
        body, others = cls._parse_bodies(cmd.body, batch=batch)
        return cls(
            body,
            *others,
            topic=cmd.destination,
            correlation_id=cmd.correlation_id,
            headers=cmd.headers,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )

    def __repr__(self) -> str:
        return f"ReputPublishCommand({self.body!r}, topic={self.destination!r}, {self.sending}, headers={self.headers})"


class ReputResponse(Response):
    """The result of a handler, with tag, keys, delays and durability of the message that is published."""

    def __init__(
        self,
        body: "SendableMessage",
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        **sending: Unpack[SendingFields],
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.sending = Sending(**sending)

    def as_publish_command(self) -> ReputPublishCommand:
        """Return the command that publishes this result."""
        return ReputPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            sending=self.sending,
            _publish_type=PublishType.PUBLISH,
        )
