# SPDX-License-Identifier: Apache-2.0
"""`reput status`: the verdict comes first with an action, the page fits a terminal, and JSON has all fields."""

import io
import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import index_service_pb2 as index_pb
from reput.janitor.v1 import retention_service_pb2 as retention_pb
from reput_client import DelayLevel

from cli.commands.state import status
from cli.commands.state.beside import Beside
from cli.commands.state.page import Rates, page_lines
from cli.commands.state.states import States
from cli.commands.state.status import RECOVERING_FIELDS, document
from libs.verdict import Trouble, troubles_of, verdict_of
from tests.support.reput_up import run_here

NOW_S = datetime(2026, 11, 26, 12, 3, 7).astimezone().timestamp()
DAY_S = 86_400
GIB = 1 << 30


def at(seconds_ago: float) -> datetime:
    """A moment before the look."""
    return datetime.fromtimestamp(NOW_S - seconds_ago, UTC)


def healthy() -> States:
    """A store that has run for two days, of 12 GiB and with a day of messages."""
    log = log_pb.GetStatusResponse(
        state=log_pb.LOG_STATE_SERVING,
        role=log_pb.ROLE_ASYNC_MASTER,
        is_writable=True,
        min_physical_offset=100 * GIB,
        max_physical_offset=112 * GIB,
        flushed_physical_offset=112 * GIB,
        confirmed_physical_offset=112 * GIB,
        segment_count=13,
        topic_count=4,
        appended_message_count=1_234_567,
        disk_total_bytes=1000 * GIB,
        disk_free_bytes=500 * GIB,
        disk_used_percent=50,
        start_time=at(2 * DAY_S),
        version="0.1.0",
        replica_id="a",
        in_sync_replica_ids=["a"],
        log_directories=[
            log_pb.LogDirectory(
                path="/data/commitlog", segment_count=13, disk_total_bytes=1000 * GIB, disk_free_bytes=500 * GIB,
                disk_used_percent=50,
            )
        ],
    )  # fmt: skip
    index = index_pb.GetStatusResponse(
        state=index_pb.REPUT_STATE_LIVE,
        indexed_physical_offset=112 * GIB,
        confirmed_physical_offset=112 * GIB,
        queue_count=12,
        index_entry_count=2_000_000,
        is_complete=True,
        last_store_time=at(3),
        disk_total_bytes=1000 * GIB,
        start_time=at(2 * DAY_S),
        version="0.1.0",
    )
    retention = retention_pb.GetStatusResponse(start_time=at(2 * DAY_S), version="0.1.0", last_check_time=at(5))
    policy = retention_pb.GetPolicyResponse(
        retention_hours=72, delete_hours=[4], time_zone="UTC", disk_max_used_percent=75
    )
    run = retention_pb.Run(time=at(8 * 3600), trigger="HOUR", deleted_segment_count=3, freed_bytes=3 * GIB)
    return States(NOW_S, {}, log, index, retention, round((NOW_S - DAY_S) * 1000), policy, run)


def page(states: States, rates: Rates | None = None, width: int = 80) -> list[str]:
    """The page about the states."""
    return list(page_lines(states, troubles_of(states), rates, width))


def test_a_healthy_store() -> None:
    """The page of a healthy store has, in words, everything that an operator needs at night."""
    lines = page(healthy())
    assert lines[0] == "healthy"
    text = "\n".join(lines)
    for said in (
        "12.0 GiB in 13 segments; reaches back 1 d, to 2026-11-25 12:03",
        "4 topics; 1,234,567 messages taken since the start",
        "up to date; 12 queues, 2,000,000 keys",
        "50 % used, 500 GiB free of 1000 GiB: /data/commitlog",
        "keeps 72 h, deletes at 04:00 (UTC)",
        "last deleted 04:03:07 (HOUR): 3 segments, 3.0 GiB",
        "2 d: CommitLog, Indexer, Janitor, version 0.1.0",
    ):
        assert said in text, text


def test_topics_with_a_retention_of_their_own() -> None:
    """They are counted; a topic whose expired messages are not known is a trouble."""
    states = healthy()
    assert states.retention is not None
    states.retention.topics.add(topic="audit", retention_hours=720, is_longer=True)
    states.retention.topic_count = 1
    assert "1 topic with a retention of its own: reput janitor status" in "\n".join(page(states))
    states.retention.topics[0].error = "no route"
    (trouble,) = troubles_of(states)
    assert trouble.text == "the expired messages of topic audit are not known: no route; all segments stay meanwhile"


def test_it_fits_80_columns_and_24_lines() -> None:
    """A page with two disks, two replicas, rates and three troubles fits 80 columns and 24 lines."""
    states = healthy()
    assert states.log is not None
    states.log.log_directories.extend([states.log.log_directories[0]])
    states.log.replicas.extend(log_pb.Replica(replica_id=name, is_in_sync=True) for name in "bc")
    states.log.in_sync_replica_ids.append("away")
    for spoil in (_stopped, _failed):
        spoil(states)
    lines = page(states, Rates(1, 2, 3))
    assert (max(map(len, lines)) <= 80, len(lines) <= 24) == (True, True), lines


@pytest.mark.parametrize("width", [40, 80, 100])
def test_it_has_an_end(width: int) -> None:
    """The page has a limited length for any amount of data, and no line is wider than the terminal."""
    states = healthy()
    assert states.log is not None
    assert states.retention is not None
    states.log.log_directories.extend([states.log.log_directories[0]] * 20)
    states.log.replicas.extend(log_pb.Replica(replica_id=f"r{number}") for number in range(20))
    states.log.in_sync_replica_ids.extend(["r1", "away"])
    states.retention.disk_notes.extend(["a disk is nearly full"] * 20)
    lines = page(states, Rates(1, 2, 3), width)
    assert max(map(len, lines)) <= width
    assert len(lines) <= 60
    assert lines[0].startswith("not well: ")
    assert "and 17 directories more" in "\n".join(lines)


def test_rates_need_two_looks() -> None:
    """Rates are the difference between two states, and missing if a service has started again in between."""
    before, after = healthy(), healthy()
    after = States(NOW_S + 2, {}, after.log, after.index, after.retention)
    assert after.log is not None
    assert after.index is not None
    after.log.appended_message_count += 2_000
    after.log.max_physical_offset += 1 << 21
    after.index.indexed_physical_offset += 1 << 20
    rates = Rates.between(before, after)
    assert rates == Rates(1000, 1 << 20, 1 << 19)
    assert "1,000 messages/s, 1.0 MiB/s" in "\n".join(page(after, rates))
    assert Rates.between(None, after) is None
    assert Rates.between(States(NOW_S, {}), after) is None
    after.log.start_time.CopyFrom(log_pb.GetStatusResponse(start_time=at(0)).start_time)
    assert Rates.between(before, after) is None


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (None, "1.0 GiB behind, the last message in it was stored 3 s ago; "),
        (Rates(1, 0, GIB / 10), "stored 3 s ago, there in 10 s; "),
        (Rates(1, GIB, GIB / 10), "and falls back; "),
    ],
)
def test_an_index_that_is_behind(rates: Rates | None, said: str) -> None:
    """The page tells the lag in bytes and in time, and the expected end of the lag."""
    states = healthy()
    assert states.index is not None
    states.index.indexed_physical_offset -= GIB
    assert said in "\n".join(page(states, rates, 200))


@pytest.mark.parametrize(
    ("free_gib", "hours", "said"),
    [
        (500, 72, "the log grows 512 MiB an hour, and 72 h of it fit"),
        (260, 720, "the log grows 512 MiB an hour, and gets there in 20 h"),
        (200, 72, "above 75 % expired segments go at once"),
    ],
)
def test_forecasts(free_gib: int, hours: int, said: str) -> None:
    """By the log's own growth the page tells whether the retained messages fit, or when the limit is reached."""
    states = healthy()
    assert states.log is not None
    assert states.policy is not None
    states.log.disk_free_bytes = free_gib * GIB
    states.policy.retention_hours = hours
    text = "\n".join(page(states, width=200))
    assert said in text
    assert ("an hour" in text) == ("an hour" in said)


def _full(states: Any) -> None:
    states.log.refusals.append("DISK_FULL")


def _stopped(states: Any) -> None:
    states.index.state, states.index.last_error = index_pb.REPUT_STATE_STOPPED, "byte 5"


def _too_few(states: Any) -> None:
    states.log.role, states.log.live_in_sync_count, states.log.min_in_sync_count = log_pb.ROLE_SYNC_MASTER, 1, 2


def _no_coordinator(states: Any) -> None:
    states.log.following.state = log_pb.FOLLOWING_STATE_FOLLOWING
    states.log.election.last_error = "connection refused"


def _without_lease(states: Any) -> None:
    _too_few(states)
    _away_replica(states)
    states.log.refusals.append("NOT_LEADER")


def _damaged(states: Any) -> None:
    states.index.damaged_records.add(segment="00000000000000000000", position=7, reason="checksum")


def _silent(states: Any) -> None:
    states.index.is_log_away, states.index.log_silent_ms = True, 7_000


def _rebuilding(states: Any) -> None:
    states.index.is_complete, states.index.complete_physical_offset = False, 200 * GIB
    states.index.min_physical_offset = 100 * GIB


def _away_replica(states: Any) -> None:
    states.log.in_sync_replica_ids.append("b")


def _failed(states: Any) -> None:
    states.retention.last_error = "the Indexer refused"


def _recovering(states: Any) -> None:
    states.log.state = log_pb.LOG_STATE_RECOVERING
    states.log.recovery_progress.scanned_bytes, states.log.recovery_progress.target_bytes = 1, 4


def _gone(states: Any) -> None:
    states.away["indexer"] = "nobody answers at x:1"


def _out(states: Any) -> None:
    states.log.following.state, states.log.following.last_error = log_pb.FOLLOWING_STATE_OUT, "another history"
    states.log.following.leader_target = "l:1"


@pytest.mark.parametrize(
    ("spoil", "text", "action"),
    [
        (_full, "appends are refused: DISK_FULL", "make room"),
        (_too_few, "appends are refused: NOT_ENOUGH_REPLICAS, 1 of 2 logs", "reput replicas"),
        (_no_coordinator, "the coordinator can't be asked: connection refused", "see that it runs"),
        (_without_lease, "appends are refused: NOT_LEADER, this log does not lead", "`reput replicas`"),
        (_damaged, "segment 00000000000000000000 is damaged at byte 7: checksum", "copy"),
        (_silent, "the Indexer has heard nothing of its CommitLog for 7 s", "commitlog_target"),
        (_stopped, "indexing stands still: byte 5", "reput index rebuild"),
        (_rebuilding, "the indexes are built again: 12 %", "wait"),
        (_away_replica, "replica b is of the in-sync set and not connected", "reput replicas"),
        (_failed, "retention failed: the Indexer refused", "reput janitor run --dry-run"),
        (_recovering, "the CommitLog looks for the end of its log, 25 % done", "wait"),
        (_gone, "nobody answers at x:1", ""),
        (_out, "this log can't follow l:1: another history", "docs/replication.md"),
    ],
)
def test_troubles(spoil: Callable[[Any], None], text: str, action: str) -> None:
    """Each trouble changes the verdict, and has an action."""
    states = healthy()
    spoil(states)
    (trouble,) = troubles_of(states)
    assert (trouble.text[: len(text)], trouble.is_note) == (text, False)
    assert action in trouble.action
    lines = page(states)
    assert lines[0] == "not well"
    assert lines[1].startswith(f"- {text}")


def test_a_log_that_lost_its_lease_says_why_first() -> None:
    """The missing lease is the first trouble, and the missing coordinator the second.

    Other logs may lead by now, so missing followers are no trouble.
    """
    states = healthy()
    _without_lease(states)
    assert states.log is not None
    states.log.election.last_error = "connection refused"
    first, second = troubles_of(states)
    assert first.text.startswith("appends are refused: NOT_LEADER")
    assert second.text == "the coordinator can't be asked: connection refused"


def test_notes_do_not_wake_anybody() -> None:
    """Notes are behind the troubles, and the store is healthy with them."""
    states = healthy()
    assert states.log is not None
    states.log.recovery.truncated_bytes, states.log.recovery.truncated_copy_path = 5, "cut/5"
    (note,) = troubles_of(states)
    assert (note.is_note, verdict_of([note])) == (True, "healthy")
    assert page(states, width=200)[:2] == ["healthy", f"- note: {note.text}; {note.action}"]
    assert verdict_of([Trouble("a", ""), note, Trouble("b", "")]) == "not well: 2 problems"


def test_a_log_that_recovers_shows_how_far_it_is() -> None:
    """Numbers that a recovering log does not know yet are left out instead of shown as zeros."""
    states = healthy()
    _recovering(states)
    shown: Any = document(states)["commitlog"]
    assert tuple(shown) == RECOVERING_FIELDS
    assert shown["recovery_progress"]["scanned_bytes"] == 1
    assert not [line for line in page(states) if line.startswith("log")]


def test_the_document_has_all() -> None:
    """The document has each field of the answers, exactly, and the verdict."""
    found: Any = document(healthy())
    assert set(found) == {"commitlog", "indexer", "janitor", "verdict"}
    assert set(found["commitlog"]) == set(log_pb.GetStatusResponse.DESCRIPTOR.fields_by_name)
    assert found["commitlog"]["max_physical_offset"] == 112 * GIB
    assert found["verdict"] == {"is_healthy": True, "troubles": []}
    away = document(States(NOW_S, dict.fromkeys(("commitlog", "indexer", "janitor"), "gone")))
    assert away["commitlog"] == {"unavailable": "gone"}
    json.dumps(away)


def test_delivery_and_the_gateway() -> None:
    """Delivery and gateway processes that serve are in a line.

    A process that does not serve is a trouble if its address was given.
    """
    serving = [Beside("delivery", f"{name}:7104", "SERVING", 1.0) for name in "abc"]
    serving.append(Beside("gateway", "a:8081", "SERVING", 1.0))
    states = healthy()
    states.beside = serving
    assert "beside     Delivery (3) and the gateway serve" in page(states)
    found: Any = document(states)
    assert [row["target"] for row in found["delivery"]] == ["a:7104", "b:7104", "c:7104"]
    assert found["verdict"]["is_healthy"]
    states = healthy()
    states.beside = [Beside("gateway", "a:8081", "UNREACHABLE", 1.0)]
    assert [trouble.text for trouble in troubles_of(states)] == ["the gateway does not serve at a:8081"]
    assert not [line for line in page(states) if line.startswith("beside")]


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        (["", "TOPIC_FORBIDDEN: orders"], "1 delay level stands still: TOPIC_FORBIDDEN: orders"),
        (["no answer", "TOPIC_FORBIDDEN"], "2 delay levels stand still: no answer"),
    ],
)
def test_delay_levels_that_stand_still(errors: list[str], text: str) -> None:
    """Blocked delay levels are a trouble with the first reason, and JSON has all levels."""
    states = healthy()
    states.delay_levels = [DelayLevel(level, 1.0, 7, 2.5, error) for level, error in enumerate(errors, start=1)]
    assert [(trouble.text, trouble.is_note) for trouble in troubles_of(states)] == [(text, False)]
    assert page(states)[:2] == ["not well", f"- {text}; look into Delivery's log"]
    found: Any = document(states)
    assert found["delay_levels"][1] == {
        "level": 2, "delay_s": 1.0, "waiting_count": 7, "lateness_s": 2.5, "last_error": errors[1],
    }  # fmt: skip
    assert not found["verdict"]["is_healthy"]
    json.dumps(found)


def test_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal each page replaces the page before, line by line, and leaves nothing of it."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    status.print_page(iter(["one", "two"]), in_place=True, is_first=True)
    status.print_page(iter(["three"]), in_place=True, is_first=False)
    assert terminal.getvalue() == "\x1b[2J\x1b[Hone\x1b[K\ntwo\x1b[K\n\x1b[J\x1b[Hthree\x1b[K\n\x1b[J"
    monkeypatch.setattr(sys, "stdout", pipe := io.StringIO())
    status.print_page(iter(["one"]), in_place=True, is_first=True)
    status.print_page(iter(["two"]), in_place=True, is_first=False)
    assert pipe.getvalue() == "one\n\ntwo\n"


def test_nobody_is_there() -> None:
    """All three services are named with an action, and the exit code is that of a missing service."""
    names = ("commitlog", "indexer", "janitor")
    arguments = [text for port, name in enumerate(names, 1) for text in (f"--{name}", f"127.0.0.1:{port}")]
    result = run_here(*arguments, "status")
    assert result.code == 4
    assert result.output.splitlines()[0] == "not well: no service is there"
    assert " ".join(result.output.split()).count("start it with `reput up`") == 3
    assert max(map(len, result.output.splitlines())) <= status.page_width()
    assert result.errors == "error: UNAVAILABLE: no answer from commitlog, indexer, janitor\n"
    found = json.loads(run_here(*arguments, "status", "--json").output)
    assert set(found["janitor"]) == {"unavailable"}
    assert (found["verdict"]["is_healthy"], len(found["verdict"]["troubles"])) == (False, 3)
    assert run_here(*arguments, "status", "5").code == 2


def test_of_several_addresses_those_that_were_asked_are_shown() -> None:
    """The page shows the addresses that were asked if there are several.

    The log and the Indexer may be on two machines, which changes the meaning of the page.
    """
    states = healthy()
    states.targets = {"commitlog": "b:7101", "indexer": "a:7102"}
    assert "asked      the CommitLog at b:7101, the Indexer at a:7102" in page(states)
    assert states.index is not None
    states.index.is_log_away, states.index.log_silent_ms = True, 7_000
    (trouble,) = troubles_of(states)
    assert trouble.text.startswith("the Indexer at a:7102 has heard nothing of its CommitLog")
    assert document(states)["asked"] == {"commitlog": "b:7101", "indexer": "a:7102"}


@pytest.mark.parametrize(("is_writable", "code"), [(True, 0), (False, 7)])
@pytest.mark.parametrize("command", [("status",), ("status", "--json")])
def test_a_store_that_is_not_well_has_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], is_writable: bool, code: int
) -> None:
    """A script learns from the code alone that appends are refused."""
    states = healthy()
    assert states.log is not None
    states.log.is_writable = is_writable
    if not is_writable:
        states.log.refusals.append("STORE_FULL")
    monkeypatch.setattr(status, "is_listening", lambda _: True)
    monkeypatch.setattr(status, "_look", lambda *_: states)
    assert run_here(*command).code == code
