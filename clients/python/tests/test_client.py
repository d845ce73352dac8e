# SPDX-License-Identifier: Apache-2.0
"""Unary calls and lists of both clients: requests, answers, pages, retries, credentials."""

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
import reput_client
from reput.commitlog.v1 import topic_service_pb2
from reput.indexer.v1 import (
    consumer_offset_service_pb2,
    query_service_pb2,
    queue_service_pb2,
    rebuild_service_pb2,
)
from reput_client import ConsumerOffset, Options, PullStatus, RetryPolicy, Topic, aio
from reput_client.core.options import SERVICES, first_token
from reput_client.core.records import are_wanted
from reput_client.core.types import from_ms, to_ms

from clients.python.tests.support import Unary, fail, serving, status

QUICK = RetryPolicy(delay_min_s=0.01, delay_max_s=0.02)
WIRE_TOPIC = topic_service_pb2.Topic(name="a", read_queue_count=4, write_queue_count=2, is_readable=True)
TOPIC = Topic("a", 4, 2, is_readable=True, is_writable=False, is_system=False)


def topic_service(calls: list[Any]) -> Unary:
    """Remembers requests. Lists 5 topics in pages of 2."""

    def create(request: Any, context: Any) -> Any:
        calls.append(request)
        return topic_service_pb2.CreateTopicResponse(topic=WIRE_TOPIC)

    def listing(request: Any, context: Any) -> Any:
        calls.append(request)
        first = int(request.page_token or 0)
        topics = [topic_service_pb2.Topic(name=name) for name in "abcde"[first : first + 2]]
        token = str(first + 2) if first < 4 else ""
        return topic_service_pb2.ListTopicsResponse(topics=topics, next_page_token=token)

    def get(request: Any, context: Any) -> Any:
        calls.append(dict(context.invocation_metadata()).get("authorization"))
        if len(calls) == 1:
            fail(context, status(grpc.StatusCode.UNAVAILABLE, "RECOVERING"))
        if request.name == "missing":
            fail(context, status(grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND", metadata={"topic": "missing"}))
        return topic_service_pb2.GetTopicResponse(topic=WIRE_TOPIC)

    return Unary(
        "reput.commitlog.v1.TopicService",
        CreateTopic=(topic_service_pb2.CreateTopicRequest, create),
        ListTopics=(topic_service_pb2.ListTopicsRequest, listing),
        GetTopic=(topic_service_pb2.GetTopicRequest, get),
    )


def test_create_topic() -> None:
    """A value of None is absent from the request."""
    calls: list[Any] = []
    with serving(topic_service(calls)) as target, reput_client.connect(commitlog=target) as client:
        assert client.topics.create("a", write_queue_count=2, is_writable=False) == TOPIC
    assert calls == [topic_service_pb2.CreateTopicRequest(name="a", write_queue_count=2, is_writable=False)]


def test_pages_are_fetched_as_needed() -> None:
    """A list asks for a page only when its items are wanted."""
    calls: list[Any] = []
    with serving(topic_service(calls)) as target, reput_client.connect(commitlog=target) as client:
        topics = client.topics.list()
        assert next(topics).name == "a"
        assert len(calls) == 1
        assert [topic.name for topic in topics] == ["b", "c", "d", "e"]
        assert len(calls) == 3


def test_retry_and_token() -> None:
    """A call to a starting server is retried. The token is sent with every call. Errors carry their details."""
    calls: list[Any] = []
    with (
        serving(topic_service(calls)) as target,
        reput_client.connect(commitlog=target, token="s", retry=QUICK) as client,
    ):
        assert client.topics.get("a") == TOPIC
        assert calls == ["Bearer s", "Bearer s"]
        with pytest.raises(reput_client.NotFoundError) as missing:
            client.topics.get("missing")
        assert (missing.value.reason, missing.value.metadata) == ("TOPIC_NOT_FOUND", {"topic": "missing"})


def test_retries_end_with_the_timeout() -> None:
    """A server that stays unreachable fails the call within its time-out."""
    with (
        reput_client.connect(commitlog="127.0.0.1:1", timeout_s=2.0, retry=RetryPolicy(retries=99)) as client,
        pytest.raises(reput_client.UnavailableError),
    ):
        client.topics.get("a")


def rebuild_service(calls: list[Any], refusals: int, *, breaks: bool = False) -> Unary:
    """Return a service that refuses the first rebuilds, then streams three answers, or breaks after the first."""

    def rebuild(request: Any, context: Any) -> Any:
        calls.append(request)
        if len(calls) <= refusals:
            fail(context, status(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE", retry_after_s=0.01))
        for offset in range(3):
            yield rebuild_service_pb2.RebuildIndexesResponse(rebuilt_physical_offset=offset)
            if breaks:
                fail(context, status(grpc.StatusCode.UNAVAILABLE, "STOPPING"))

    method = (rebuild_service_pb2.RebuildIndexesRequest, rebuild)
    return Unary("reput.indexer.v1.RebuildService", streams={"RebuildIndexes": method})


async def test_a_streamed_call_waits_for_a_service_that_is_connecting() -> None:
    """A call that is refused before the first answer is retried."""
    calls: list[Any] = []
    with serving(rebuild_service(calls, 2)) as target:
        with reput_client.connect(indexer=target, retry=QUICK) as client:
            assert [state.rebuilt_physical_offset for state in client.admin.rebuild_indexes()] == [0, 1, 2]
        calls.clear()
        async with aio.connect(indexer=target, retry=QUICK) as client:
            assert [state.rebuilt_physical_offset async for state in client.admin.rebuild_indexes()] == [0, 1, 2]
    assert len(calls) == 3


@pytest.mark.parametrize(("refusals", "call_count"), [(0, 1), (99, 3)])
async def test_a_streamed_call_that_fails(refusals: int, call_count: int) -> None:
    """A stream that breaks after the first answer is not retried. A refused call is not retried for ever."""
    retry = RetryPolicy(retries=2, delay_min_s=0.01)
    calls: list[Any] = []
    with serving(rebuild_service(calls, refusals, breaks=True)) as target:
        with (
            reput_client.connect(indexer=target, retry=retry) as client,
            pytest.raises(reput_client.UnavailableError),
        ):
            list(client.admin.rebuild_indexes())
        assert len(calls) == call_count
        calls.clear()
        async with aio.connect(indexer=target, retry=retry) as client:
            with pytest.raises(reput_client.UnavailableError):
                assert [state async for state in client.admin.rebuild_indexes()]
        assert len(calls) == call_count


async def test_async_calls() -> None:
    """The asyncio client runs the same calls, pages and retries."""
    calls: list[Any] = []
    with serving(topic_service(calls)) as target:
        async with aio.connect(commitlog=target, retry=QUICK) as client:
            assert await client.topics.get("a") == TOPIC
            assert [topic.name async for topic in client.topics.list()] == list("abcde")
            with pytest.raises(reput_client.NotFoundError):
                await client.topics.get("missing")


def indexer(requests: list[Any]) -> list[Unary]:
    """Return services that record their requests and answer each with a single entry."""

    def answer(response: Any) -> Any:
        def method(request: Any, context: Any) -> Any:
            requests.append(request)
            return response

        return method

    def many_keys(request: Any, context: Any) -> Any:
        """Answer two keys of a request at most: "k" has a message and a page more, "bad" can't be read."""
        requests.append(request)
        matches = {"k": {"messages": [message], "next_page_token": "more"}, "bad": {"error_reason": "RECORD_DAMAGED"}}
        return queries.QueryByKeysResponse(matches=[matches.get(key, {}) for key in request.keys[:2]])

    message = {"topic": "t", "queue_offset": 7, "properties": {"TAGS": "A", "KEYS": "k l", "UNIQ_KEY": "U"}}
    queue = {"topic": "t", "queue_id": 1, "max_queue_offset": 9, "last_store_time": {"seconds": 1}}
    offset = consumer_offset_service_pb2.ConsumerOffset(topic="t", queue_id=1, queue_offset=5, lag=4)
    queries = query_service_pb2
    queues = queue_service_pb2
    offsets = consumer_offset_service_pb2
    return [
        Unary(
            "reput.indexer.v1.QueryService",
            QueryByKey=(queries.QueryByKeyRequest, answer(queries.QueryByKeyResponse(messages=[message]))),
            QueryByKeys=(queries.QueryByKeysRequest, many_keys),
            QueryByTime=(queries.QueryByTimeRequest, answer(queries.QueryByTimeResponse(messages=[message]))),
            QueryById=(queries.QueryByIdRequest, answer(queries.QueryByIdResponse(message=message))),
        ),
        Unary(
            "reput.indexer.v1.QueueService",
            Pull=(
                queues.PullRequest,
                answer(queues.PullResponse(status=1, messages=[message], next_queue_offset=8, max_queue_offset=9)),
            ),
            GetOffsetByTime=(queues.GetOffsetByTimeRequest, answer(queues.GetOffsetByTimeResponse(queue_offset=3))),
            GetQueueRange=(queues.GetQueueRangeRequest, answer(queues.GetQueueRangeResponse(queue=queue))),
            ListQueues=(queues.ListQueuesRequest, answer(queues.ListQueuesResponse(queues=[queue]))),
        ),
        Unary(
            "reput.indexer.v1.ConsumerOffsetService",
            CommitConsumerOffset=(
                offsets.CommitConsumerOffsetRequest, answer(offsets.CommitConsumerOffsetResponse()),
            ),
            GetConsumerOffset=(
                offsets.GetConsumerOffsetRequest, answer(offsets.GetConsumerOffsetResponse(offset=offset)),
            ),
            ResetConsumerOffset=(
                offsets.ResetConsumerOffsetRequest, answer(offsets.ResetConsumerOffsetResponse(offsets=[offset])),
            ),
            DeleteConsumerGroup=(
                offsets.DeleteConsumerGroupRequest,
                answer(offsets.DeleteConsumerGroupResponse(deleted_offset_count=3)),
            ),
            ListConsumerGroups=(
                offsets.ListConsumerGroupsRequest,
                answer(offsets.ListConsumerGroupsResponse(groups=[{"group": "g", "offsets": [offset]}])),
            ),
        ),
    ]  # fmt: skip


def test_reading_calls() -> None:
    """Queries, pulls and group calls send their arguments and read the answers."""
    requests: list[Any] = []
    moment = datetime(2023, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))
    with serving(*indexer(requests)) as target, reput_client.connect(indexer=target) as client:
        (found,) = client.query.by_key("t", "k", start=moment, end=1_700_000_000_001, where="a = 1", page_size=5)
        assert (found.queue_offset, found.tag, found.keys, found.unique_id) == (7, "A", ("k", "l"), "U")
        assert requests.pop() == query_service_pb2.QueryByKeyRequest(
            topic="t", key="k", start_time={"seconds": 1_672_570_800},
            end_time={"seconds": 1_700_000_000, "nanos": 1_000_000}, page_size=5, where="a = 1",
            wants_records=are_wanted(),
        )  # fmt: skip
        many = list(client.query.by_keys("t", ["none", "k", "bad", "none", "k2"], start=moment, where="a = 1"))
        assert [(one.key, one.messages) for one in many] == [
            ("none", []),
            ("k", [found, found]),
            ("bad", []),
            ("k2", []),
        ]
        assert [one.error and one.error.reason for one in many] == [None, None, "RECORD_DAMAGED", None]
        second, page, first = requests.pop(), requests.pop(), requests.pop()
        assert (list(first.keys), list(second.keys)) == (["none", "k", "bad", "k2"], ["bad", "k2"])
        assert (page.key, page.page_token, page.start_time, page.where) == ("k", "more", first.start_time, "a = 1")
        assert list(client.query.by_time("t", queue_id=0, where="a = 1")) == [found]
        assert requests.pop() == query_service_pb2.QueryByTimeRequest(
            topic="t", queue_id=0, where="a = 1", wants_records=are_wanted()
        )
        assert client.query.by_id("AB", topic="t") == found
        pulled = client.queues.pull("t", 1, 7, count=3, tags="A||B", where="a = 1", wait_s=1.5)
        assert (pulled.status, pulled.messages, pulled.next_queue_offset) == (PullStatus.FOUND, [found], 8)
        assert requests.pop() == queue_service_pb2.PullRequest(
            topic="t", queue_id=1, queue_offset=7, message_count_max=3, tag_expression="A||B",
            where="a = 1", wait={"seconds": 1, "nanos": 500_000_000}, wants_records=are_wanted(),
        )  # fmt: skip
        assert client.queues.offset_by_time("t", 1, 1_700_000_000_005, boundary="upper") == 3
        assert requests.pop().boundary == queue_service_pb2.BOUNDARY_UPPER
        queue = client.queues.range("t", 1)
        assert (queue.max_queue_offset, queue.first_store_time, queue.last_store_time) == (9, None, from_ms(1000))
        assert list(client.queues.list("t")) == [queue]
        offset = ConsumerOffset("t", 1, 5, lag=4)
        assert client.groups.get("g", "t", 1) == offset
        assert client.groups.reset("g", "t", "latest") == (offset,)
        assert requests.pop().latest
        client.groups.reset("g", "t", "earliest")
        assert requests.pop().earliest
        client.groups.reset("g", "t", moment)
        assert requests.pop().time.seconds == 1_672_570_800
        with pytest.raises(ValueError, match="place"):
            client.groups.reset("g", "t", "middle")
        client.groups.commit("g", [offset])
        assert requests.pop().offsets[0].lag == 0
        client.groups.commit("g", [ConsumerOffset("t", queue_id, 5) for queue_id in range(1_500)])
        assert [len(requests.pop().offsets) for _ in range(2)] == [500, 1_000]
        assert client.groups.delete("g", topic="t") == 3
        assert (requests[-1].group, requests.pop().topic) == ("g", "t")
        (group,) = client.groups.list()
        assert (group.name, group.offsets) == ("g", (offset,))


async def test_async_reading_calls() -> None:
    """The asyncio twins read the same answers."""
    requests: list[Any] = []
    with serving(*indexer(requests)) as target:
        async with aio.connect(indexer=target) as client:
            (found,) = [message async for message in client.query.by_key("t", "k")]
            assert [one.messages async for one in client.query.by_keys("t", ["k", "x"])] == [[found, found], []]
            assert [message async for message in client.query.by_time("t")] == [found]
            assert await client.query.by_id("AB") == found
            assert (await client.queues.pull("t", 1, 7)).messages == [found]
            assert await client.queues.offset_by_time("t", 1, 1_700_000_000_005) == 3
            assert [queue async for queue in client.queues.list()] == [await client.queues.range("t", 1)]
            assert (await client.groups.get("g", "t", 1)).queue_offset == 5
            assert len(await client.groups.reset("g", "t", "latest")) == 1
            await client.groups.commit("g", [ConsumerOffset("t", 1, 5)])
            assert await client.groups.delete("g") == 3
            assert [group.name async for group in client.groups.list()] == ["g"]


def test_times() -> None:
    """Milliseconds survive the way there and back, before the epoch too. A naive time is refused."""
    for time_ms in (0, 1, 999, -1, -1001, 1_700_000_000_123):
        assert to_ms(from_ms(time_ms)) == time_ms
    assert to_ms(datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC)) == 1
    with pytest.raises(ValueError, match="time zone"):
        to_ms(datetime(2023, 1, 1))  # noqa: DTZ001 - that is the point


def test_options(tmp_path) -> None:
    """Arguments win over the environment, the environment over the defaults. A token may be in a file."""
    (tmp_path / "token").write_text(" abc\nold\n")
    environment = {
        "REPUT_CLIENT_COMMITLOG_TARGET": "log:1",
        "REPUT_CLIENT_INDEXER_TARGET": "index:2",
        "REPUT_CLIENT_TOKEN_FILE": str(tmp_path / "token"),
        "REPUT_CLIENT_CA_FILE": "",
    }
    loaded = Options.load({"indexer": "mine:3", "commitlog": None}, environment)
    assert (loaded.commitlog, loaded.indexer, loaded.janitor) == ("log:1", "mine:3", "127.0.0.1:7103")
    assert (loaded.metadata(), loaded.credentials()) == ((("authorization", "Bearer abc"),), None)
    assert Options.load({"token": "x"}, environment).token == "x"
    assert Options.load({"ca_file": "system"}, {}).credentials() is not None
    with pytest.raises(FileNotFoundError):
        Options.load({"ca_file": str(tmp_path / "missing.pem")}, {}).credentials()


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ({"store": "door:1"}, {}, ["door:1"] * 4),
        ({"store": "door:1", "indexer": "index:2"}, {}, ["door:1", "index:2", "door:1", "door:1"]),
        ({}, {"STORE": "door:1", "JANITOR": "old:3"}, ["door:1", "door:1", "old:3", "door:1"]),
        ({"store": "door:1"}, {"STORE": "away:9", "INDEXER": "away:2"}, ["door:1"] * 4),
        ({"commitlog": "log:1"}, {"STORE": "door:1"}, ["log:1", "door:1", "door:1", "door:1"]),
        ({"store": "a:1,b:1"}, {}, ["a:1,b:1"] * 4),
    ],
)
def test_one_address(arguments: dict[str, str], variables: dict[str, str], expected: list[str]) -> None:
    """The store's address is that of each service without one. An argument never mixes with another store's parts."""
    loaded = Options.load(arguments, {f"REPUT_CLIENT_{name}_TARGET": value for name, value in variables.items()})
    assert [getattr(loaded, service) for service in SERVICES] == expected


def test_a_proxy_is_for_what_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store on this machine is reached although `http_proxy` is set."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    calls: list[Any] = [None]
    with serving(topic_service(calls)) as target:
        for local in (target, target.replace("127.0.0.1", "localhost")):
            with reput_client.connect(commitlog=local, retry=RetryPolicy(retries=0)) as client:
                assert client.topics.get("a") == TOPIC
    options = Options()
    for name in ("unix:/run/x.sock", "[::1]:7101", "127.0.0.2:7101", "localhost:7101"):
        assert ("grpc.enable_http_proxy", 0) in options.channel_options(name)
    for name in ("10.0.0.7:7101", "log.example:7101", "dns:///log:7101", "log"):
        assert ("grpc.enable_http_proxy", 0) not in options.channel_options(name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"commitlog": "127.0.0.1"}, "commitlog is '127.0.0.1': expected host:port"),
        ({"indexer": "a:7102,http://b:7102"}, "indexer is 'http://b:7102'"),
        ({"janitor": "[::1]"}, "janitor is"),
        ({"store": "http://door:8081"}, "store is 'http://door:8081': expected host:port"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": "soon"}, "timeout_s is 'soon'"),
    ],
)
def test_options_that_cannot_be_meant(arguments: dict[str, Any], words: str) -> None:
    """They are refused before a call waits for an invalid address."""
    with pytest.raises((ValueError, TypeError), match=re.escape(words)):
        reput_client.connect(**arguments)


@pytest.mark.parametrize("target", ["log:7101", "[::1]:7101", "a:1,b:2", "unix:/run/log", "dns:///log:7101"])
def test_addresses(target: str) -> None:
    """Every address that gRPC can call is accepted."""
    assert Options(commitlog=target).commitlog == target


def test_what_objects_say_of_themselves() -> None:
    """Where they go, and where they are."""
    with reput_client.connect(commitlog="a:1,b:2", indexer="c:3") as client:
        shown = "commitlog='a:1', indexer='c:3', janitor='127.0.0.1:7103', delivery='127.0.0.1:7104'"
        assert repr(client) == f"Client({shown})"
        assert repr(client.producer()) == "Producer(a:1, 0 bytes without an outcome)"
        assert repr(client.writer("w")) == "Writer('w', next_sequence=0)"


def test_a_token_that_others_can_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The token works, as a key does with ssh, and a warning says how to close the file."""
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o600)
    assert (first_token(file), caplog.text) == ("secret", "")
    file.chmod(0o644)
    assert first_token(file) == "secret"
    assert f"chmod 600 {file}" in caplog.text
    assert "secret" not in caplog.text
