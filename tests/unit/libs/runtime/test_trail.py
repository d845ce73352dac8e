# SPDX-License-Identifier: Apache-2.0
"""Trail: the audit lines of calls that change topics, groups or indexes, and of refused calls."""

import json
import logging
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from reput.commitlog.v1 import append_service_pb2, topic_service_pb2
from reput.common.v1 import audit_service_pb2
from reput.delivery.v1 import group_service_pb2
from reput.indexer.v1 import index_service_pb2

from libs.runtime.rpc.errors import BASE_TABLE, NotPermitted, status_of
from libs.runtime.trust import trail
from libs.runtime.trust.audit import line as lines
from libs.runtime.trust.audit import repeats
from libs.runtime.trust.audit.change import Change, note, noting
from libs.runtime.trust.roles import ROLES, Role
from libs.runtime.trust.tokens import TokenFile, ensure_local_token
from tests.unit.libs.runtime.servers import APPEND, DELETE_TOPIC, GET_STATUS, serving

DELETE_GROUP = "/reput.delivery.v1.GroupService/DeleteGroup"
RESET_GROUP = "/reput.delivery.v1.GroupService/ResetGroup"
PEER = "ipv4:10.0.0.7:4711"
HOSTILE = 'a\nb\r\n{"event":"call"}\u2028\x1b[31m\0\udce4"'
REFUSED = status_of(NotPermitted(DELETE_TOPIC, Role.OPERATOR), BASE_TABLE)


class Time:
    """Monotonic time that a test moves, with the functions that wait for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now_s

    def later(self, delay_s: float, function: Callable[[], None]) -> None:
        """Call a function when `move` has passed the time."""
        self.waiting.append((self.now_s + delay_s, function))

    def move(self, by_s: float) -> None:
        """Let time pass."""
        self.now_s += by_s
        due = [function for end_s, function in self.waiting if end_s <= self.now_s]
        self.waiting = [(end_s, function) for end_s, function in self.waiting if end_s > self.now_s]
        for function in due:
            function()


class Call:
    """The context of a call."""

    def __init__(self, subject: str = "operator", peer: str = PEER, person: str = "") -> None:
        self.subject, self._peer, self._person = subject, peer, person

    def peer(self) -> str:
        """Its address."""
        return self._peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """For whom it is made."""
        return ((trail.ON_BEHALF_OF, self._person),) if self._person else ()


class Told:
    """A trail with a time of its own, and its lines."""

    def __init__(self) -> None:
        self.time = Time()
        self.trail = trail.Trail("commitlog", None, self.time, self.time.later)
        self.trail.name_of = lambda context: context.subject

    def ended(self, path: str, request: object, call: Call | None = None, **values: Any) -> None:
        """End a call."""
        self.trail.ended(path, request, call or Call(), change=Change(**values), code="OK")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines, parsed."""
        return [json.loads(text) for _, text in self.trail.lines(0)]


def test_a_line_has_subject_address_resources_result_and_values() -> None:
    """A line has what docs/audit.md says, and empty fields are left out."""
    told = Told()
    told.ended(
        DELETE_TOPIC,
        topic_service_pb2.DeleteTopicRequest(name="orders"),
        before=topic_service_pb2.Topic(name="orders", write_queue_count=4),
    )
    (line,) = told.lines
    assert line.pop("time").endswith("Z")
    assert line == {
        "service": "commitlog",
        "event": "call",
        "subject": "operator",
        "address": PEER,
        "method": "reput.commitlog.v1.TopicService/DeleteTopic",
        "topics": ["orders"],
        "code": "OK",
        "before": {"name": "orders", "write_queue_count": 4},
    }


def test_a_line_names_for_whom_the_caller_says_that_it_calls() -> None:
    """What the caller says about a person is beside its subject, cut, escaped, and never its subject."""
    told = Told()
    request = group_service_pb2.DeleteGroupRequest(group="g")
    for person in ("anna%40example.com", "%0Aoperator%1b[31m", "x" * 100_000, "%ff%fe%", ""):
        told.ended(DELETE_GROUP, request, Call(subject="console", person=person))
    said = [line.get("on_behalf_of") for line in told.lines]
    assert said == ["anna@example.com", "\noperator\x1b[31m", "x" * 100, "\ufffd\ufffd%", None]
    assert {line["subject"] for line in told.lines} == {"console"}
    assert all(text.isprintable() for _, text in told.trail.lines(0))


def test_names_and_subjects_with_line_breaks_stay_within_their_line(caplog: pytest.LogCaptureFixture) -> None:
    """Line ends, escape sequences and invalid characters of any text are escaped, in the file, the log and the list."""
    caplog.set_level(logging.INFO)
    told = Told()
    request = group_service_pb2.DeleteGroupRequest(group=HOSTILE.replace("\udce4", ""))
    told.ended(DELETE_GROUP, request, Call(subject=HOSTILE, peer=HOSTILE), after={HOSTILE: HOSTILE})
    status = status_of(NotPermitted(HOSTILE.replace("\udce4", ""), Role.OPERATOR), BASE_TABLE)
    told.trail.refused("/" + HOSTILE, None, Call(subject=HOSTILE), status)
    for _, text in told.trail.lines(0):
        assert text.isascii()
        assert text.isprintable()
    called, refused = told.lines
    assert called["groups"] == [HOSTILE.replace("\udce4", "")]
    assert called["subject"] == refused["subject"] == HOSTILE
    assert all("\n" not in message and "\x1b" not in message for message in caplog.messages)


def test_a_line_is_cut() -> None:
    """A line is bounded, with texts of any length and values of any size."""
    told = Told()
    request = group_service_pb2.DeleteGroupRequest(group="g" * 100_000)
    told.ended(DELETE_GROUP, request, Call(subject="s" * 100_000), after={"many": ["x"] * 100_000})
    told.ended(DELETE_GROUP, request, Call(peer="\n" * 100_000))
    assert all(len(text) < lines.LINE_SIZE_BYTES_MAX for _, text in told.trail.lines(0))
    first, second = told.lines
    assert first["is_cut"] is True
    assert "after" not in first
    assert "is_cut" not in second


def test_no_body_key_or_property_is_read_of_a_request() -> None:
    """A line has names of topics, groups and queues, and nothing else of a request."""
    message = append_service_pb2.AppendRequest()
    message.messages.add(topic="orders", body=b"secret-body", properties={"KEYS": "secret-key", "topic": "secret"})
    message.messages.add(topic="orders", queue_id=3, body=b"secret-body")
    assert lines.resources_of(message) == {"topics": ["orders"], "queues": [3]}
    many = append_service_pb2.AppendRequest()
    for number in range(100):
        many.messages.add(topic=f"t{number}")
    assert lines.resources_of(many) == {"topics": [f"t{number}" for number in range(lines.NAME_COUNT_MAX)]}
    assert lines.resources_of(b"\n\x06orders") == {}


def test_a_call_that_changes_nothing_has_no_line() -> None:
    """A dry run, a read, and a list of the audit itself have no line."""
    told = Told()
    told.ended(RESET_GROUP, group_service_pb2.ResetGroupRequest(dry_run=True))
    told.ended(GET_STATUS, index_service_pb2.GetStatusRequest())
    told.ended(trail.LIST_LINES, audit_service_pb2.ListLinesRequest())
    assert not told.lines


def test_a_flood_of_clients_is_counted_and_operators_keep_their_lines() -> None:
    """Lines of a subject are bounded, its further calls are counted, and each call of an operator has a line."""
    told = Told()
    client = Call(subject="client")
    for _ in range(10 * trail.LINE_COUNT_MAX):
        told.ended(DELETE_GROUP, group_service_pb2.DeleteGroupRequest(group="g"), client)
        told.ended(DELETE_TOPIC, topic_service_pb2.DeleteTopicRequest(name="orders"))
    told.ended(DELETE_GROUP, group_service_pb2.DeleteGroupRequest(group="g"), Call(subject="another"))
    told.time.move(repeats.INTERVAL_S)
    by_subject = {name: [line for line in told.lines if line["subject"] == name] for name in ("client", "another")}
    assert len(by_subject["another"]) == 1
    assert by_subject["client"][-1]["event"] == "repeated"
    assert by_subject["client"][-1]["count"] == 9 * trail.LINE_COUNT_MAX
    assert told.trail.statistics().counted_lines_total == 9 * trail.LINE_COUNT_MAX
    assert told.trail.last_number == trail.LINE_COUNT_MAX * 11 + 2


def test_refusals_of_a_subject_and_a_method_are_counted() -> None:
    """The first refusal has a line at once, all others of the interval a line with their number and addresses."""
    told = Told()
    for number in range(1000):
        told.trail.refused(DELETE_TOPIC, None, Call("client", f"ipv4:10.0.0.{number % 8}:{number}"), REFUSED)
    told.trail.refused(DELETE_GROUP, None, Call("client"), REFUSED)
    assert [line["event"] for line in told.lines] == ["refusal", "refusal"]
    assert told.lines[0]["reason"] == "NOT_PERMITTED"
    told.time.move(repeats.INTERVAL_S)
    *_, last = told.lines
    assert (last["event"], last["count"], len(told.lines)) == ("repeated", 999, 3)
    assert last["addresses"] == [f"ipv4:10.0.0.{number}" for number in (1, 2, 3, 4, 5)]
    told.trail.refused(DELETE_TOPIC, None, Call("client"), REFUSED)
    told.time.move(repeats.INTERVAL_S)
    assert [line["event"] for line in told.lines[3:]] == ["refusal"]


def test_refusals_of_countless_subjects_are_bounded() -> None:
    """Subjects without end cost a bounded number of lines for each interval, and no memory."""
    told = Told()
    for number in range(3 * repeats.KEY_COUNT_MAX):
        told.trail.refused(DELETE_TOPIC, None, Call(f"s{number}"), REFUSED)
    told.time.move(repeats.INTERVAL_S)
    assert told.trail.last_number <= repeats.KEY_COUNT_MAX + 2
    last = told.lines[-1]
    assert (last["subject"], last["method"]) == ("others", "others")
    assert last["count"] >= 2 * repeats.KEY_COUNT_MAX - 1


def test_the_memory_of_the_list_is_bounded() -> None:
    """The trail keeps the last lines, and their numbers go on."""
    told = Told()
    for number in range(trail.KEPT_COUNT_MAX + 5):
        told.ended(DELETE_TOPIC, topic_service_pb2.DeleteTopicRequest(name=f"t{number}"))
    kept = [number for number, _ in told.trail.lines(0)]
    assert kept == list(range(6, trail.KEPT_COUNT_MAX + 6))
    assert [number for number, _ in told.trail.lines(trail.KEPT_COUNT_MAX + 3)] == kept[-2:]


def test_notes_outside_of_a_call_are_ignored() -> None:
    """A servicer may note values always; calls within each other keep their own notes."""
    note(before={"a": 1})
    with noting() as outer:
        with noting() as inner:
            note(after={"b": 2})
        note(after={"c": 3})
    assert (inner.after, outer.after) == ({"b": 2}, {"c": 3})


def test_each_call_of_operators_has_a_line() -> None:
    """Each call of operators that changes something has a line, some of clients, and none of services."""
    assert {path for path, role in ROLES.items() if role is Role.OPERATOR} - trail.LISTS <= trail.TOLD
    assert {ROLES[path] for path in trail.TOLD} == {Role.OPERATOR, Role.CLIENT}


def token() -> tuple[tuple[str, str]]:
    """The metadata of an operator."""
    return (("authorization", f"Bearer {TokenFile('token', ensure_local_token()).shown}"),)


async def listed(served: Any, **fields: Any) -> Message:
    """The answer of the audit's list."""
    raw = await served.call(
        trail.LIST_LINES, audit_service_pb2.ListLinesRequest(**fields).SerializeToString(), metadata=token()
    )
    return audit_service_pb2.ListLinesResponse.FromString(raw)


@pytest.mark.usefixtures("each_front")
async def test_a_server_lists_calls_and_refusals(caplog: pytest.LogCaptureFixture) -> None:
    """A server has lines of calls and refusals with the caller's address, on either front, in the list and the log."""
    caplog.set_level(logging.INFO, "libs.runtime.trust.trail")
    request = topic_service_pb2.DeleteTopicRequest(name="orders").SerializeToString()
    async with serving() as served:
        with pytest.raises(grpc.aio.AioRpcError):
            await served.call(DELETE_TOPIC, request, metadata=())
        await served.call(DELETE_TOPIC, request, metadata=token())
        served.append.error = NotPermitted(APPEND, Role.SERVICE)
        with pytest.raises(grpc.aio.AioRpcError):
            await served.call(APPEND, b"\xff", metadata=())
        answer: Any = await listed(served)
        again: Any = await listed(served, after_number=2, page_size=1)
    refused, deleted, appended = [json.loads(line.json) for line in answer.lines]
    assert [line["subject"] for line in (refused, deleted, appended)] == ["client", "operator", "client"]
    assert [line["code"] for line in (refused, deleted, appended)] == ["PERMISSION_DENIED", "OK", "PERMISSION_DENIED"]
    assert deleted["topics"] == ["orders"]
    assert all(line["address"].startswith("ipv4:127.0.0.1:") for line in (refused, deleted, appended))
    assert [line.number for line in again.lines] == [3]
    assert answer.last_number == 3
    assert caplog.messages[1].endswith("as operator: OK")
    assert caplog.records[1].audit["method"] == deleted["method"]  # type: ignore[attr-defined]


async def test_the_list_refuses_wrong_numbers() -> None:
    """A negative size or number is refused with the field's name; a large size is lowered."""
    async with serving() as served:
        for field in ("page_size", "after_number"):
            with pytest.raises(grpc.aio.AioRpcError, match=field):
                await listed(served, **{field: -1})
        assert not (await listed(served, page_size=2**31 - 1)).lines  # type: ignore[attr-defined]
        with pytest.raises(grpc.aio.AioRpcError, match="operator"):
            await served.call(trail.LIST_LINES, b"", metadata=())
