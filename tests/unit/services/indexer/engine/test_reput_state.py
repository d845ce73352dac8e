# SPDX-License-Identifier: Apache-2.0
"""ReputStates: the table, read row by row, and the reported state of a stage."""

import asyncio

import pytest

from services.indexer.engine.follow.completeness import Completeness
from services.indexer.engine.follow.reput_state import NEXT, Event, ReputState, ReputStates, Stage

E, S = Event, Stage


def states(stage: Stage = Stage.LIVE) -> ReputStates:
    made = ReputStates(Completeness())
    made.stage = stage
    return made


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ((E.STREAM, E.BEHIND, E.LEVEL), S.LIVE),
        ((E.STREAM, E.LACKING, E.BEHIND), S.CATCHING_UP),
        ((E.STREAM, E.LEVEL, E.STREAM), S.CONNECTING),
        ((E.STREAM, E.LEVEL, E.REBUILD), S.DROPPING),
        ((E.STREAM, E.REBUILD, E.STREAM, E.LEVEL), S.DROPPING),
        ((E.REBUILD, E.CONTRADICTED), S.DROPPING),
        ((E.REBUILD, E.DROPPED), S.RECONNECTING),
        ((E.REBUILD, E.DROPPED, E.STREAM, E.LACKING), S.REBUILDING),
        ((E.REBUILD, E.DROPPED, E.LACKING, E.STREAM), S.RECONNECTING),
        ((E.REBUILD, E.DROPPED, E.LACKING, E.STREAM, E.LACKING), S.REBUILDING),
        ((E.REBUILD, E.DROPPED, E.LACKING, E.BEHIND, E.STREAM), S.CONNECTING),
        ((E.REBUILD, E.DROPPED, E.LACKING, E.CONTRADICTED), S.STOPPED),
        ((E.STREAM, E.CONTRADICTED, E.STREAM, E.LEVEL), S.STOPPED),
        ((E.STREAM, E.CONTRADICTED, E.REBUILD), S.DROPPING),
        ((E.STREAM, E.FAILED, E.STREAM, E.REBUILD), S.FAILED),
        ((E.STREAM, E.CONTRADICTED, E.FAILED, E.REBUILD), S.FAILED),
        ((E.REBUILD, E.FAILED, E.DROPPED), S.FAILED),
    ],
)
def test_what_leads_where(events: tuple[Event, ...], end: Stage) -> None:
    """Events in order lead from the start to the expected stage."""
    made = states(S.RECOVERING)
    for event in events:
        made.on(event)
    assert made.stage is end


def test_each_stage_has_a_row_and_is_told_as_something() -> None:
    """Each stage has a row and a state of the protocol.

    No event leaves a failed disk, and a rebuild is possible from every other stage.
    """
    assert NEXT.keys() == set(Stage)
    assert {states(stage).state for stage in Stage} == set(ReputState)
    assert NEXT[S.FAILED] == {}
    assert all(row.get(E.REBUILD, stage) is S.DROPPING for stage, row in NEXT.items() if stage is not S.FAILED)


async def test_a_stop_ends_with_a_rebuild() -> None:
    """A stop ends waits for the indexes, and the loop waits until a rebuild is requested."""
    completeness = Completeness()
    made = ReputStates(completeness)
    made.on(E.STREAM)
    made.halt(ValueError("why"))
    assert (made.state, made.last_error) == (ReputState.STOPPED, "why")
    assert made.heard.is_set()
    assert completeness.changed.is_set()
    waiting = asyncio.create_task(made.until_wanted())
    await asyncio.sleep(0)
    assert not waiting.done()
    made.request_rebuild()
    await waiting
    assert (made.last_error, completeness.is_complete) == ("", False)


async def test_a_contradiction_does_not_stop_what_is_to_be_dropped() -> None:
    """A contradiction does not stop indexes that are dropped in a moment."""
    made = states()
    made.request_rebuild()
    made.halt(ValueError("why"))
    assert (made.stage, made.last_error, made.heard.is_set()) == (S.DROPPING, "", False)
