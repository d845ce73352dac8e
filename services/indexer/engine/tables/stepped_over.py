# SPDX-License-Identifier: Apache-2.0
"""SteppedOver: notes of records that have no unit in the queue that they name, by queue, with place, reason and count.

A single record never stops the indexing of all others: a record that can't be entered into its queue is noted here, and
indexing continues behind it. Its keys are indexed all the same, and with a key it is found by its id, unless it is set
apart.
Invariants: the decision depends on the log alone, so a rebuild makes the same notes. The exception are topics that were
deleted when the disk had no room: with more room a rebuild enters their records. A record that comes again, as in a
replay, is noted once. The notes are saved with the progress that covers their records. At most `NOTE_COUNT_MAX` notes
are kept apart; all others are joined in a single note for each reason.
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
    """The notes of an Indexer."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, int, int], Stepped] = {}

    @property
    def record_count(self) -> int:
        """Records that were stepped over and that the log still has, as far as the notes tell."""
        return sum(note.record_count for note in self._notes.values())

    def notes(self) -> list[Stepped]:
        """Return all notes, in the order in which their queues were first noted."""
        return list(self._notes.values())

    def restore(self, notes: Iterable[Stepped]) -> None:
        """Begin with the notes of a file, or without notes, because the indexes are built anew."""
        self._notes = {(note.topic, note.queue_id, note.reason): note for note in notes}

    def note(
        self,
        topic: str,
        queue_id: int,
        reason: StepReason,
        physical_offsets: NDArray[np.int64],
        queue_offsets: NDArray[np.int64],
    ) -> None:
        """Note records of a queue, in the order of the log. Records that were noted before are not counted again."""
        key = self._key(topic, queue_id, reason)
        first, last, last_queue_offset = int(physical_offsets[0]), int(physical_offsets[-1]), int(queue_offsets[-1])
        known = self._notes.get(key) or Stepped(*key, 0, first, -1, 0)
        # the joined note is of many queues, which come in sequence
        known = msgspec.structs.replace(known, first_physical_offset=min(first, known.first_physical_offset))
        new_at = int(np.searchsorted(physical_offsets, known.last_physical_offset, side="right"))
        count = known.record_count + len(physical_offsets) - new_at
        if count == known.record_count:
            self._notes[key] = known
            return
        self._notes[key] = Stepped(*key, count, known.first_physical_offset, last, last_queue_offset)
        if count.bit_length() != known.record_count.bit_length():  # the more records, the fewer log lines
            _log.log(
                logging.WARNING if reason is StepReason.SET_APART else logging.ERROR,
                "%d records of queue %s/%d are stepped over (%s), the last at physical offset %d with queue offset %d",
                *(count, topic, queue_id, reason.name, last, last_queue_offset),
            )

    def has(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Return whether a record of this queue may have been stepped over at this offset."""
        names = ((topic, queue_id), OTHERS)
        notes = (self._notes.get((*name, int(reason))) for name in names for reason in StepReason)
        return any(
            note is not None and note.first_physical_offset <= physical_offset <= note.last_physical_offset
            for note in notes
        )

    def truncate(self, end_physical_offset: int) -> None:
        """Drop notes of the lost records at or past this offset. A note that begins earlier keeps its count."""
        self._notes = {
            key: msgspec.structs.replace(
                note, last_physical_offset=min(note.last_physical_offset, end_physical_offset - 1)
            )
            for key, note in self._notes.items()
            if note.first_physical_offset < end_physical_offset
        }

    def trim(self, min_physical_offset: int) -> None:
        """Drop notes if the log has dropped all of their records."""
        self._notes = {
            key: note for key, note in self._notes.items() if note.last_physical_offset >= min_physical_offset
        }

    def _key(self, topic: str, queue_id: int, reason: StepReason) -> tuple[str, int, int]:
        key = (topic, queue_id, int(reason))
        is_room = key in self._notes or len(self._notes) < NOTE_COUNT_MAX
        return key if is_room else (*OTHERS, int(reason))
