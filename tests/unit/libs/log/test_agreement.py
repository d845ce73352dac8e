# SPDX-License-Identifier: Apache-2.0
"""agree: the next step of a follower, case by case; and that the steps always end in agreement."""

import itertools
from collections.abc import Iterator

import pytest

from libs.formats.epoch import Epoch
from libs.log.agreement import (
    Adopt,
    AskAgain,
    Change,
    Continue,
    DropAll,
    Mine,
    Refuse,
    SkipTo,
    Theirs,
    Undo,
    agree,
)

HELD = Mine("first", 3, 700, 700, asked_physical_offset=700)
AGAIN = HELD._replace(next_physical_offset=400)
"""A follower with data up to 700 that enters everything from 400 on again."""
SAME = Theirs("first", 3, 700, 0)
TABLE, ELSEWHERE = (Epoch(2, 100), Epoch(3, 500)), (Epoch(2, 100), Epoch(3, 450))

CASES = {
    "the same": (HELD, SAME, Continue()),
    "the same, without names": (HELD._replace(history_id=""), SAME._replace(history_id=""), Continue()),
    "a log that is older than names": (HELD, SAME._replace(history_id=""), Continue()),
    "the log has forgotten its begin": (HELD, SAME._replace(min_physical_offset=700), Continue()),
    "another log": (HELD, SAME._replace(history_id="second"), DropAll()),
    "another log, and no record there": (HELD._replace(is_misplaced=True), Theirs("second", 1, 0, 0), DropAll()),
    "no record where mine end": (
        HELD._replace(is_misplaced=True),
        SAME,
        Refuse("the log has none there"),
    ),
    "a new epoch, nothing lost": (HELD, SAME._replace(epoch=4), Adopt()),
    "a name for the first time": (HELD._replace(history_id=""), SAME, Adopt()),
    "a new epoch, and the tail is gone": (HELD, Theirs("first", 4, 650, 0), Undo(650)),
    "the tail is gone, below the log's begin": (HELD, Theirs("first", 4, 500, 600), Undo(500)),
    "a new epoch, and the tail was taken back": (Mine("first", 3, 650, 650, 650), Theirs("first", 4, 650, 0), Adopt()),
    "the same table": (HELD._replace(epochs=TABLE), SAME._replace(epochs=TABLE), Continue()),
    "a table for the first time": (HELD, SAME._replace(epochs=TABLE), Adopt()),
    "a log that tells no table": (HELD._replace(epochs=TABLE), SAME, Continue()),
    "the epoch began elsewhere": (
        HELD._replace(epochs=TABLE),
        Theirs("first", 3, 450, 0, ELSEWHERE),
        Undo(450),
    ),
    "the epoch began elsewhere, and the tail was taken back": (
        Mine("first", 3, 450, 450, 450, epochs=TABLE),
        Theirs("first", 3, 450, 0, ELSEWHERE),
        Adopt(),
    ),
    "the epoch began elsewhere, and some come again": (
        AGAIN._replace(asked_physical_offset=400, epochs=TABLE),
        Theirs("first", 3, 400, 0, ELSEWHERE),
        AskAgain(700),
    ),
    "the records between are gone": (HELD, SAME._replace(min_physical_offset=900), SkipTo(900)),
    "agreed, and some come again": (AGAIN, SAME, AskAgain(400)),
    "some come again, as far as they are there": (AGAIN, SAME._replace(min_physical_offset=500), SkipTo(500)),
    "they come": (AGAIN._replace(asked_physical_offset=400), SAME._replace(common_end_physical_offset=400), Continue()),
    "the log changed meanwhile": (AGAIN._replace(asked_physical_offset=400), Theirs("first", 4, 400, 0), AskAgain(700)),
    "nothing is held, at an old log": (Mine("", 0, 0, 0, 0), Theirs("first", 3, 0, 800), Adopt()),
    "nothing is held, and it comes": (Mine("first", 3, 800, 800, 0), Theirs("first", 3, 0, 800), Continue()),
}


@pytest.mark.parametrize(("mine", "theirs", "verdict"), CASES.values(), ids=CASES.keys())
def test_each_row(mine: Mine, theirs: Theirs, verdict: object) -> None:
    """Each handshake has a single next step."""
    assert agree(mine, theirs) == verdict


def done(change: Change, mine: Mine, theirs: Theirs) -> Mine:
    """The state of a follower after the step."""
    match change:
        case Undo(end):
            following = min(end, mine.next_physical_offset)
            return mine._replace(next_physical_offset=following, end_physical_offset=end, asked_physical_offset=end)
        case Adopt():
            name = theirs.history_id or mine.history_id
            return mine._replace(history_id=name, epoch=theirs.epoch, epochs=theirs.epochs)
        case SkipTo(begin):
            return mine._replace(next_physical_offset=begin, end_physical_offset=max(begin, mine.end_physical_offset))


TABLES = ((), (Epoch(2, 0),), (Epoch(2, 3),))


def test_it_always_ends() -> None:
    """In any states no change is made twice, and the stream continues the follower's data."""
    at = (0, 4, 7)
    for held, other, is_misplaced in itertools.product(at, at, (False, True)):
        following, end = sorted((held, other))
        for asked in (0,) if is_misplaced else {following, end}:
            mine = Mine("", 0, following, end, asked, is_misplaced)
            for name, epoch, table, theirs in itertools.product(("", "a"), (1, 2), TABLES, _theirs(asked)):
                check(mine._replace(history_id=name, epoch=epoch, epochs=table), theirs)


def _theirs(asked: int) -> Iterator[Theirs]:
    for name, common, begin, table in itertools.product(("", "a", "b"), (0, 3, 4, 7), (0, 5, 9), TABLES):
        if common <= asked:
            yield Theirs(name, 2, common, begin, table)


def check(mine: Mine, theirs: Theirs) -> None:
    asked, changes = mine.asked_physical_offset, list[type]()
    while isinstance(verdict := agree(mine, theirs), Change):
        assert type(verdict) not in changes, (mine, theirs, changes)
        changes.append(type(verdict))
        mine = done(verdict, mine, theirs)
    if isinstance(verdict, Continue):
        assert (mine.history_id, mine.epoch) == (theirs.history_id or mine.history_id, theirs.epoch)
        assert mine.next_physical_offset == max(theirs.common_end_physical_offset, theirs.min_physical_offset)
    elif isinstance(verdict, AskAgain):
        assert verdict.physical_offset != asked
        assert verdict.physical_offset in (mine.next_physical_offset, mine.end_physical_offset)
    elif isinstance(verdict, Refuse):
        assert mine.is_misplaced
    else:
        assert {"a", "b"} == {mine.history_id, theirs.history_id}
