# SPDX-License-Identifier: Apache-2.0
"""Turns a failed call of the CommitLog into the engine's errors, by the reason in its google.rpc.Status."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from libs.requests.errors import DependencyUnavailable, RecordDamaged
from libs.runtime.rpc.errors import describe, error_info
from services.indexer.errors import LogEndsEarlier, LogFollows, NotARecord, TopicNotFound

SERVICE = "commitlog"


@contextmanager
def commitlog_errors() -> Iterator[None]:
    """Turn the errors of a call into DependencyUnavailable, or into the error of a record or topic."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        info = error_info(error)
        text = describe(error)
        if info.reason == "NOT_A_RECORD":
            raise NotARecord(_number(info.metadata["value"])) from error
        if info.reason == "OFFSET_BEYOND_END":
            raise LogEndsEarlier(SERVICE, text) from error
        if info.reason == "NOT_LEADER":
            raise LogFollows(SERVICE, text) from error
        if info.reason in ("TOPIC_NOT_FOUND", "BAD_TOPIC_NAME"):
            raise TopicNotFound(info.metadata["topic"]) from error
        if info.reason == "RECORD_DAMAGED":
            raise RecordDamaged(
                segment=info.metadata["segment"],
                position=_number(info.metadata["position"]),
                reason=info.metadata["reason"],
            ) from error
        raise DependencyUnavailable(SERVICE, text) from error


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else -1
