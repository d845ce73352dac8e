# SPDX-License-Identifier: Apache-2.0
"""The page of the store: the logs of a group, certificates, and troubles as `reput status` tells them."""

import pytest
from reput.commitlog.v1 import log_service_pb2 as pb
from reput.indexer.v1 import index_service_pb2 as index_pb

from libs.verdict import troubles_of
from services.console.config import ConsoleConfig
from services.console.pages.operate.store import Answers, members_of, page_of

DAY_MS = 86_400_000
TARGETS = {"commitlog": "a:1", "indexer": "b:1", "janitor": "c:1", "delivery": "", "gateway": ""}


def test_addresses() -> None:
    """A service has its own address, else the store's, else the usual address; an empty address leaves Delivery out."""
    usual = {"commitlog": "127.0.0.1:7101", "indexer": "127.0.0.1:7102", "janitor": "127.0.0.1:7103"}
    assert ConsoleConfig().targets == {**usual, "delivery": "127.0.0.1:7104", "gateway": ""}
    targets = ConsoleConfig(store_target="door:1", indexer_target="i:2", delivery_target="").targets
    assert targets == {**dict.fromkeys(TARGETS, "door:1"), "indexer": "i:2", "delivery": ""}


def log(name: str, end: int, **fields: object) -> pb.GetStatusResponse:
    state = pb.GetStatusResponse(
        replica_id=name, state=pb.LOG_STATE_SERVING, role=pb.ROLE_ASYNC_MASTER, max_physical_offset=end, epoch=7,
        is_writable=True,
    )  # fmt: skip
    for field, value in fields.items():
        getattr(state, field).CopyFrom(value) if field == "following" else getattr(state, field).extend(value)
    return state


def test_logs_of_a_group() -> None:
    """The leader tells how far behind its followers are; a log that is away, or out, is named with its reason."""
    replica = pb.Replica(replica_id="two", flushed_physical_offset=900, is_in_sync=True)
    replica.heard_time.FromMilliseconds(5_000)
    replica.had_all_time.FromMilliseconds(3_000)
    follows = pb.Following(state=pb.FOLLOWING_STATE_FOLLOWING, leader_max_physical_offset=1_000)
    out = pb.Following(state=pb.FOLLOWING_STATE_OUT, last_error="another history", leader_max_physical_offset=1_000)
    leader, follower, outside, away = members_of(
        {
            "a:1": log("one", 1_000, replicas=[replica]),
            "b:1": log("two", 950, following=follows),
            "c:1": log("three", 400, following=out),
            "d:1": "nobody answers",
        }
    )
    assert (leader.standing, leader.epoch, leader.is_in_sync, leader.behind_bytes) == ("leads", 7, True, 0)
    place = (follower.standing, follower.is_in_sync, follower.behind_bytes, follower.behind_s)
    assert place == ("follows", True, 100, 2)
    assert (outside.standing, outside.health, outside.behind_bytes) == ("out", "problem", 600)
    assert outside.reason == "another history"
    assert (away.health, away.standing, away.epoch) == ("away", "nobody answers", None)


@pytest.mark.parametrize(
    ("days", "health"), [(30, "good"), (21, "good"), (20.9, "problem"), (6.9, "away"), (-3, "away")]
)
def test_ends_of_certificates(days: float, health: str) -> None:
    """A certificate that ends soon is a problem, as for `reput check`."""
    page = page_of(Answers(certificate_ends_s={"a:1": days * DAY_MS / 1_000}), TARGETS, (), 0)
    assert [certificate.health for certificate in page.certificates] == [health]


def test_troubles_have_an_action() -> None:
    """A service has the troubles that `reput status` tells, and notes do not make it unwell."""
    answers = Answers(
        log=log("one", 10, refusals=["STORE_FULL"]),
        index=index_pb.GetStatusResponse(
            state=index_pb.REPUT_STATE_LIVE, is_complete=True, stepped_over_record_count=1
        ),
        away={"janitor": ""},
    )
    page = page_of(answers, TARGETS, (), 0)
    health = {card.name: (card.health, [problem.is_note for problem in card.problems]) for card in page.services}
    assert health == {"CommitLog": ("problem", [False]), "Indexer": ("good", [True]), "Janitor": ("away", [])}
    (trouble,) = page.services[0].problems
    assert "make room or add a disk" in trouble.action
    assert page.verdict == "Look at CommitLog and Janitor."


def directory(path: str, *, is_full: bool = False, is_read_only: bool = False) -> pb.LogDirectory:
    percent = 91 if is_full else 50
    return pb.LogDirectory(path=path, is_full=is_full, is_read_only=is_read_only, disk_used_percent=percent)


def test_a_disk_that_is_too_full_for_new_segments_is_in_the_verdict() -> None:
    """The verdict, the card and the row of a disk say the same; while another disk has room it is a note."""
    cases = (
        ([directory("/a", is_full=True)], False, "appends are refused when it is full"),
        ([directory("/a", is_full=True), directory("/b", is_full=True)], False, "appends are refused"),
        ([directory("/a", is_full=True), directory("/b")], True, "new segments go to another disk"),
        ([directory("/a", is_full=True), directory("/b", is_read_only=True)], False, "appends are refused"),
        ([directory("/a"), directory("/b")], True, ""),
        ([directory("/a", is_full=True, is_read_only=True)], True, ""),
    )
    for directories, is_healthy, text in cases:
        answers = Answers(log=log("one", 10, log_directories=directories))
        page = page_of(answers, TARGETS, (), 0)
        card = page.services[0]
        assert (card.health == "good") is is_healthy, directories
        told = [problem for problem in card.problems if "% used" in problem.text]
        noted = [disk for disk in page.disks if disk.note == "too full for new segments"]
        assert len(told) == len(noted)
        assert all(text in problem.text and "91 % used" in problem.text for problem in told), told
        assert bool(told) is bool(text)
        assert any(not trouble.is_note for trouble in troubles_of(answers)) is not is_healthy
