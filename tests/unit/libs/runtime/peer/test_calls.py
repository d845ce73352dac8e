# SPDX-License-Identifier: Apache-2.0
"""PeerClient: calls of another service, and the errors of failed calls."""

import asyncio
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import topic_service_pb2 as pb
from reput.commitlog.v1 import topic_service_pb2_grpc

from libs.requests.errors import DependencyUnavailable, LogFollows, PeerError, RecordDamaged, TopicNotFound
from libs.runtime.peer.calls import PeerClient, PeerErrors, by_reason, error_info, error_within
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.errors import STATUS_METADATA_KEY, status_of
from tests.support.calls import connection_to, failed

ERRORS: PeerErrors = {
    "TOPIC_NOT_FOUND": lambda error: TopicNotFound(error.metadata["topic"]),
    "NOT_LEADER": LogFollows.of,
}


class Topics:
    """A service of topics that fails, or has pages."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure
        self.tokens: list[str] = []

    async def ListTopics(self, request: pb.ListTopicsRequest, _: object) -> pb.ListTopicsResponse:  # noqa: N802 - gRPC's name
        """Return the next of three pages."""
        if self._failure is not None:
            raise self._failure
        self.tokens.append(request.page_token)
        number = len(self.tokens)
        return pb.ListTopicsResponse(topics=[pb.Topic(name=f"t{number}")], next_page_token=str(number % 3 or ""))


def connection_of(topics: Topics) -> Connection:
    """Return a connection to the service."""
    return connection_to(lambda: {"reput.commitlog.v1.TopicService": topics})


async def failure_of(failure: Exception, errors: PeerErrors | None = None) -> Exception:
    """Return the error that a failed call raises."""
    connection = connection_of(Topics(failure))
    stub = topic_service_pb2_grpc.TopicServiceStub(connection.channel)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller checks its type
        await PeerClient("log", connection, errors).call(stub.ListTopics, pb.ListTopicsRequest())
    return caught.value


async def test_a_failure_has_all_that_the_peer_has_told() -> None:
    """Also metadata with the names of the error's own attributes."""
    error = await failure_of(RecordDamaged(segment="7", position=5, reason="checksum"))
    assert isinstance(error, PeerError)
    assert (error.service, error.reason, error.code) == ("log", "RECORD_DAMAGED", "DATA_LOSS")
    assert error.text == "segment 7 is damaged at byte 5: checksum"
    assert error.metadata == {"segment": "7", "position": "5", "reason": "checksum"}
    assert error.metadata["field"] == ""
    assert str(error) == f"log: {error.text}"
    assert isinstance(error.__cause__, grpc.aio.AioRpcError)


async def test_a_table_has_the_reasons_that_matter() -> None:
    """Every other failure means that the service is not available. Errors of the caller itself pass."""
    assert isinstance(await failure_of(TopicNotFound("orders"), ERRORS), TopicNotFound)
    other = await failure_of(RecordDamaged(segment="7", position=5, reason="checksum"), ERRORS)
    assert type(other) is DependencyUnavailable
    assert str(other) == "log is not available: DATA_LOSS: segment 7 is damaged at byte 5: checksum"
    with pytest.raises(LogFollows, match="log is not available: UNAVAILABLE: elsewhere"), by_reason(ERRORS):
        raise PeerError("log", "NOT_LEADER", "elsewhere", "UNAVAILABLE")
    with pytest.raises(KeyError), by_reason(ERRORS):
        raise KeyError


async def test_a_peer_that_is_not_there() -> None:
    """It has no reason, and a code."""
    connection = connection_to(dict)
    stub = topic_service_pb2_grpc.TopicServiceStub(connection.channel)
    with pytest.raises(PeerError) as caught:
        await PeerClient("log", connection).call(stub.ListTopics, pb.ListTopicsRequest())
    assert (caught.value.reason, caught.value.line) == ("", "UNAVAILABLE: nobody listens")


async def test_all_pages() -> None:
    """Each has the token of the page before."""
    topics = Topics()
    connection = connection_of(topics)
    method = topic_service_pb2_grpc.TopicServiceStub(connection.channel).ListTopics
    pages = PeerClient("log", connection).pages(method, pb.ListTopicsRequest(page_size=1))
    assert [page.topics[0].name async for page in pages] == ["t1", "t2", "t3"]
    assert topics.tokens == ["", "1", "2"]


async def test_the_deadline_is_later_by_the_wait() -> None:
    """The metadata is that of now."""
    seen: list[tuple[float, Any]] = []

    async def method(_: Message, *, timeout: float, metadata: Any) -> None:  # noqa: ASYNC109 - gRPC's name
        seen.append((timeout, metadata))
        await asyncio.sleep(0)

    tokens = iter(["a", "b"])
    connection = Connection(cast("grpc.aio.Channel", None), 5.0, lambda: (("authorization", next(tokens)),))
    client = PeerClient("log", connection)
    await client.call(method, pb.ListTopicsRequest())
    await client.call(method, pb.ListTopicsRequest(), wait_s=2.5)
    assert seen == [(5.0, (("authorization", "a"),)), (7.5, (("authorization", "b"),))]


def test_a_status_that_can_not_be_read_is_none() -> None:
    """The failure then has the code and the text of the call alone."""
    assert error_info(failed(grpc.StatusCode.INTERNAL, "", [(STATUS_METADATA_KEY, b"\xff")])).reason == ""


def test_an_error_within_an_answer() -> None:
    """It has the reason and the metadata of its status; a status without a reason is INTERNAL."""
    error = error_within("delivery", status_of(TopicNotFound("orders"), {}))
    assert (error.reason, error.metadata["topic"], error.text) == (
        "TOPIC_NOT_FOUND",
        "orders",
        "there is no topic orders",
    )
    assert error_within("delivery", Status(message="broken")).reason == "INTERNAL"
