# SPDX-License-Identifier: Apache-2.0
"""The checks of groups and the gateway in rounds, on histories made by hand: each broken promise is reported."""

import asyncio
import signal

import pytest
from reput.common.v1.message_pb2 import StoredMessage

from tests.crash.messaging.history import Delivery, History, Place, Sent
from tests.crash.messaging.promises import RULES, broken
from tests.crash.rounds.messaging import GROUPS, TOPIC, compare
from tests.crash.rounds.offsets import SILENT, UNKNOWN, Committed
from tests.crash.rounds.offsets import compare as compare_offsets
from tests.crash.rounds.topics import compare as compare_topics

NAME = "sent-0"
ALL_HAVE_7 = {"reader-1": {"a": 7, "b": 7, "c": 7}}


def history_of(kind: str = "plain", **fields: object) -> History:
    """A message that was sent, and answered as done."""
    plain = {"began_ms": 1, "answered_ms": 2, "is_native": False}
    sent = Sent(name=NAME, topic=TOPIC, kind=kind, **{**plain, **fields})  # type: ignore[arg-type]
    return History(groups=GROUPS, sent={NAME: sent}, attempts_last=False)


def stored(queue_offset: int, queue_id: int = 0) -> StoredMessage:
    """The message as the log has it."""
    return StoredMessage(topic=TOPIC, body=NAME.encode(), queue_id=queue_id, queue_offset=queue_offset)


def received(began_ms: float, attempt: int, settled_ms: float | None = None) -> Delivery:
    """The message as a member got it, and acknowledged it if the acknowledgement was answered."""
    one = Delivery("billing", Place(TOPIC, 0, 0), NAME, attempt, began_ms, began_ms + 1, 1000)
    one.verb, one.settle_began_ms, one.settled_ms = "ack", began_ms + 2, settled_ms
    return one


def test_a_send_that_was_answered() -> None:
    """It is there once, at the queue offset that the gateway named."""
    history = history_of()
    assert compare(history, {NAME: 3}, [stored(3)]) == []
    assert len(compare(history, {NAME: 3}, [])) == 1
    assert len(compare(history, {NAME: 3}, [stored(4)])) == 1
    assert len(compare(history, {NAME: 3}, [stored(3), stored(3, queue_id=1)])) == 1


def test_a_send_without_an_answer() -> None:
    """It may be there or not, and never twice, also where it was sent again under its id."""
    history = history_of(answered_ms=None)
    assert compare(history, {}, []) == compare(history, {}, [stored(3)]) == []
    assert len(compare(history, {}, [stored(3), stored(4)])) == 1
    assert len(compare(History(groups=GROUPS), {}, [stored(3)])) == 1


def test_transactions() -> None:
    """A committed transaction is there once the commit was answered. Others never are."""
    assert len(compare(history_of("transaction", end="commit", ended_ms=5), {}, [])) == 1
    assert compare(history_of("transaction", end="commit"), {}, []) == []
    for end in ("rollback", ""):
        assert len(compare(history_of("transaction", end=end), {}, [stored(0)])) == 1


def test_an_acknowledgement_that_is_undone() -> None:
    """No receive that began later brings the message; a failover may count the attempts of an earlier receive anew."""
    for began_ms, is_wrong in ((20, True), (5, False)):
        history = history_of()
        history.deliveries = [received(1, 1, settled_ms=10), received(began_ms, 2)]
        assert bool(broken(history, RULES)) is is_wrong


async def end_with(code: int | None) -> asyncio.Future[int]:
    """The exit code of a process that runs, or ended with a code."""
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    if code is not None:
        ended.set_result(code)
    return ended


@pytest.mark.parametrize(("code", "owed"), [(None, 7), (0, 7), (-signal.SIGKILL, 3)], ids=["runs", "stopped", "killed"])
def test_what_is_owed_of_commits(code: int | None, owed: int) -> None:
    """All answered commits, unless the process was killed, and the commits that all had once, in every case."""
    assert Committed(asked=8, known=3, taken=7, ended=asyncio.run(end_with(code))).owed == owed


def test_commits_that_are_missing() -> None:
    """All Indexers have the same of a group, no less than is owed and no more than was asked for."""
    one = Committed(asked=8, known=7)
    assert compare_offsets({"reader-1": one}, [], ALL_HAVE_7) == []
    for value in (6, 9, UNKNOWN, SILENT):
        assert len(compare_offsets({"reader-1": one}, [], {"reader-1": {"a": value, "b": value}})) == 1
        assert len(compare_offsets({"reader-1": one}, [], {"reader-1": {"a": 7, "b": value}})) == 1
    assert compare_offsets({"reader-1": Committed()}, [], {"reader-1": {"a": UNKNOWN, "b": UNKNOWN}}) == []


def test_groups_that_come_back() -> None:
    """A group whose deletion was answered is nowhere."""
    assert compare_offsets({}, ["gone-1"], {"gone-1": {"a": UNKNOWN, "b": UNKNOWN}}) == []
    for value in (1, SILENT):
        assert len(compare_offsets({}, ["gone-1"], {"gone-1": {"a": UNKNOWN, "b": value}})) == 1


def test_changes_of_topics() -> None:
    """A topic is as its last change was answered; a deleted topic is gone."""
    known = {"made-0": 4, "made-1": 0}
    assert compare_topics(known, {"made-0": 4, "made-1": 0}) == []
    assert len(compare_topics(known, {"made-0": 3, "made-1": 3})) == 2
