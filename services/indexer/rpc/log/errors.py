# SPDX-License-Identifier: Apache-2.0
"""Turns a failed call of the CommitLog into the engine's errors, by the reason in its google.rpc.Status."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from libs.runtime.rpc.errors import STATUS_METADATA_KEY
from services.indexer.errors import DependencyUnavailable, LogEndsEarlier, NotARecord, RecordDamaged, TopicNotFound

SERVICE = "commitlog"


@contextmanager
def commitlog_errors() -> Iterator[None]:
    """Turn what a call raises within the block: DependencyUnavailable, or what is wrong with a record or topic."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        info = error_info(error)
        text = f"{error.code().name}: {error.details()}"
        if info.reason == "NOT_A_RECORD":
            raise NotARecord(_number(info.metadata["value"])) from error
        if info.reason == "OFFSET_BEYOND_END":
            raise LogEndsEarlier(SERVICE, text) from error
        if info.reason in ("TOPIC_NOT_FOUND", "BAD_TOPIC_NAME"):
            raise TopicNotFound(info.metadata["topic"]) from error
        if info.reason == "RECORD_DAMAGED":
            raise RecordDamaged(
                segment=info.metadata["segment"],
                position=_number(info.metadata["position"]),
                reason=info.metadata["reason"],
            ) from error
        raise DependencyUnavailable(SERVICE, text) from error


def error_info(error: grpc.aio.AioRpcError) -> ErrorInfo:
    """What a failed call says besides code and text; empty if it says nothing."""
    info = ErrorInfo()
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_METADATA_KEY and isinstance(value, bytes):
            try:
                status = Status.FromString(value)
            except DecodeError:
                continue
            for detail in status.details:
                if detail.Is(ErrorInfo.DESCRIPTOR):
                    detail.Unpack(info)
    return info


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else -1
