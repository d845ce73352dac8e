# SPDX-License-Identifier: Apache-2.0
"""Agreement: how a follower of a log changes its data, so that it holds no data of records that the log lacks.

A follower has entered records up to `next`, and may hold data of records up to `end`. `end` is higher than `next` while
the follower enters records again. The follower requests a stream, and the log answers with a handshake: its history and
epoch, the common end of the log and of the follower's request, and the log's begin. `agree` returns the next action.
After a `Change` of its data the follower calls it again, until the verdict is about the stream. The first matching row
decides:

    history  both have a name, and the names differ                   DropAll        hold no data, request all records
    record   the log has no record boundary at the follower's end     Refuse         a person decides
    epoch    another epoch, and a stream not requested at the end     AskAgain(end)  the histories are compared there
    tail     the log's common end is lower than the request           Undo(end)      no data past this end is held
    name     another epoch, or the follower lacks the name or table   Adopt          take the log's name and epochs
    head     the log begins after `next`                              SkipTo(begin)  `next` is the log's begin
    stream   the stream begins after `next`                           AskAgain(next) the records between are sent again
    else                                                              Continue       the stream brings `next`

Invariants: pure; a handshake causes no change twice, so that it always ends.
The log's side, which finds the common end, is libs/log/common_history.py.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from libs.formats.epoch import Epoch


class Mine(NamedTuple):
    """The follower's state. Offsets are physical, ends exclusive."""

    history_id: str
    """Name of the history of its data; empty if unknown."""
    epoch: int
    next_physical_offset: int
    end_physical_offset: int
    asked_physical_offset: int
    """Where the stream was requested: at `next`, at `end`, or at 0 if the end is misplaced. `Undo` lowers it, too."""
    is_misplaced: bool = False
    """The log has answered that it has no record boundary at the end."""
    epochs: Sequence[Epoch] = ()
    """All epochs up to `epoch`; empty if unknown."""


class Theirs(NamedTuple):
    """The log's handshake."""

    history_id: str
    epoch: int
    common_end_physical_offset: int
    """End of the common history of log and follower, at most the offset of the stream's request."""
    min_physical_offset: int
    """The log's begin."""
    epochs: Sequence[Epoch] = ()
    """All epochs of the log; empty if it did not send them."""


class DropAll(Struct, frozen=True):
    """It is another log: hold no data, take the log's name, and request a stream of all its records."""


class Refuse(Struct, frozen=True):
    """Only a person can decide. `why` is the reason."""

    why: str


class Undo(Struct, frozen=True):
    """The log lost its tail: hold no data of records at or past this end, which is now the stream's request, too."""

    end_physical_offset: int


class Adopt(Struct, frozen=True):
    """The histories were compared: the follower's data is of the log's epoch, too."""


class SkipTo(Struct, frozen=True):
    """Continue here: the log has deleted the records before."""

    begin_physical_offset: int


class AskAgain(Struct, frozen=True):
    """This stream is useless: request a stream at this offset."""

    physical_offset: int


class Continue(Struct, frozen=True):
    """The stream continues where the follower's data ends."""


Change: TypeAlias = Undo | Adopt | SkipTo
"""Verdicts that change the follower's data. The other verdicts end the agreement."""


def is_other_epoch(mine: Mine, theirs: Theirs) -> bool:
    """Return whether the log is in another epoch: its number differs, or its start differs with the same number."""
    has_begun_elsewhere = mine.epochs and theirs.epochs and mine.epochs[-1] != theirs.epochs[-1]
    return mine.epoch != theirs.epoch or bool(has_begun_elsewhere)


def agree(mine: Mine, theirs: Theirs) -> Change | DropAll | Refuse | AskAgain | Continue:
    """Return the next action, by the table above."""
    if mine.history_id and theirs.history_id not in ("", mine.history_id):
        return DropAll()
    if mine.is_misplaced:
        return Refuse("the log has none there")
    is_other = is_other_epoch(mine, theirs)
    if is_other and mine.asked_physical_offset < mine.end_physical_offset:
        return AskAgain(mine.end_physical_offset)
    common_end = min(mine.asked_physical_offset, theirs.common_end_physical_offset)
    if common_end < mine.asked_physical_offset:
        return Undo(common_end)
    if is_other or (theirs.history_id and not mine.history_id) or (theirs.epochs and not mine.epochs):
        return Adopt()
    if mine.next_physical_offset < theirs.min_physical_offset:
        return SkipTo(theirs.min_physical_offset)
    if mine.next_physical_offset < max(common_end, theirs.min_physical_offset):
        return AskAgain(mine.next_physical_offset)
    return Continue()
