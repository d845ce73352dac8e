# SPDX-License-Identifier: Apache-2.0
"""Turns a failed call of another service into the engine's errors, by the reason in its google.rpc.Status."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from libs.requests.errors import BadArgument, DependencyUnavailable
from libs.runtime.rpc.errors import describe, error_info
from services.delivery.errors import ConsumerOffsetNotFound, LogFollows, MessageDamaged, TopicNotFound


@contextmanager
def errors_of(service: str, *, tells_refusals: bool = False) -> Iterator[None]:
    """Turn errors of a call within the block into DependencyUnavailable, or into an error of a topic or an offset.

    `tells_refusals`: the arguments are a caller's. If the service refuses them, the caller gets BadArgument.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        info = error_info(error)
        if info.reason in ("TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND"):
            raise TopicNotFound(info.metadata["topic"]) from error
        if info.reason == "CONSUMER_OFFSET_NOT_FOUND":
            raise ConsumerOffsetNotFound(info.metadata["group"], info.metadata["topic"]) from error
        if tells_refusals and info.reason == "BAD_ARGUMENT":
            field, value, limit = (info.metadata.get(name) for name in ("field", "value", "limit"))
            reason = f"the {service} refuses it: {describe(error)}"
            raise BadArgument(reason, field=field or "", value=value, limit=limit) from error
        if info.reason == "NOT_LEADER":
            raise LogFollows(service, describe(error)) from error
        if info.reason == "RECORD_DAMAGED":
            raise MessageDamaged(service, describe(error)) from error
        raise DependencyUnavailable(service, describe(error)) from error
