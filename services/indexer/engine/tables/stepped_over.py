# SPDX-License-Identifier: Apache-2.0
"""SteppedOver: which records have no unit in a queue although they name one, by queue, with place, reason and count.

One record never stops the indexing of all others: what can't be entered into its queue is noted here, and the indexing
goes on behind it. Its keys are indexed all the same, and with a key it is found by its id, unless it is set apart.
Invariants: the decision depends on the log alone, so a rebuild makes the same notes (but of topics that were deleted
when the disk had no room: with more room a rebuild enters their records); a record that comes again, as in a replay, is
noted once; the notes are written down with the progress whose records they speak of. At most
`NOTE_COUNT_MAX` notes are kept apart, all others of the same reason in one.
Callers: the event loop's thread.
"""

import logging
from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from libs.formats.state.index_progress import OTHERS, Stepped, StepReason

NOTE_COUNT_MAX = 4_096

_log = logging.getLogger(__name__)


class SteppedOver:
    """The notes of one Indexer."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, int, int], Stepped] = {}

    @property
    def record_count(self) -> int:
        """Records that were stepped over and that the log still has, as far as notes tell."""
        return sum(note.record_count for note in self._notes.values())

    def notes(self) -> list[Stepped]:
        """Return all notes, in the order in which their queues were first met."""
        return list(self._notes.values())

    def restore(self, notes: Iterable[Stepped]) -> None:
        """Begin with the notes that a file has, or with none, because the indexes are built anew."""
        self._notes = {(note.topic, note.queue_id, note.reason): note for note in notes}

    def note(
        self,
        topic: str,
        queue_id: int,
        reason: StepReason,
        physical_offsets: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
    ) -> None:
        """Note records of one queue, in the order of the log. Those that were noted before do not count again."""
        key = self._key(topic, queue_id, reason)
        first, last, last_queue_offset = int(physical_offsets[0]), int(physical_offsets[-1]), int(queue_offsets[-1])
        known = self._notes.get(key) or Stepped(*key, 0, first, -1, 0)
        # the note of all others is of many queues, which come one after the other
        known = msgspec.structs.replace(known, first_physical_offset=min(first, known.first_physical_offset))
        new_at = int(np.searchsorted(physical_offsets, known.last_physical_offset, side="right"))
        count = known.record_count + len(physical_offsets) - new_at
        if count == known.record_count:
            self._notes[key] = known
            return
        self._notes[key] = Stepped(*key, count, known.first_physical_offset, last, last_queue_offset)
        if count.bit_length() != known.record_count.bit_length():  # the more there are, the less is said of each
            _log.log(
                logging.WARNING if reason is StepReason.SET_APART else logging.ERROR,
                "%d records of queue %s/%d are stepped over (%s), the last at physical offset %d with queue offset %d",
                *(count, topic, queue_id, reason.name, last, last_queue_offset),
            )

    def has(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Return whether a record of this queue may have been stepped over here."""
        names = ((topic, queue_id), OTHERS)
        notes = (self._notes.get((*name, int(reason))) for name in names for reason in StepReason)
        return any(
            note is not None and note.first_physical_offset <= physical_offset <= note.last_physical_offset
            for note in notes
        )

    def truncate(self, end_physical_offset: int) -> None:
        """Forget records at or past this offset, which the log lost. A note that began before it keeps its count."""
        self._notes = {
            key: msgspec.structs.replace(
                note, last_physical_offset=min(note.last_physical_offset, end_physical_offset - 1)
            )
            for key, note in self._notes.items()
            if note.first_physical_offset < end_physical_offset
        }

    def trim(self, min_physical_offset: int) -> None:
        """Forget notes all of whose records the log has dropped."""
        self._notes = {
            key: note for key, note in self._notes.items() if note.last_physical_offset >= min_physical_offset
        }

    def _key(self, topic: str, queue_id: int, reason: StepReason) -> tuple[str, int, int]:
        key = (topic, queue_id, int(reason))
        is_room = key in self._notes or len(self._notes) < NOTE_COUNT_MAX
        return key if is_room else (*OTHERS, int(reason))
