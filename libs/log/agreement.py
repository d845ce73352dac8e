# SPDX-License-Identifier: Apache-2.0
"""Agreement: what a follower of a log does with what it holds, so that it holds nothing that the log does not have.

A follower has entered records up to `next`, and may hold something of records up to `end`, which is past the other
while records are entered once more. It asks for a stream, and the log shakes hands: it names its history and epoch, up
to where it has what the follower asked with, and where it begins. `agree` says the one thing that is to be done; after
a `Change` of what is held it is asked again, until the verdict is about the stream. The first row that holds counts:

    history  both have a name, and not the same                       DropAll        hold nothing, ask for all of it
    record   the log has none where mine end                          Refuse         a person decides
    epoch    another, and the stream was not asked for at mine's end  AskAgain(end)  there the histories are compared
    tail     the log has less than was asked with                     Undo(end)      nothing past it is held
    name     another epoch, or a name or table that mine lacks        Adopt          name and epochs are theirs
    head     the log begins behind what comes next                    SkipTo(begin)  that comes next
    stream   it begins behind what comes next                         AskAgain(next) the records between come again
    else                                                              Continue       the stream brings what comes next

Invariants: pure; no change comes twice in one handshake, so that it always ends.
The log's side, which finds the common end, is libs/log/common_history.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from libs.formats.epoch import Epoch


class Mine(NamedTuple):
    """What the follower holds. Offsets are physical, ends exclusive."""

    history_id: str
    """Name of the history that it is from; empty if unknown."""
    epoch: int
    next_physical_offset: int
    end_physical_offset: int
    asked_physical_offset: int
    """Where the stream was asked for: at the next, at the end, or at 0 if that is misplaced. It is taken back, too."""
    is_misplaced: bool = False
    """The log said that it has no record at the end."""
    epochs: Sequence[Epoch] = ()
    """All up to this epoch; none if they are not known."""


class Theirs(NamedTuple):
    """What the log said when it shook hands."""

    history_id: str
    epoch: int
    common_end_physical_offset: int
    """Up to where the log has what was asked with, at most where the stream was asked for."""
    min_physical_offset: int
    """Where the log begins."""
    epochs: Sequence[Epoch] = ()
    """All of the log; none if it did not tell them."""


@dataclass(frozen=True, slots=True)
class DropAll:
    """It is another log: hold nothing, go by its name from now on, and ask for a stream of all that it has."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nobody but a person can tell what to do."""

    why: str


@dataclass(frozen=True, slots=True)
class Undo:
    """The log lost its tail: hold nothing of records at or past this end, and have asked for the stream there."""

    end_physical_offset: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """The histories were compared: what is held is of the log's epoch, too."""


@dataclass(frozen=True, slots=True)
class SkipTo:
    """Go on here: what lies before is gone from the log."""

    begin_physical_offset: int


@dataclass(frozen=True, slots=True)
class AskAgain:
    """This stream is of no use: ask for one here."""

    physical_offset: int


@dataclass(frozen=True, slots=True)
class Continue:
    """The stream goes on where what is held ends."""


Change: TypeAlias = Undo | Adopt | SkipTo
"""Verdicts that change what is held; the others end the agreement."""


def is_other_epoch(mine: Mine, theirs: Theirs) -> bool:
    """Return whether the log is in another epoch: of another number, or of the same one that began elsewhere."""
    has_begun_elsewhere = mine.epochs and theirs.epochs and mine.epochs[-1] != theirs.epochs[-1]
    return mine.epoch != theirs.epoch or bool(has_begun_elsewhere)


def agree(mine: Mine, theirs: Theirs) -> Change | DropAll | Refuse | AskAgain | Continue:
    """Return what to do next, by the table above."""
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
