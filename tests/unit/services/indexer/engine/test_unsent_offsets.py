# SPDX-License-Identifier: Apache-2.0
"""Consumer offsets that no log took before an Indexer stopped: sent after its next start, unless they are outdated."""

from dataclasses import replace

import pytest

from libs.formats import store_layout
from libs.requests.errors import WindowFull
from services.indexer.engine.log.source import LogRole
from services.indexer.engine.share import shared_state as shared_state_module
from tests.support.indexer import DATA_DIR
from tests.support.patience import eventually
from tests.support.shared_log import Copies, found, knows

UNSENT_PATH = DATA_DIR / store_layout.UNSENT_OFFSETS


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state_module, "SEND_WAIT_S", 0.01)


async def stopped_without_a_leader(copies: Copies) -> None:
    """Let the follower's Indexer know all, commit and delete while no log leads, and stop in order."""
    async with copies.leader.running() as one, copies.follower.running() as other:
        one.groups.commit("g", {("T", 0): 5, ("T", 1): 5})
        one.groups.commit("gone", {("T", 0): 5})
        await eventually(lambda: knows(other, 5) and knows(other, 5, "gone"))
        copies.sink.is_leaderless = True
        other.groups.commit("g", {("T", 0): 8, ("T", 1): 8})
        await other.groups.delete("gone")
    copies.sink.is_leaderless = False
    assert copies.follower.fs.exists(UNSENT_PATH)


@pytest.mark.usefixtures("_impatient")
async def test_what_no_leader_took_before_a_stop_is_sent_after_it() -> None:
    """Unsent commits and deletions reach all Indexers after the next start, and the file is removed."""
    copies = Copies()
    await stopped_without_a_leader(copies)
    async with copies.leader.running() as one, copies.follower.running() as other:
        assert (found(other), found(other, "gone")) == (8, None)
        await eventually(lambda: knows(one, 8) and knows(one, None, "gone"))
        await eventually(lambda: not copies.follower.fs.exists(UNSENT_PATH))
        assert (found(other), found(other, "gone")) == (8, None)


@pytest.mark.usefixtures("_impatient")
async def test_what_waits_gives_way_to_later_records() -> None:
    """An unsent commit does not replace a commit that another Indexer answered meanwhile."""
    copies = Copies()
    await stopped_without_a_leader(copies)
    async with copies.leader.running() as one:
        one.groups.commit("g", {("T", 0): 9})
        await one.follow.shared_state.send()
    for number in range(500):  # so that the record is read late
        copies.log.append("T", body=b"%d" % number)
    async with copies.leader.running() as one, copies.follower.running() as other:
        await eventually(lambda: knows(one, 8) is False and found(one, queue_id=1) == 8)
        await eventually(lambda: knows(other, 9))
        assert (found(one), found(other), found(other, queue_id=1)) == (9, 9, 8)


@pytest.mark.usefixtures("_impatient")
async def test_what_waits_stays_over_further_stops() -> None:
    """Unsent changes stay over further stops, also if the log lost a tail, so that all records are read again."""
    copies = Copies()
    await stopped_without_a_leader(copies)
    copies.sink.is_leaderless = True
    end = copies.log.end_physical_offset
    async with copies.follower.running() as other:
        other.groups.commit("more", {("T", 0): 1})
        copies.log.append("T")
        await eventually(lambda: other.indexes.reached.indexed_physical_offset > end)
    copies.log.lose_tail(end)
    copies.sink.is_leaderless = False
    async with copies.leader.running() as one, copies.follower.running() as other:
        await eventually(lambda: knows(one, 8) and knows(one, 1, "more") and knows(one, None, "gone"))
        await eventually(lambda: knows(other, 8) and knows(other, 1, "more"))


@pytest.mark.usefixtures("_impatient")
async def test_a_log_without_copies_needs_no_file() -> None:
    """An Indexer whose log has no copies any more removes the file, and does not load it at each start."""
    copies = Copies()
    await stopped_without_a_leader(copies)
    copies.follower.fs.remove(DATA_DIR / store_layout.SHARED_STATE)
    copies.follower.copy.log_role = LogRole()
    copies.log.trim(copies.log.end_physical_offset)
    async with copies.follower.running():
        await eventually(lambda: not copies.follower.fs.exists(UNSENT_PATH))


@pytest.mark.usefixtures("_impatient")
async def test_unsent_changes_are_bounded_over_stops() -> None:
    """Without a leader the changes of former processes count for the limit of unsent changes."""
    copies = Copies()
    await stopped_without_a_leader(copies)
    copies.follower.config = replace(copies.follower.config, consumer_offset_count_max=4)
    copies.sink.is_leaderless, copies.follower.copy.is_silent = True, True
    async with copies.follower.running() as other:
        other.follow.shared_state.check_room()
        other.groups.commit("more", {("T", 0): 1})
        with pytest.raises(WindowFull):
            other.follow.shared_state.check_room()


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("reason", ["records_gone", "read_elsewhere", "damaged"])
async def test_what_waited_too_long_is_dropped(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """Changes that waited too long are dropped, and the offsets of the log count.

    Records of the same queues are gone, a version without this file has read them, or the file is damaged.
    """
    copies = Copies()
    await stopped_without_a_leader(copies)
    if reason == "damaged":
        copies.follower.fs.write_atomic(UNSENT_PATH, b"nothing")
    async with copies.leader.running() as one:
        one.groups.commit("g", {("T", 0): 9, ("T", 1): 9})
        await one.follow.shared_state.send()
        copies.log.append("T")
        end = copies.log.end_physical_offset
        await eventually(lambda: one.indexes.reached.indexed_physical_offset >= end)
        if reason == "records_gone":
            await one.follow.shared_state.keep(end)
            copies.log.trim(end)
    if reason == "read_elsewhere":  # by a version that knows nothing of the file
        data = copies.follower.fs.read(UNSENT_PATH)
        copies.follower.fs.remove(UNSENT_PATH)
        async with copies.leader.running(), copies.follower.running() as other:
            await eventually(lambda: knows(other, 9))
        copies.follower.fs.write_atomic(UNSENT_PATH, data)
    async with copies.leader.running() as one, copies.follower.running() as other:
        await eventually(lambda: knows(other, 9) and found(other, queue_id=1) == 9)
        await eventually(lambda: not copies.follower.fs.exists(UNSENT_PATH))
        assert (found(one), found(one, queue_id=1)) == (9, 9)
    assert ("is damaged" in caplog.text) == (reason == "damaged")
