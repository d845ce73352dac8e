# SPDX-License-Identifier: Apache-2.0
"""The calls of Delivery that receive and settle, as values. No I/O."""

import functools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from google.protobuf.duration_pb2 import Duration
from reput.delivery.v1 import delivery_service_pb2 as pb

from reput_client.core.call import Call
from reput_client.core.encode import varint
from reput_client.core.errors import ReputError, from_status
from reput_client.core.sharing.holding import WAIT_S_MAX, Received, ShareSettings
from reput_client.core.types import Message

ENTRY_COUNT_MAX = 1000
"""As in delivery_service.proto."""

Verb: TypeAlias = Literal["ack", "nack", "release", "extend", "terminate", "bury"]
"""The ways to settle or extend a message. A release is a nack without delay that does not count as an attempt."""


def receive(topic: str, settings: ShareSettings, count: int, invisible_s: float, wait_s: float) -> Call[list[Received]]:
    """Return the call that receives. A repeated call gets other messages. Messages of a lost answer come again."""
    request = pb.ReceiveRequest(
        group=settings.group,
        topic=topic,
        message_count_max=count,
        invisible=duration(invisible_s),
        tag_expression=settings.tags,
        where=settings.where,
        wait=duration(min(wait_s, WAIT_S_MAX)),
    )
    return Call(request, _received, extra_timeout_s=wait_s)


def entries(verb: Verb, handles: Sequence[str], seconds: float | None = None) -> list[bytes]:
    """Return the entries that settle, as serialized fields of a SettleRequest.

    A protobuf object for each entry would cost more than all else of an acknowledgement. `seconds` is the delay of a
    nack, or the lease of an extension.
    """
    action = _action(verb, seconds)
    return [_field(_field(handle.encode()) + action) for handle in handles]


def settle(entries: Sequence[bytes]) -> Call[list[ReputError | None]]:
    """Return the call that settles. Its answer has an error or None for each entry."""
    return Call(pb.SettleRequest.FromString(b"".join(entries)), _errors)


def duration(seconds: float) -> Duration:
    """Return seconds as a protobuf Duration, rounded to milliseconds."""
    value_ms = round(seconds * 1000)
    return Duration(seconds=value_ms // 1000, nanos=value_ms % 1000 * 1_000_000)


def _field(payload: bytes) -> bytes:
    """Return a field with the number 1: the handle of an entry, or an entry of a request."""
    return b"\n" + varint(len(payload)) + payload


@functools.lru_cache(64)
def _action(verb: Verb, seconds: float | None) -> bytes:
    """Return a serialized SettleEntry that has the action alone."""
    time = None if seconds is None else duration(seconds)
    actions: dict[Verb, dict[str, Any]] = {
        "ack": {"ack": pb.Ack()},
        "nack": {"nack": pb.Nack(delay=time)},
        "release": {"nack": pb.Nack(delay=Duration(), is_untried=True)},
        "extend": {"extend": pb.Extend(invisible=time, keeps_handle=True)},
        "terminate": {"terminate": pb.Terminate()},
        "bury": {"bury": pb.Bury()},
    }
    return pb.SettleEntry(**actions[verb]).SerializeToString()


def _received(answer: Any) -> list[Received]:
    return [Received(Message(one.message), one.attempt, one.handle) for one in answer.messages]


def _errors(answer: Any) -> list[ReputError | None]:
    return [from_status(one.error) if one.HasField("error") else None for one in answer.outcomes]
